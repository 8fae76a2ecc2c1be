"""Settings of the adapters: where the function is, and what slime would have given it as `args`."""

from pydantic import Field, JsonValue

from slime_core import Settings

MAX_OPEN = 128
"""Generations at once: each has an endpoint, a file descriptor, and as many again for what connects to it."""


class FunctionSettings(Settings):
    """A function, or a class, written for slime."""

    path: str = Field(description="Where it is: `package.module.name`, as slime takes it, or `./file.py:name`.")
    args: dict[str, JsonValue] = Field({}, description="What it reads from slime's `args`, by attribute.")


class RewardSettings(FunctionSettings):
    """A function for `--custom-rm-path`."""

    reward_key: str | None = Field(None, description="Which entry of a dict is the reward; the others are components.")


class GenerateSettings(FunctionSettings):
    """A function for `--custom-generate-function-path`."""
