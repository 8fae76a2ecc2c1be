"""THE page a plugin author reads: every hook, typed. Mark your functions with `@hookimpl`.

Provider hooks are plain functions, called once per process; they yield specs. Run hooks watch a run: they may be
`async def`, their return value is ignored, and an exception is logged once, counted, and never kills the run, unless
it is `StopRun`. *Whatever changes data is a role; whatever watches is a hook.*

    SLIME_API = "1"

    @hookimpl
    def slime_rewards():
        yield RewardSpec("exact", ExactMatch, summary="1.0 when the stripped response equals the label")
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pluggy

from slime_core.roles import (
    AdvantageSpec,
    BufferFilterSpec,
    BufferSpec,
    DataSourceSpec,
    EngineSpec,
    GeneratorSpec,
    GroupFilterSpec,
    LauncherSpec,
    LossSpec,
    RewardSpec,
    TrackerSpec,
    TrainerSpec,
)
from slime_core.sample import Group, GroupId, Sample

__all__ = [
    "API_VERSION",
    "HOOK_OF_EVENT",
    "PROJECT",
    "PROVIDER_OF_ROLE",
    "CheckpointLoaded",
    "CheckpointSaved",
    "EvalEnd",
    "Event",
    "GroupsDone",
    "ProviderHooks",
    "RolloutEnd",
    "RolloutStart",
    "RunEnd",
    "RunFailed",
    "RunHooks",
    "RunStart",
    "SamplesDone",
    "TrainStepEnd",
    "WeightsPublished",
    "hookimpl",
    "hookspec",
]

PROJECT = "slime"
API_VERSION = "1"
"""What a plugin declares as `SLIME_API`."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class RunStart:
    """The run is about to begin, or to go on after a resume."""

    run_dir: Path
    """The run folder."""
    rollout_id: int
    """The first rollout to come."""
    num_rollout: int
    """Rollouts of the whole run."""


@dataclass(frozen=True, slots=True)
class RolloutStart:
    """A rollout begins."""

    rollout_id: int
    """Its number, from 0."""
    weight_version: int
    """Version of the weights it starts on."""


@dataclass(frozen=True, slots=True)
class SamplesDone:
    """Samples were generated and scored; at most one event per tick of the scheduler."""

    rollout_id: int
    """Number of the rollout."""
    samples: Sequence[Sample]
    """The finished samples; do not change them."""
    evaluation: bool
    """Whether they are for evaluation."""


@dataclass(frozen=True, slots=True)
class GroupsDone:
    """Groups are complete and filtered; at most one event per tick of the scheduler."""

    rollout_id: int
    """Number of the rollout."""
    kept: Sequence[Group]
    """Groups on their way to the buffer, frozen."""
    dropped: Mapping[GroupId, str]
    """Reason of each dropped group."""


@dataclass(frozen=True, slots=True)
class RolloutEnd:
    """A rollout is over."""

    rollout_id: int
    """Number of the rollout."""
    kept: Sequence[Group]
    """All groups that were kept."""
    dropped: Sequence[Group]
    """All groups that were dropped."""
    metrics: Mapping[str, float]
    """The rollout's metrics."""


@dataclass(frozen=True, slots=True)
class TrainStepEnd:
    """An optimizer step is over."""

    rollout_id: int
    """Number of the rollout that fed it."""
    step: int
    """Optimizer steps done before this one."""
    metrics: Mapping[str, float]
    """The step's metrics."""


@dataclass(frozen=True, slots=True)
class WeightsPublished:
    """The engine serves a new version."""

    version: int
    """The version."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is complete on disk."""

    path: Path
    """Its directory."""
    rollout_id: int
    """Rollouts it contains."""


@dataclass(frozen=True, slots=True)
class CheckpointLoaded:
    """The run continues from a checkpoint."""

    path: Path
    """Its directory."""
    rollout_id: int
    """Rollouts it contains."""


@dataclass(frozen=True, slots=True)
class EvalEnd:
    """An evaluation is over."""

    rollout_id: int
    """Rollouts done before it."""
    samples: Mapping[str, Sequence[Sample]]
    """Its samples by data set."""
    metrics: Mapping[str, float]
    """Its metrics."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The run is over, in good order."""

    run_dir: Path
    """The run folder."""
    rollout_id: int
    """Rollouts done."""


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run ends with an error."""

    run_dir: Path
    """The run folder."""
    error: BaseException
    """What ended it."""


Event: TypeAlias = (
    RunStart
    | RolloutStart
    | SamplesDone
    | GroupsDone
    | RolloutEnd
    | TrainStepEnd
    | WeightsPublished
    | CheckpointSaved
    | CheckpointLoaded
    | EvalEnd
    | RunEnd
    | RunFailed
)
"""Any event of a run hook."""


class ProviderHooks:
    """Called once per process, in the order of `slime plugins list`. All added in 0.1; provisional until 1.0."""

    @hookspec
    def slime_data_sources(self) -> Iterable[DataSourceSpec]:
        """Where prompts come from."""
        raise NotImplementedError

    @hookspec
    def slime_generators(self) -> Iterable[GeneratorSpec]:
        """How one rollout is run."""
        raise NotImplementedError

    @hookspec
    def slime_rewards(self) -> Iterable[RewardSpec]:
        """How one sample is scored."""
        raise NotImplementedError

    @hookspec
    def slime_group_filters(self) -> Iterable[GroupFilterSpec]:
        """Which finished groups are trained on."""
        raise NotImplementedError

    @hookspec
    def slime_buffers(self) -> Iterable[BufferSpec]:
        """What holds finished groups."""
        raise NotImplementedError

    @hookspec
    def slime_buffer_filters(self) -> Iterable[BufferFilterSpec]:
        """Which held groups are trained on next."""
        raise NotImplementedError

    @hookspec
    def slime_advantages(self) -> Iterable[AdvantageSpec]:
        """Advantage estimators."""
        raise NotImplementedError

    @hookspec
    def slime_losses(self) -> Iterable[LossSpec]:
        """Losses."""
        raise NotImplementedError

    @hookspec
    def slime_engines(self) -> Iterable[EngineSpec]:
        """What generates tokens."""
        raise NotImplementedError

    @hookspec
    def slime_trainers(self) -> Iterable[TrainerSpec]:
        """What trains."""
        raise NotImplementedError

    @hookspec
    def slime_launchers(self) -> Iterable[LauncherSpec]:
        """What starts worker processes."""
        raise NotImplementedError

    @hookspec
    def slime_trackers(self) -> Iterable[TrackerSpec]:
        """Where else metrics go."""
        raise NotImplementedError


class RunHooks:
    """Observers of a run, in the driver. All added in 0.1; provisional until 1.0."""

    @hookspec
    def slime_run_start(self, event: RunStart) -> None | Awaitable[None]:
        """Before the first rollout of this process."""

    @hookspec
    def slime_rollout_start(self, event: RolloutStart) -> None | Awaitable[None]:
        """Before the prompts of a rollout are drawn."""

    @hookspec
    def slime_samples_done(self, event: SamplesDone) -> None | Awaitable[None]:
        """After samples were scored."""

    @hookspec
    def slime_groups_done(self, event: GroupsDone) -> None | Awaitable[None]:
        """After groups were filtered."""

    @hookspec
    def slime_rollout_end(self, event: RolloutEnd) -> None | Awaitable[None]:
        """After a rollout, before its groups are trained on."""

    @hookspec
    def slime_train_step_end(self, event: TrainStepEnd) -> None | Awaitable[None]:
        """After an optimizer step."""

    @hookspec
    def slime_weights_published(self, event: WeightsPublished) -> None | Awaitable[None]:
        """After the engine switched to new weights."""

    @hookspec
    def slime_checkpoint_saved(self, event: CheckpointSaved) -> None | Awaitable[None]:
        """After a checkpoint was renamed into place."""

    @hookspec
    def slime_checkpoint_loaded(self, event: CheckpointLoaded) -> None | Awaitable[None]:
        """After a checkpoint was loaded."""

    @hookspec
    def slime_eval_end(self, event: EvalEnd) -> None | Awaitable[None]:
        """After an evaluation."""

    @hookspec
    def slime_run_end(self, event: RunEnd) -> None | Awaitable[None]:
        """After the last step, or after `StopRun`."""

    @hookspec
    def slime_run_failed(self, event: RunFailed) -> None | Awaitable[None]:
        """When an error ends the run."""


HOOK_OF_EVENT: dict[type, str] = {
    RunStart: "slime_run_start",
    RolloutStart: "slime_rollout_start",
    SamplesDone: "slime_samples_done",
    GroupsDone: "slime_groups_done",
    RolloutEnd: "slime_rollout_end",
    TrainStepEnd: "slime_train_step_end",
    WeightsPublished: "slime_weights_published",
    CheckpointSaved: "slime_checkpoint_saved",
    CheckpointLoaded: "slime_checkpoint_loaded",
    EvalEnd: "slime_eval_end",
    RunEnd: "slime_run_end",
    RunFailed: "slime_run_failed",
}
"""Which hook an event goes to."""

PROVIDER_OF_ROLE: dict[str, str] = {
    "data_source": "slime_data_sources",
    "generator": "slime_generators",
    "reward": "slime_rewards",
    "group_filter": "slime_group_filters",
    "buffer": "slime_buffers",
    "buffer_filter": "slime_buffer_filters",
    "advantage": "slime_advantages",
    "loss": "slime_losses",
    "engine": "slime_engines",
    "trainer": "slime_trainers",
    "launcher": "slime_launchers",
    "tracker": "slime_trackers",
}
"""Which hook provides a role."""
