"""The roles that score samples: reward, group reward and reward shaper, and where their calls run.

A reward scores one finished sample, a group reward all samples of a group. A shaper changes rewards just before the
advantage estimator; the sample keeps the raw reward.

Example:

    def exact(sample, ctx):                         # `def`: in a worker process; `async def`: on the event loop
        return Score(float(sample.response.strip() == sample.label))

    RewardSpec.from_function("exact", exact, summary="1.0 when the stripped response equals the label")
"""

import contextlib
import enum
import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol, Self, get_type_hints, runtime_checkable

from slime_core.roles.spec import Settings, Spec, Stability, _RoleT
from slime_core.sample import Group, Sample
from slime_core.score import Verdict

# Reward shaper: changes the rewards of the groups to train on, before the advantage estimator.


@dataclass(frozen=True, slots=True)
class ShapeContext:
    """What a shaper or a batch transform receives in addition to the groups."""

    rollout_id: int
    """Number of the rollout that trains on them, from 0."""
    rewards: Sequence[Sequence[float | None]]
    """Current rewards, one row per group, one number per sample: raw, or from the previous shaper. None: no reward."""


@runtime_checkable
class RewardShaper(Protocol):
    """A pure function of the groups that one rollout trains on."""

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> Sequence[Sequence[float | None]]:
        """Return rewards in the shape of `ctx.rewards`: finite where it has a number, None where it has None."""


@dataclass(frozen=True)
class RewardShaperSpec(Spec[RewardShaper]):
    """Offers a reward shaper (slime: `--custom-reward-post-process-path`); several run one after another."""

    role: ClassVar[str] = "reward_shaper"
    many: ClassVar[bool] = True


# Isolation: where a plugin's calls run, and under which limits.

_SAMPLE_FIELDS = frozenset(item.name for item in fields(Sample))
LIGHT_FIELDS = (
    "group_index",
    "index",
    "rollout_id",
    "source",
    "prompt",
    "response",
    "response_length",
    "label",
    "status",
    "metadata",
    "custom_rm_path",
)
"""Default sample fields to send to a worker process: no tokens, no log-probs."""
_LEAST_MEMORY_MB = 64
"""Mebibytes below which a worker process cannot import its plugin."""


class Isolation(enum.Enum):
    """Where calls run."""

    LOOP = "loop"
    """On the event loop, unprotected: `async def` that awaits I/O and computes little."""
    PROCESS = "process"
    """In a worker process that is killed and replaced at its time or memory limit; the default of `def`."""


@dataclass(frozen=True)
class CallSpec(Spec[_RoleT]):
    """Base of the roles whose calls can be isolated."""

    many: ClassVar[bool] = True

    timeout_s: float = 30.0
    """Timeout of a call in seconds, without its wait in the queue; retryable."""
    isolation: Isolation | None = None
    """Where calls run; None: `async def` on the loop, `def` in a process."""
    max_concurrency: int | None = None
    """Most concurrent calls; None: no limit on the loop, one per core in processes."""
    memory_mb: int = 1024
    """Memory limit in MiB of one worker process, including its child processes."""
    fields: Collection[str] = LIGHT_FIELDS
    """Fields of the sample that it reads; a worker process receives no others."""
    each_sample: bool = False
    """Whether it scores every sample. If not, it scores one per generator call: the one with
    `metadata["main"]`, else the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"{type(self).__name__} {self.name!r}"
        isolation: object = self.isolation
        if not (isolation is None or isinstance(isolation, Isolation)):
            choices = ", ".join(str(each) for each in Isolation)
            raise TypeError(f"{what}: isolation is {isolation!r}; expected one of {choices}, or None")
        if not self.timeout_s > 0:
            raise ValueError(f"{what}: timeout_s = {self.timeout_s}; expected seconds, more than 0")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ValueError(f"{what}: max_concurrency = {self.max_concurrency}; expected 1 or more, or None")
        if self.memory_mb < _LEAST_MEMORY_MB:
            raise ValueError(f"{what}: memory_mb = {self.memory_mb}; a worker needs at least {_LEAST_MEMORY_MB}")
        given: object = self.fields
        if isinstance(given, str) or (unknown := sorted(set(self.fields) - _SAMPLE_FIELDS)):
            named = repr(given) if isinstance(given, str) else ", ".join(unknown)
            raise ValueError(f"{what}: fields: a Sample has no {named}; it has {', '.join(sorted(_SAMPLE_FIELDS))}")


def is_async(function: object) -> bool:
    """Whether a call returns a coroutine: an `async def`, or an object or class with `async def __call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return inspect.iscoroutinefunction(inspect.unwrap(function.__call__))
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def declared_isolation(spec: CallSpec[object]) -> Isolation | None:
    """Where calls will run, determined without calling the factory; None: unknown until then.

    Read from the spec's `isolation`, its wrapped function or class, or its factory's return annotation.
    """
    if spec.isolation is not None:
        return spec.isolation
    made: object = inspect.unwrap(spec.factory)
    if made is spec.factory and not isinstance(made, type):
        try:
            made = get_type_hints(spec.factory).get("return")
        except (NameError, TypeError):
            return None
        if not isinstance(made, type) or "__call__" not in dir(made) or made in (Reward, GroupReward, object):
            return None
    return Isolation.LOOP if is_async(made) else Isolation.PROCESS


def describe_isolation(spec: CallSpec[object]) -> str:
    """Short description of the isolation: "loop, unprotected", "process, 30 s, 1024 MiB"."""
    texts = {
        Isolation.LOOP: "loop, unprotected",
        Isolation.PROCESS: f"process, {spec.timeout_s:g} s, {spec.memory_mb} MiB",
    }
    isolation = declared_isolation(spec)
    if isolation is not None:
        return texts[isolation]
    return f"{texts[Isolation.LOOP]} if it is async def; else {texts[Isolation.PROCESS]}"


# Functions written for another framework, recognised by their parameter names.

CALLED_AS: Mapping[str, tuple[str, str]] = {
    "reward": ("sample", "ctx"),
    "group_reward": ("samples", "ctx"),
    "generator": ("sample", "ctx"),
}
"""Parameters of each role that is a single function."""
_FOREIGN = {
    *("completions", "completion", "responses", "response", "solution_str", "solution_strs", "queries", "prompts"),
    *("data_source", "extra_info", "answer", "answers", "ground_truth", "labels", "solution"),
}
"""Parameters of reward functions of TRL, verl, OpenRLHF and verifiers."""
_COMPAT = {"reward": "rm", "group_reward": "group_rm", "generator": "generate"}
"""Choices of slime-compat that call slime's own functions."""


def signature_error(function: object, name: str, role: str) -> str | None:
    """Return why a function does not fit a role that is a single function; None if it fits or has no signature."""
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]  # what is no callable raises
    except (TypeError, ValueError):
        return None
    named = [each for each in signature.parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    required = [each.name for each in named if each.default is inspect.Parameter.empty]
    from_slime, foreign = required[:1] == ["args"], not _FOREIGN.isdisjoint(required)
    if not from_slime and not foreign:
        with contextlib.suppress(TypeError):
            signature.bind(*CALLED_AS[role])
            return None
    taken = ", ".join(CALLED_AS[role])
    called = f"{'async def' if role == 'generator' else 'def'} {name.rpartition('.')[2]}({taken})"
    why = f"{name}{signature} cannot be called as `{called}`"
    if from_slime:
        return f'{why}: it is for slime. Choose "{_COMPAT[role]}" of slime-compat, with its path in the settings'
    if not foreign or role == "generator":
        return why
    return (
        f"{why}: it is for another framework. Write a function of ({taken}) that calls it with sample.response, "
        "sample.label or what else it takes (docs/migrate.md)"
    )


# Reward: scores one finished sample.


@dataclass(frozen=True, slots=True)
class RewardContext:
    """What a reward receives in addition to the sample."""

    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether this is for evaluation."""
    seed: int
    """The sample's own seed, for rewards that use randomness."""


@runtime_checkable
class Reward(Protocol):
    """Scores a sample without changing it, as `def` or `async def`. An exception makes the sample Unscored."""

    def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict | Awaitable[Verdict]:
        """Return `Score`, `Unscored` or `NotApplicable`. A float, a bool or a scalar counts as a `Score`."""


@runtime_checkable
class ChecksLabels(Protocol):
    """Optional: a reward that can check from a row alone whether a response can earn full marks.

    `slime plan` and the start of a run check every row, to find labels that cannot be scored before training. Pure
    and fast; reads prompt, label and metadata, and runs where the reward runs.

    Example:

        def exact(sample, ctx): ...
        exact.check_label = lambda sample: None if isinstance(sample.label, str) else "the label is not a text"
    """

    def check_label(self, sample: Sample) -> str | None:
        """Return None if the gold answer, as a response, earns full marks; else a short reason.

        Args:
            sample: pending; `label` is None if the run reads no labels.
        """


@dataclass(frozen=True)
class RewardSpec(CallSpec[Reward]):
    """Offers a reward: how one sample is scored."""

    role: ClassVar[str] = "reward"
    stability: ClassVar[Stability] = Stability.STABLE

    models: Callable[[Settings], Collection[str]] = lambda settings: ()
    """Names in `served_models` of the models that it calls with these settings, through `setup.models`."""

    @classmethod
    def from_function(
        cls,
        name: str,
        function: Callable[[Sample, RewardContext], Verdict | float | Coroutine[object, object, Verdict | float]],
        summary: str = "",
    ) -> Self:
        """A spec of a plain `def` or `async def` without settings.

        Raises:
            TypeError: it cannot be called as a reward; the message helps with functions of TRL, verl and others.
        """
        if (why := signature_error(function, getattr(function, "__name__", name), "reward")) is not None:
            raise TypeError(why)
        return super().from_function(name, function, summary)


# Group reward: scores the finished samples of one group together: rankings, majority votes, pairwise judges.


@runtime_checkable
class GroupReward(Protocol):
    """Scores a group without changing it, as `def` or `async def`. An exception makes all its samples Unscored."""

    def __call__(
        self, samples: Sequence[Sample], ctx: RewardContext
    ) -> Sequence[Verdict] | Awaitable[Sequence[Verdict]]:
        """Return one verdict per sample, in order; `ctx.seed` is the group's own."""


@dataclass(frozen=True)
class GroupRewardSpec(CallSpec[GroupReward]):
    """Offers a group reward; its verdicts join the weighted sum of the rewards (slime: `--group-rm`)."""

    role: ClassVar[str] = "group_reward"
    stability: ClassVar[Stability] = Stability.STABLE
