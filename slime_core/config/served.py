"""Models that a run serves beside the policy: tables of `served_models`, each with an engine of its own.

Example:

    [served_models.judge]
    hf_checkpoint = "models/judge"
    engine = "local"                # by default the one of the policy
    engines = 1
    settings = {workers = 2}        # what is other than in that engine's section
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, JsonValue, field_validator

from slime_core.config.chosen import Chosen
from slime_core.config.family import Family
from slime_core.roles import EngineSpec, Workers


class ServedModelArgs(Family):
    """One model, as a table: `[served_models.judge]`."""

    hf_checkpoint: Path = Field(description="Model directory in HF format: weights, config and tokenizer.")
    engine: str | None = Field(None, description="What serves it; default: the engine of the policy.")
    engines: Workers = Field(1, description="Engines that share its requests.")
    settings: dict[str, JsonValue] = Field(
        {}, description="Settings of that engine that are other here than in its own section."
    )


class ServedArgs(Family):
    """Models beside the policy."""

    served_models: dict[str, ServedModelArgs] = Field(
        {}, description="Models that are served and not trained, a table each: [served_models.judge]."
    )

    @field_validator("served_models")
    @classmethod
    def _plain_names(cls, models: dict[str, ServedModelArgs]) -> dict[str, ServedModelArgs]:
        for name in models:
            if not (name.replace("_", "").replace("-", "").isalnum() and name.isascii()):
                raise ValueError(f"{name!r} is not a name of a model: use letters, digits, '-' and '_'")
        return models


@dataclass(frozen=True, slots=True)
class Served:
    """A model of a plan."""

    model: Path
    """Its directory."""
    engine: Chosen[EngineSpec]
    """What serves it, with its settings."""
    engines: int
    """How many of them."""


ServedPlan = Mapping[str, Served]
"""By the names of their tables."""
