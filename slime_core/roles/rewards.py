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
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import update_wrapper
from typing import ClassVar, Protocol, get_type_hints, runtime_checkable

from slime_core.roles.spec import Settings, Setup, Spec, _RoleT
from slime_core.sample import Group, Sample
from slime_core.score import Verdict

# Reward shaper: changes the rewards of the groups that are about to be trained on, before the advantage estimator.


@dataclass(frozen=True, slots=True)
class ShapeContext:
    """What a shaper or a batch transform may know besides the groups."""

    rollout_id: int
    """Number of the rollout that trains on them, from 0."""
    rewards: Sequence[Sequence[float | None]]
    """The rewards so far, a row a group, a number a sample, None where it has none: raw, or from the shaper before."""


@runtime_checkable
class RewardShaper(Protocol):
    """A pure function of the groups of one rollout's training."""

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> Sequence[Sequence[float | None]]:
        """Return the rewards in the form of `ctx.rewards`: finite where there is one, None where there is none."""
        ...


@dataclass(frozen=True)
class RewardShaperSpec(Spec[RewardShaper]):
    """Offers a reward shaper (slime: `--custom-reward-post-process-path`); several run one after another."""

    role: ClassVar[str] = "reward_shaper"
    many: ClassVar[bool] = True


# Isolation: where a plugin's calls run, and the limits that they run under.

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
"""Sample fields that travel to a worker process unless a spec names its own: no tokens, no log-probs."""
_LEAST_MEMORY_MB = 64
"""Mebibytes under which a worker process cannot even import its plugin."""


class Isolation(enum.Enum):
    """Where calls run."""

    LOOP = "loop"
    """On the event loop, unprotected: `async def` that awaits I/O and computes little."""
    PROCESS = "process"
    """In a worker process that is killed and replaced at its time or memory limit; `def` without a word gets it."""


@dataclass(frozen=True)
class CallSpec(Spec[_RoleT]):
    """Base of the roles whose calls can be isolated."""

    many: ClassVar[bool] = True

    timeout_s: float = 30.0
    """Seconds after which a call is given up, its wait for a free place not counted; retryable."""
    isolation: Isolation | None = None
    """Where calls run; None: `async def` on the loop, `def` in a process."""
    max_concurrency: int | None = None
    """Calls at once; None: without limit on the loop, one a core in processes."""
    memory_mb: int = 1024
    """Mebibytes that one worker process may use, the processes that it starts included."""
    fields: Collection[str] = LIGHT_FIELDS
    """Fields of the sample that it reads; in a process, the others are not there."""

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
    """Whether calling this gives a coroutine: an `async def`, or an object or a class with `async def __call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return inspect.iscoroutinefunction(inspect.unwrap(function.__call__))
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def declared_isolation(spec: CallSpec[object]) -> Isolation | None:
    """Where calls will run, as far as can be told without calling the factory; None: as its object turns out.

    A spec says so itself, wraps a function or a class of known kind, or has a factory with a return type.
    """
    if spec.isolation is not None:
        return spec.isolation
    made: object = inspect.unwrap(spec.factory)
    if made is spec.factory:
        try:
            made = get_type_hints(spec.factory).get("return")
        except (NameError, TypeError):
            return None
        if not isinstance(made, type) or "__call__" not in dir(made) or made is object:
            return None
    return Isolation.LOOP if is_async(made) else Isolation.PROCESS


def describe_isolation(spec: CallSpec[object]) -> str:
    """How calls are isolated, in a few words: "loop, unprotected", "process, 30 s, 1024 MiB"."""
    texts = {
        Isolation.LOOP: "loop, unprotected",
        Isolation.PROCESS: f"process, {spec.timeout_s:g} s, {spec.memory_mb} MiB",
    }
    isolation = declared_isolation(spec)
    if isolation is not None:
        return texts[isolation]
    return f"{texts[Isolation.LOOP]} if it is async def; else {texts[Isolation.PROCESS]}"


# Functions written for another framework: recognised by the names of their parameters.

CALLED_AS: Mapping[str, tuple[str, str]] = {
    "reward": ("sample", "ctx"),
    "group_reward": ("samples", "ctx"),
    "generator": ("sample", "ctx"),
}
"""Parameters of the roles that are one function."""
_FOREIGN = {
    *("completions", "completion", "responses", "response", "solution_str", "solution_strs", "queries", "prompts"),
    *("data_source", "extra_info", "answer", "answers", "ground_truth", "labels", "solution"),
}
"""Parameters of reward functions of TRL, verl, OpenRLHF and verifiers."""
_COMPAT = {"reward": "rm", "group_reward": "group_rm", "generator": "generate"}
"""Choices of slime-compat that call slime's own functions."""


def misfit(function: object, name: str, role: str) -> str | None:
    """Return why a function does not fit a role that is one function; None where it fits, or has no signature."""
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
    """What a reward may know besides the sample."""

    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether this is for evaluation."""
    seed: int
    """A seed of this sample's own, for rewards that draw."""


@runtime_checkable
class Reward(Protocol):
    """Scores a sample without changing it; raising makes the sample Unscored."""

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return `Score`, `Unscored` or `NotApplicable`. A float, a bool or a scalar counts as a `Score`."""
        ...


@runtime_checkable
class SyncReward(Protocol):
    """The same as a plain function; the core isolates it, and everybody else sees a `Reward`."""

    def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return `Score`, `Unscored` or `NotApplicable`."""
        ...


@runtime_checkable
class ChecksLabels(Protocol):
    """A reward that can tell from a row alone whether any response can earn full marks; optional.

    `slime plan` and the start of a run ask it about every row, so that a label which cannot be scored is found before
    training. Pure and fast: it reads the prompt, the label and the metadata, and runs where the reward runs.

    Example:

        def exact(sample, ctx): ...
        exact.check_label = lambda sample: None if isinstance(sample.label, str) else "the label is not a text"
    """

    def check_label(self, sample: Sample) -> str | None:
        """Return None if the gold answer, given as a response, earns full marks; else why not, in a few words.

        Args:
            sample: pending; `label` is None where the run reads no labels.
        """
        ...


@dataclass(frozen=True)
class RewardSpec(CallSpec[Reward | SyncReward]):
    """Offers a reward."""

    role: ClassVar[str] = "reward"

    each_sample: bool = False
    """Whether it is asked about each sample; else once an execution of a generator, about the one marked by
    `metadata["main"]`, else the last."""
    models: Callable[[Settings], Collection[str]] = lambda settings: ()
    """Which models of the run it asks with these settings, by their names in `served_models`: `setup.models`."""

    @classmethod
    def from_function(
        cls,
        name: str,
        function: Callable[[Sample, RewardContext], Verdict | float | Coroutine[object, object, Verdict | float]],
        summary: str = "",
    ) -> "RewardSpec":
        """A spec for a plain `def` or `async def` without settings.

        Raises:
            TypeError: it cannot be called as a reward; the text says what to pass a function of TRL, verl and others.
        """
        if (why := misfit(function, getattr(function, "__name__", name), "reward")) is not None:
            raise TypeError(why)

        def factory(settings: Settings, setup: Setup) -> Reward | SyncReward:
            return function  # type: ignore[return-value]  # parameter names are the caller's own

        # The origin that is printed is the function's, not this factory's.
        return cls(name, update_wrapper(factory, function, updated=()), summary=summary)


# Group reward: scores the finished samples of one group together: rankings, majority votes, pairwise judges.


@runtime_checkable
class GroupReward(Protocol):
    """Scores a group without changing it; raising makes all its samples Unscored."""

    async def __call__(self, samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        """Return one verdict a sample, in their order; `ctx.seed` is the group's own."""
        ...


@runtime_checkable
class SyncGroupReward(Protocol):
    """The same as a plain function; the core isolates it, and everybody else sees a `GroupReward`."""

    def __call__(self, samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        """Return one verdict a sample, in their order."""
        ...


@dataclass(frozen=True)
class GroupRewardSpec(CallSpec[GroupReward | SyncGroupReward]):
    """Offers a group reward; its verdicts join the weighted sum of the rewards (slime: `--group-rm`)."""

    role: ClassVar[str] = "group_reward"

    each_sample: bool = False
    """Whether it sees all samples; else one of each execution."""
