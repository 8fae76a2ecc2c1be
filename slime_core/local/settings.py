"""Settings of the local engine and trainer, without torch, for the catalog."""

from typing import Annotated

from pydantic import Field

from slime_core.roles import Settings

Processes = Annotated[int, Field(ge=1, le=64)]


class LocalEngineSettings(Settings):
    """`[engine.local]`."""

    workers: Processes = Field(2, description="Processes that generate, one thread each.")


class LocalTrainerSettings(Settings):
    """`[trainer.local]`."""

    ranks: Processes = Field(2, description="Processes that train, one thread each.")
    max_tokens_per_micro_batch: int = Field(
        16384,
        ge=1,
        description="Prompt and response tokens of one forward; samples of one prompt stay together.",
    )
