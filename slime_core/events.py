"""Events: arguments of run hooks and rank hooks, one frozen dataclass per hook. Any release may add fields.

Example:

    @hookimpl
    def slime_rollout_end(event: RolloutEnd) -> None:
        print(event.rollout_id, len(event.kept))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from slime_core.roles import RankSetup, TrainBatch
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
class RunStart:
    """The run is about to begin, or to continue after a resume."""

    run_dir: Path
    """The run folder."""
    rollout_id: int
    """The next rollout."""
    num_rollout: int
    """Rollouts of the whole run."""


@dataclass(frozen=True, slots=True)
class RolloutStart:
    """A rollout begins."""

    rollout_id: int
    """Its number, from 0."""
    weight_version: int
    """Weight version at its start."""


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
    """Groups that will enter the buffer, frozen."""
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
    """The engine serves a new weight version."""

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
    """The run ended without an error."""

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
    """The error."""


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


@dataclass(frozen=True, slots=True)
class TrainInit:
    """A trainer rank has built model and optimizer, and computed nothing yet."""

    rank: int
    """This rank."""
    world_size: int
    """Ranks of the trainer."""
    setup: RankSetup
    """Its arguments."""
    model: object
    """Handle of the backend's model; the backend's docs name its type."""
    optimizer: object
    """The backend's own optimizer."""


@dataclass(frozen=True, slots=True)
class BeforeLogProb:
    """A rank is about to compute log-probs, or values."""

    rank: int
    """This rank."""
    rollout_id: int
    """Number of the rollout."""
    weights: str
    """Which model: "actor", "ref", "teacher" or "critic"."""
    model: object
    """The backend's own model."""


@dataclass(frozen=True, slots=True)
class BeforeTrainStep:
    """A rank is about to compute an optimizer step; gradients are zero."""

    rank: int
    """This rank."""
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


RankEvent: TypeAlias = TrainInit | BeforeLogProb | BeforeTrainStep
"""Any event of a rank hook."""
