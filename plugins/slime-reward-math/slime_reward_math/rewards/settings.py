"""Settings of all rewards here, without what grades, which takes a fifth of a second to import: for the catalog.

Example:

    MathSettings.model_validate({"strict_slime": True})
"""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from slime_core import Settings
from slime_reward_math.own_time import DEADLINE_S


class MathSettings(Settings):
    """Settings of `math`, `deepscaler` and `dapo`."""

    strict_slime: bool = False
    """Reproduce slime's verdicts, its rejections of right answers included."""
    deadline_s: float = Field(default=DEADLINE_S, gt=0, le=10)
    """Seconds of the grading thread's own time after which an answer is given up and the sample is unscored."""
    answer_phrases: bool = False
    """Whether `the final answer is ...` will do where there is no box."""

    symbolic: bool = False
    """Whether sympy decides what is undecided otherwise, in child processes; needs `slime-reward-math[symbolic]`."""
    symbolic_timeout_s: float = Field(default=2.0, gt=0, le=60)
    """Seconds after which algebra gives up one comparison and its process is killed."""
    symbolic_memory_mb: int = Field(default=1024, ge=256, le=2**24)
    """Memory of each of the child processes."""


class GpqaSettings(Settings):
    """Settings of `gpqa`."""

    strict_slime: bool = False
    """Reproduce slime's verdicts: the first marked letter, else the last capital, else the label anywhere."""


class F1Settings(Settings):
    """Settings of `f1`."""

    strict_slime: bool = False
    """Reproduce slime's scores: all punctuation dropped, even in numbers; no empty gold matched; thinking read."""


class IfbenchSettings(Settings):
    """Settings of `ifbench`."""

    strict_slime: bool = False
    """Verify the thinking too, and score 0 a row without instructions, as slime does."""
    loose: bool = False
    """Whether asterisks and a first or last line that break an instruction are forgiven: IFEval's loose score."""


class RemoteSettings(Settings):
    """Settings of `remote_rm`."""

    rm_url: str = ""
    """Where to post; http or https."""
    timeout_s: float = Field(default=30.0, gt=0, le=600)
    """Seconds for one try."""
    max_retries: int = Field(default=3, ge=0, le=20)
    """Tries after the first one: after a refused connection, a time-out, 408, 429, or a 5xx."""
    reward_key: str = "score"
    """Where the number is in an object."""

    @field_validator("rm_url")
    @classmethod
    def _is_web_address(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in ("http", "https"):
            raise ValueError(f"rm_url is {value!r}; expected an address like http://127.0.0.1:9000/score")
        return value


class FormatSettings(Settings):
    """Settings of `format`."""

    box: bool = True
    """Whether the answer must be in a closed box that is not empty, after the thinking."""
    think: Literal["optional", "required", "forbidden"] = "optional"
    """Whether there must be one `</think>`, with at most one `<think>` and nothing but spaces before that."""
