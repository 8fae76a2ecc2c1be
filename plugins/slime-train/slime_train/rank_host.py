"""RankHost: the worker that a launcher starts for each rank of a trainer; it answers the driver's calls.

It rebuilds the plugin from entry points in this process, so calls carry plain data only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from slime_core.catalog import discover_in_worker
from slime_core.errors import ContractError, PluginError
from slime_core.roles import (
    Choice,
    ClosesRank,
    MeasuresLoss,
    MemoryTags,
    Place,
    PreparesRollout,
    RankReleasesMemory,
    RankSetup,
    SavesAsync,
    StepResult,
    TracksVersions,
    TrainBatch,
    TrainerRank,
    TrainerSpec,
    WeightChannel,
    WeightSender,
    WeightSlot,
)

LOOPBACK = "127.0.0.1"


class RankHost:
    """One rank of the trainer's worker group; every method answers one call of the driver."""

    def __init__(self, rank: int, size: int, *, trainer: Choice, setup: RankSetup, place: Place | None = None) -> None:
        """Find the trainer's plugin and build the rank; ranks of other machines meet at the first one's."""
        if place is not None and (place.nodes > 1 or place.address != LOOPBACK):
            setup = replace(setup, rendezvous=f"tcp://{place.rendezvous}")
        spec = discover_in_worker(setup.plugins, f"trainer {rank}").find(TrainerSpec, trainer.name).spec
        self._number, self._size, self._plugin = rank, size, trainer.plugin
        self._channel: WeightChannel | None = None
        self._sender: WeightSender | None = None
        self._batches: Sequence[TrainBatch] = ()
        self._rank: TrainerRank = spec.factory(rank, size, setup)

    def weight_slots(self) -> Sequence[WeightSlot]:
        """Name, shape and dtype of every weight."""
        return self._rank.weight_slots()

    def connect(self, channel: WeightChannel) -> None:
        """Open this rank's end of a channel."""
        self._channel, self._sender = channel, channel.sender(self._number, self._size)

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        """Store the rank's shares of a rollout's steps, and pass them to a trainer that has `begin_rollout`."""
        self._batches = batches
        if isinstance(self._rank, PreparesRollout):
            self._rank.begin_rollout(batches)

    def train_step(self, step: int) -> StepResult:
        """One optimizer step of the rollout that has begun."""
        return self._rank.train_step(self._batches[step])

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

    def publish(self, target: tuple[int, Sequence[int]]) -> None:
        """Send the current weights as a version, and wait for the engines of the given numbers.

        Every rank iterates over all buckets, even if another rank sends: each gather needs all ranks.
        """
        assert self._channel is not None, "publish comes after connect"
        assert self._sender is not None, "publish comes after connect"
        version, engines = target
        weights = self._rank.weights()
        slots, whole = self._channel.slots, self._number == 0
        buckets = checked_buckets(slots, weights, plugin=self._plugin, whole=whole)
        try:
            self._sender.send(version, buckets, engines)
            for _ in buckets:
                pass
        finally:
            for _ in weights:
                pass
        if isinstance(self._rank, TracksVersions):
            self._rank.published(version)

    def release(self, tags: MemoryTags) -> None:
        """Release the memory of these tags."""
        self._releasing.release(tags)

    def resume(self, tags: MemoryTags) -> None:
        """Take back the memory of these tags."""
        self._releasing.resume(tags)

    @property
    def _releasing(self) -> RankReleasesMemory:
        if not isinstance(self._rank, RankReleasesMemory):
            raise PluginError(
                f"plugin {self._plugin}: its trainer's spec says what ranks release, but {type(self._rank).__name__} "
                "has no release and resume (slime_core.roles.RankReleasesMemory)"
            )
        return self._rank

    def save(self, target: tuple[Path, bool]) -> None:
        """Write model and optimizer into a directory, with or without the model in HF format."""
        directory, hf = target
        self._rank.save(directory, hf=hf)

    def finish_save(self, wait: bool) -> bool:
        """Whether the files of the last `save` are complete; with `wait`, waits until they are."""
        return self._rank.finish_save(wait=wait) if isinstance(self._rank, SavesAsync) else True

    def load(self, directory: Path) -> None:
        """Read model and optimizer."""
        self._rank.load(directory)

    def close(self) -> None:
        """Close this rank's end of the channel, and the rank where it has something to close."""
        try:
            if self._sender is not None:
                self._sender.close()
        finally:
            if isinstance(self._rank, ClosesRank):
                self._rank.close()


def checked_buckets(
    slots: Sequence[WeightSlot], buckets: Iterator[tuple[str, torch.Tensor]], *, plugin: str, whole: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buckets, checked: each fits its slot and comes once; with `whole`, every slot gets one.

    Raises:
        ContractError: names the first that does not, or that is missing at the end.
    """
    where = f"trainer of plugin {plugin}, weights()"
    left = {slot.name: slot for slot in slots}
    known = frozenset(left)
    for name, tensor in buckets:
        slot = left.pop(name, None)
        if slot is None:
            what = "comes twice" if name in known else "is not among its weight_slots()"
            raise ContractError(f"{where}: bucket {name!r} {what}")
        actual = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        if actual != (slot.shape, slot.dtype.value):
            raise ContractError(f"{where}: bucket {name} is {actual[0]} {actual[1]}; its slot says {slot}")
        yield name, tensor
    if whole and left:
        first = next(iter(left.values()))
        raise ContractError(f"{where}: no bucket for {first}, and {len(left) - 1} more")
