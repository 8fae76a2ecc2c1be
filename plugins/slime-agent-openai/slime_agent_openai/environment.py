"""Environment: how a run file names one of another library, and what becomes of the name. Imports none of them.

Example:

    reference_of("owner/my-env")                # "my_env:load_environment"
    reference_of("./my_env.py")                 # "./my_env.py:load_environment"
"""

from typing import Self

from pydantic import Field, JsonValue, model_validator

from slime_agent_openai.reference import check
from slime_agent_openai.settings import PooledSettings

LOADS = "load_environment"
"""Name of the function that packages of environments have."""


class VerifiersSettings(PooledSettings):
    """`[generator.verifiers]`."""

    environment: str = Field(
        description="The environment: name of its installed package, or ./file.py:function or package.module:function "
        "that makes one; the function is load_environment where none is named."
    )
    arguments: dict[str, JsonValue] = Field({}, description="Keyword arguments of that function.")

    @model_validator(mode="after")
    def _find(self) -> Self:
        check(reference_of(self.environment), takes_task=False)
        return self


def reference_of(environment: str) -> str:
    """The function that makes an environment; a package may be named as on a hub, with owner and hyphens."""
    if ":" in environment:
        return environment
    if environment.endswith(".py"):
        return f"{environment}:{LOADS}"
    return f"{environment.rpartition('/')[2].replace('-', '_')}:{LOADS}"
