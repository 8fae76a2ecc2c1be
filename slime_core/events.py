"""Events of run hooks and rank hooks. `RolloutEnd` is the argument of the hook `slime_rollout_end`, and so on.

Any release may add fields.

Example:

    @hookimpl
    def slime_rollout_end(event: RolloutEnd) -> None:
        print(event.rollout_id, len(event.kept))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from slime_core.roles import RankSetup, Stability, TrainBatch
from slime_core.sample import Group, GroupId, Sample

__all__ = [
    "BeforeLogProb",
    "BeforeTrainStep",
    "CheckpointLoaded",
    "CheckpointSaved",
    "EvalEnd",
    "Event",
    "GroupsDone",
    "RankEvent",
    "RolloutEnd",
    "RolloutStart",
    "RunEnd",
    "RunFailed",
    "RunStart",
    "SamplesDone",
    "TrainInit",
    "TrainStepEnd",
    "WeightsPublished",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Observed in the driver; at most one call of a hook per pass of the scheduler's loop."""

    added: ClassVar[str] = "0.1"
    """The release that added the hook."""
    stability: ClassVar[Stability] = Stability.STABLE


@dataclass(frozen=True, slots=True)
class RunStart(Event):
    """Before the first rollout of this process."""

    run_dir: Path
    """The run folder."""
    rollout_id: int
    """The next rollout."""
    num_rollout: int
    """Rollouts of the whole run."""


@dataclass(frozen=True, slots=True)
class RolloutStart(Event):
    """Before the prompts of a rollout are drawn."""

    rollout_id: int
    """Its number, from 0."""
    weight_version: int
    """Weight version at its start."""


@dataclass(frozen=True, slots=True)
class SamplesDone(Event):
    """After samples were generated and scored."""

    rollout_id: int
    """Number of the rollout."""
    samples: Sequence[Sample]
    """The finished samples; do not change them."""
    evaluation: bool
    """Whether they are for evaluation."""


@dataclass(frozen=True, slots=True)
class GroupsDone(Event):
    """After complete groups were filtered."""

    rollout_id: int
    """Number of the rollout."""
    kept: Sequence[Group]
    """Groups that will enter the buffer, frozen."""
    dropped: Mapping[GroupId, str]
    """Reason of each dropped group."""


@dataclass(frozen=True, slots=True)
class RolloutEnd(Event):
    """After a rollout, before its groups are trained on."""

    rollout_id: int
    """Number of the rollout."""
    kept: Sequence[Group]
    """All groups that were kept."""
    dropped: Sequence[Group]
    """All groups that were dropped."""
    metrics: Mapping[str, float]
    """The rollout's metrics."""


@dataclass(frozen=True, slots=True)
class TrainStepEnd(Event):
    """After an optimizer step."""

    rollout_id: int
    """Number of the rollout that fed it."""
    step: int
    """Optimizer steps done before this one."""
    metrics: Mapping[str, float]
    """The step's metrics."""


@dataclass(frozen=True, slots=True)
class WeightsPublished(Event):
    """After the engine switched to new weights."""

    version: int
    """The version."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """After a checkpoint was renamed into place."""

    path: Path
    """Its directory."""
    rollout_id: int
    """Rollouts it contains."""


@dataclass(frozen=True, slots=True)
class CheckpointLoaded(Event):
    """After a checkpoint was loaded."""

    path: Path
    """Its directory."""
    rollout_id: int
    """Rollouts it contains."""


@dataclass(frozen=True, slots=True)
class EvalEnd(Event):
    """After an evaluation."""

    rollout_id: int
    """Rollouts done before it."""
    samples: Mapping[str, Sequence[Sample]]
    """Its samples by data set."""
    metrics: Mapping[str, float]
    """Its metrics."""


@dataclass(frozen=True, slots=True)
class RunEnd(Event):
    """After the last step, or after `StopRun`."""

    run_dir: Path
    """The run folder."""
    rollout_id: int
    """Rollouts done."""


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """When an error ends the run."""

    run_dir: Path
    """The run folder."""
    error: BaseException
    """The error."""


@dataclass(frozen=True, slots=True)
class RankEvent:
    """Observed in the trainer's ranks by plain functions, with handles to the backend's objects."""

    added: ClassVar[str] = "0.1"
    stability: ClassVar[Stability] = Stability.PROVISIONAL
    rank: int
    """The rank that observes it."""


@dataclass(frozen=True, slots=True)
class TrainInit(RankEvent):
    """After a rank has built model and optimizer (slime: `--custom-megatron-init-path`)."""

    world_size: int
    """Ranks of the trainer."""
    setup: RankSetup
    """Its arguments."""
    model: object
    """Handle of the backend's model; the backend's docs name its type."""
    optimizer: object
    """The backend's own optimizer."""


@dataclass(frozen=True, slots=True)
class BeforeLogProb(RankEvent):
    """Before a rank computes log-probs or values (slime: `--custom-megatron-before-log-prob-hook-path`)."""

    rollout_id: int
    """Number of the rollout."""
    weights: str
    """Which model: "actor", "ref", "teacher" or "critic"."""
    model: object
    """The backend's own model."""


@dataclass(frozen=True, slots=True)
class BeforeTrainStep(RankEvent):
    """Before a rank computes a step, at zero gradients (slime: `--custom-megatron-before-train-step-hook-path`)."""

    rollout_id: int
    """Number of the rollout that feeds it."""
    step: int
    """Optimizer steps done before this one."""
    batch: TrainBatch
    """The rank's share."""
    model: object
    """The backend's own model."""
    optimizer: object
    """The backend's own optimizer."""
