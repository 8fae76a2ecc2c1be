"""Settings of the adapters: the path of the function, and its `args`."""

from pydantic import Field, JsonValue

from slime_core import Settings

MAX_OPEN = 128
"""Concurrent generations: each needs an endpoint's file descriptor, and another for each connection."""


class FunctionSettings(Settings):
    """A function, or a class, written for slime."""

    path: str = Field(description="Where it is: `package.module.name`, as slime takes it, or `./file.py:name`.")
    args: dict[str, JsonValue] = Field({}, description="What it reads from slime's `args`, by attribute.")


class RewardSettings(FunctionSettings):
    """A function for `--custom-rm-path`."""

    reward_key: str | None = Field(None, description="Which entry of a dict is the reward; the others are components.")


class GenerateSettings(FunctionSettings):
    """A function for `--custom-generate-function-path`."""
