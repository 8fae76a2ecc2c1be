"""Settings of the adapters: the path of the function and its `args`."""

from pydantic import Field, JsonValue

from slime_core import Settings

MAX_CONCURRENCY = 128
"""Maximum concurrent generations; each needs a file descriptor for its endpoint and one per connection."""


class FunctionSettings(Settings):
    """A function or class written for slime."""

    path: str = Field(description="Path of the function: `package.module.name`, as in slime, or `./file.py:name`.")
    args: dict[str, JsonValue] = Field({}, description="Attributes of `args`, the function's first argument.")


class RewardSettings(FunctionSettings):
    """A function for `--custom-rm-path`."""

    reward_key: str | None = Field(
        None, description="Key of the reward in a returned dict; other entries become its components."
    )


class GenerateSettings(FunctionSettings):
    """A function for `--custom-generate-function-path`."""
