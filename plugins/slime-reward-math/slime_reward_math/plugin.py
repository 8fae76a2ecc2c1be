"""What slime-core finds through the entry point: nine rewards under slime's names, each with its `boxed_` variant.

A reward is imported when it is built: a run that plans, or trains with another one, needs none of them. Settings are
here, without what grades, which takes a fifth of a second to import.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from slime_core import hookimpl
from slime_core.roles import Isolation, Reward, RewardSpec, Settings, Setup
from slime_reward_math.own_time import DEADLINE_S


class MathSettings(Settings):
    """Settings of `math`, `deepscaler` and `dapo`."""

    strict_slime: bool = False
    """Reproduce slime's verdicts, its rejections of right answers included."""
    deadline_s: float = Field(default=DEADLINE_S, gt=0, le=10)
    """Seconds of the grading thread's own time after which an answer is given up and the sample is unscored."""
    answer_phrases: bool = False
    """Whether `the final answer is ...` will do where there is no box."""


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


SLIME_API = "1"


def _lazy(module: str, name: str, **arguments: bool) -> Callable[[Any, Setup], Reward]:
    def factory(settings: Settings, setup: Setup) -> Reward:
        made: Callable[..., Reward] = getattr(import_module(f"slime_reward_math.rewards.{module}"), name)
        return made(settings, **arguments)

    return factory


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """The rewards of this plugin: on the loop, because they compute for 0.1 ms, or wait in threads of their own."""
    answers = (
        ("math", "1 when the last boxed answer equals the label, else 0"),
        ("boxed_math", "math, under slime's name for boxed answers"),
        ("deepscaler", "math after </think> or ###Response"),
        ("boxed_deepscaler", "deepscaler of the last box"),
        ("dapo", "1 when the last 'Answer:' line equals the label, else -1"),
        ("boxed_dapo", "1 when the last box equals the label, else -1"),
    )
    for name, summary in answers:
        yield RewardSpec(name, _lazy("answers", name), MathSettings, summary, isolation=Isolation.LOOP)
    loop = Isolation.LOOP
    for name, module, kind, model, summary in (
        ("gpqa", "letters", "Letters", GpqaSettings, "1 when the response chooses the right letter"),
        ("f1", "texts", "Overlap", F1Settings, "overlap of words with the label, between 0 and 1"),
        ("ifbench", "instructions", "Following", IfbenchSettings, "1 when every instruction is followed"),
    ):
        yield RewardSpec(name, _lazy(module, kind), model, summary, isolation=loop)
        boxed = _lazy(module, kind, within_box=True)
        yield RewardSpec(f"boxed_{name}", boxed, model, f"{name} of the last box", isolation=loop)
    draw, shape = _lazy("texts", "Draw"), _lazy("texts", "Shape")
    yield RewardSpec("random", draw, summary="0 or 1 by the sample's seed", isolation=loop)
    yield RewardSpec("boxed_random", draw, summary="random", isolation=loop)
    asked, boxed = _lazy("remote", "Remote"), _lazy("remote", "Remote", within_box=True)
    summary = "what the server at rm_url answers"
    yield RewardSpec("remote_rm", asked, RemoteSettings, summary, 300.0, isolation=loop)
    yield RewardSpec("boxed_remote_rm", boxed, RemoteSettings, "remote_rm of the last box", 300.0, isolation=loop)
    yield RewardSpec("format", shape, FormatSettings, "1 when the response has the expected form", isolation=loop)
    yield RewardSpec("boxed_format", shape, FormatSettings, "format", isolation=loop)
