"""Entry point: nine rewards under slime's names, each with its `boxed_` variant.

A reward is imported when it is built, so that other runs do not import it. The settings are here, apart from the
grader, which takes 0.2 s to import.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from slime_core import hookimpl
from slime_core.roles import Isolation, Reward, RewardSpec, Settings, Setup
from slime_reward_math.cpu_deadline import DEADLINE_S


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
    """Whether there must be one `</think>`, with at most one `<think>` and only spaces before that."""


SLIME_API = "1"


def _from(module: str) -> ModuleType:
    return import_module(f"slime_reward_math.rewards.{module}")


Offer = tuple[str, Callable[[Any, Setup], Reward], type[Settings], str]


def _offers() -> Iterator[Offer]:
    """Name, factory, settings and summary; each factory is on a separate line, which `slime plugins show` prints."""
    kind: type[Settings] = MathSettings
    line = "1 when the last 'Answer:' line equals the label, else -1"
    box = "1 when the last box equals the label, else -1"
    yield "math", lambda s, _: _from("answers").math(s), kind, "1 when the last boxed answer equals the label, else 0"
    yield "boxed_math", lambda s, _: _from("answers").boxed_math(s), kind, "math, under slime's name for boxed answers"
    yield "deepscaler", lambda s, _: _from("answers").deepscaler(s), kind, "math after </think> or ###Response"
    yield "boxed_deepscaler", lambda s, _: _from("answers").boxed_deepscaler(s), kind, "deepscaler of the last box"
    yield "dapo", lambda s, _: _from("answers").dapo(s), kind, line
    yield "boxed_dapo", lambda s, _: _from("answers").boxed_dapo(s), kind, box
    kind = GpqaSettings
    yield "gpqa", lambda s, _: _from("letters").Letters(s), kind, "1 when the response chooses the right letter"
    yield "boxed_gpqa", lambda s, _: _from("letters").Letters(s, within_box=True), kind, "gpqa of the last box"
    kind = F1Settings
    yield "f1", lambda s, _: _from("texts").Overlap(s), kind, "overlap of words with the label, between 0 and 1"
    yield "boxed_f1", lambda s, _: _from("texts").Overlap(s, within_box=True), kind, "f1 of the last box"
    kind = IfbenchSettings
    yield "ifbench", lambda s, _: _from("instructions").Following(s), kind, "1 when every instruction is followed"
    boxed = "ifbench of the last box"
    yield "boxed_ifbench", lambda s, _: _from("instructions").Following(s, within_box=True), kind, boxed
    yield "random", lambda s, _: _from("texts").Draw(s), Settings, "0 or 1 by the sample's seed"
    yield "boxed_random", lambda s, _: _from("texts").Draw(s), Settings, "random"
    kind = RemoteSettings
    yield "remote_rm", lambda s, _: _from("remote").Remote(s), kind, "what the server at rm_url answers"
    yield "boxed_remote_rm", lambda s, _: _from("remote").Remote(s, within_box=True), kind, "remote_rm of the last box"
    kind = FormatSettings
    yield "format", lambda s, _: _from("texts").Shape(s), kind, "1 when the response has the expected form"
    yield "boxed_format", lambda s, _: _from("texts").Shape(s), kind, "format"


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """The rewards of this plugin. They run on the event loop: most take 0.1 ms, the others wait in separate threads."""
    for name, factory, settings, summary in _offers():
        limit: dict[str, Any] = {"timeout_s": 300.0} if settings is RemoteSettings else {}
        yield RewardSpec(name, factory, settings, summary, isolation=Isolation.LOOP, **limit)
