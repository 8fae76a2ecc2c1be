"""All hooks for plugin authors, typed. Mark your functions with `@hookimpl`.

Provider hooks are plain functions, called once per process; they yield specs. Run hooks observe a run and may be
`async def`; their return value is ignored. Only `StopRun` ends the run; other exceptions are counted and logged once.
A run hook is cancelled after 30 s, and disabled after three such timeouts. Rank hooks are plain functions in the
trainer's processes; an error in one ends the run on all ranks.
*Use a role to change data, and a hook to observe.*

    SLIME_API = "1"

    @hookimpl
    def slime_rewards():
        yield RewardSpec("exact", ExactMatch, summary="1.0 when the stripped response equals the label")
"""

# mypy: disable-error-code="empty-body"

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import pluggy

from slime_core.events import (
    BeforeLogProb,
    BeforeTrainStep,
    CheckpointLoaded,
    CheckpointSaved,
    EvalEnd,
    GroupsDone,
    RolloutEnd,
    RolloutStart,
    RunEnd,
    RunFailed,
    RunStart,
    SamplesDone,
    TrainInit,
    TrainStepEnd,
    WeightsPublished,
)
from slime_core.roles import (
    SPECS,
    AdvantageSpec,
    BatchTransformSpec,
    BufferFilterSpec,
    BufferSpec,
    CheckSpec,
    CorrectionSpec,
    DataSourceSpec,
    EngineSpec,
    ForeignName,
    GeneratorSpec,
    GroupFilterSpec,
    GroupRewardSpec,
    LauncherSpec,
    LossSpec,
    RewardShaperSpec,
    RewardSpec,
    SampleFilterSpec,
    Stability,
    TrackerSpec,
    TrainerSpec,
    TransportSpec,
)

__all__ = [
    "API_VERSION",
    "HOOK_OF_EVENT",
    "HOOK_OF_RANK_EVENT",
    "NAMES_HOOK",
    "PROJECT",
    "PROVIDER_OF_ROLE",
    "ProviderHookSpecs",
    "RankHookSpecs",
    "RunHookSpecs",
    "hookimpl",
    "hookspec",
]

PROJECT = "slime"
API_VERSION = "1"
"""The value that a plugin declares as `SLIME_API`."""

hookimpl = pluggy.HookimplMarker(PROJECT)
_mark = pluggy.HookspecMarker(PROJECT)
FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


def hookspec(*, added: str, stability: Stability, deprecated: str = "") -> Callable[[FunctionT], FunctionT]:
    """Mark a hook's specification with the release that added it and its stability promise.

    Args:
        added: the release, such as "0.1".
        stability: the promise.
        deprecated: since when, until when, and the replacement, for pluggy's warning; "": not deprecated.
    """

    def mark(function: FunctionT) -> FunctionT:
        function.added, function.stability = added, stability  # type: ignore[attr-defined]  # attributes of a function, read by the reference
        return _mark(function, warn_on_impl=FutureWarning(deprecated) if deprecated else None)

    return mark


class ProviderHookSpecs:
    """Hooks that yield a plugin's choices; called once per process, in the order of `slime plugins list`."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_data_sources(self) -> Iterable[DataSourceSpec]:
        """Where prompts come from."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_generators(self) -> Iterable[GeneratorSpec]:
        """How one rollout is run."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_rewards(self) -> Iterable[RewardSpec]:
        """How one sample is scored."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_group_rewards(self) -> Iterable[GroupRewardSpec]:
        """How the samples of a group are scored together."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_group_filters(self) -> Iterable[GroupFilterSpec]:
        """Which finished groups are trained on."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_sample_filters(self) -> Iterable[SampleFilterSpec]:
        """Which samples of the kept groups are not trained on."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_buffers(self) -> Iterable[BufferSpec]:
        """What holds finished groups."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_buffer_filters(self) -> Iterable[BufferFilterSpec]:
        """Which held groups are trained on next."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_reward_shapers(self) -> Iterable[RewardShaperSpec]:
        """How rewards change before the advantage estimator."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_batch_transforms(self) -> Iterable[BatchTransformSpec]:
        """Which extra columns the trainer receives."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_advantages(self) -> Iterable[AdvantageSpec]:
        """Advantage estimators."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_losses(self) -> Iterable[LossSpec]:
        """Losses."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_corrections(self) -> Iterable[CorrectionSpec]:
        """Off-policy corrections."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_engines(self) -> Iterable[EngineSpec]:
        """What generates tokens."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_trainers(self) -> Iterable[TrainerSpec]:
        """What trains."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_transports(self) -> Iterable[TransportSpec]:
        """How weights travel from trainer to engines."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_launchers(self) -> Iterable[LauncherSpec]:
        """What starts worker processes."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_trackers(self) -> Iterable[TrackerSpec]:
        """Which services receive metrics."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_checks(self) -> Iterable[CheckSpec]:
        """Tests of `slime doctor`."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_foreign_names(self) -> Iterable[ForeignName]:
        """Other frameworks' names for keys, shown to users who type one. Not a role: all are used."""


class RunHookSpecs:
    """Observers of a run, in the driver; called at most once per tick of the scheduler."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_run_start(self, event: RunStart) -> None | Awaitable[None]:
        """Before the first rollout of this process."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_rollout_start(self, event: RolloutStart) -> None | Awaitable[None]:
        """Before the prompts of a rollout are drawn."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_samples_done(self, event: SamplesDone) -> None | Awaitable[None]:
        """After samples were scored."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_groups_done(self, event: GroupsDone) -> None | Awaitable[None]:
        """After groups were filtered."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_rollout_end(self, event: RolloutEnd) -> None | Awaitable[None]:
        """After a rollout, before its groups are trained on."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_train_step_end(self, event: TrainStepEnd) -> None | Awaitable[None]:
        """After an optimizer step."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_weights_published(self, event: WeightsPublished) -> None | Awaitable[None]:
        """After the engine switched to new weights."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_checkpoint_saved(self, event: CheckpointSaved) -> None | Awaitable[None]:
        """After a checkpoint was renamed into place."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_checkpoint_loaded(self, event: CheckpointLoaded) -> None | Awaitable[None]:
        """After a checkpoint was loaded."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_eval_end(self, event: EvalEnd) -> None | Awaitable[None]:
        """After an evaluation."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_run_end(self, event: RunEnd) -> None | Awaitable[None]:
        """After the last step, or after `StopRun`."""

    @hookspec(added="0.1", stability=Stability.STABLE)
    def slime_run_failed(self, event: RunFailed) -> None | Awaitable[None]:
        """When an error ends the run."""


class RankHookSpecs:
    """Observers of a trainer rank, in its process, with handles to the backend's objects."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_train_init(self, event: TrainInit) -> None:
        """After a rank has built model and optimizer (slime: `--custom-megatron-init-path`)."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_before_log_prob(self, event: BeforeLogProb) -> None:
        """Before a rank computes log-probs (slime: `--custom-megatron-before-log-prob-hook-path`)."""

    @hookspec(added="0.1", stability=Stability.PROVISIONAL)
    def slime_before_train_step(self, event: BeforeTrainStep) -> None:
        """Before a rank computes a step (slime: `--custom-megatron-before-train-step-hook-path`)."""


def _hooks_of(*events: type) -> dict[type, str]:
    """Map each event class to its hook: `RunStart` to `slime_run_start`."""
    return {event: "slime" + re.sub("([A-Z])", r"_\1", event.__name__).lower() for event in events}


HOOK_OF_EVENT = _hooks_of(
    *(RunStart, RolloutStart, SamplesDone, GroupsDone, RolloutEnd, TrainStepEnd, WeightsPublished),
    *(CheckpointSaved, CheckpointLoaded, EvalEnd, RunEnd, RunFailed),
)
"""Run hook of each event class."""
HOOK_OF_RANK_EVENT = _hooks_of(TrainInit, BeforeLogProb, BeforeTrainStep)
"""Rank hook of each event class."""
PROVIDER_OF_ROLE = {role: f"slime_{role}{'es' if role.endswith('s') else 's'}" for role in SPECS}
"""Provider hook of each role."""
NAMES_HOOK = "slime_foreign_names"
"""The provider hook without a role."""
