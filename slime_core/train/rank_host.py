"""RankHost: what a launcher starts for a trainer: one rank, built from its plugin, behind the driver's calls.

It rebuilds the plugin from entry points in its own process, so nothing but plain data travels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from slime_core.catalog import discover_in_worker
from slime_core.errors import PluginError
from slime_core.roles import (
    Choice,
    MeasuresLoss,
    RankSetup,
    StepResult,
    TrainBatch,
    TrainerFactory,
    TrainerRank,
    WeightChannel,
    WeightSlot,
)
from slime_core.train.shared_buffer import write_version


class RankHost:
    """One rank of the trainer's worker group; every method answers one call of the driver."""

    def __init__(self, rank: int, size: int, *, trainer: Choice, setup: RankSetup) -> None:
        """Find the trainer's plugin and build the rank."""
        spec = discover_in_worker(setup.plugins, f"trainer {rank}").find(trainer.role, trainer.name).spec
        self._is_first = rank == 0
        self._rank: TrainerRank = cast(TrainerFactory, spec.factory)(rank, size, setup)

    def weight_slots(self) -> Sequence[WeightSlot]:
        """Layout of the weights."""
        return self._rank.weight_slots()

    def train_step(self, batch: TrainBatch) -> StepResult:
        """One optimizer step."""
        return self._rank.train_step(batch)

    def measure(self, batch: TrainBatch) -> StepResult:
        """The loss of a batch that is not trained on.

        Raises:
            PluginError: the trainer cannot tell it.
        """
        if not isinstance(self._rank, MeasuresLoss):
            raise PluginError(
                f"trainer {type(self._rank).__name__} cannot evaluate a loss (it has no measure): leave out "
                "eval_prompt_data"
            )
        return self._rank.measure(batch)

    def publish(self, target: tuple[WeightChannel, int]) -> None:
        """Rank 0 writes the current weights as a version; the others only gather with it."""
        channel, version = target
        buckets = self._rank.weights()
        if self._is_first:
            write_version(channel, version, buckets)

    def save(self, directory: Path) -> None:
        """Write model and optimizer."""
        self._rank.save(directory)

    def load(self, directory: Path) -> None:
        """Read model and optimizer."""
        self._rank.load(directory)
