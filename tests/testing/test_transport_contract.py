"""The transport contract: the core's own transports keep it, and some that are bad in one way each do not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from slime_core.roles import Settings, TransportSetup, TransportSpec, WeightSender, WeightSlot
from slime_testing import CheckStatus, TransportContract
from slime_train.mapped_weights import MappedReceiver, MappedSender, map_weights
from slime_train.shared_buffer import SharedBuffer, SharedBufferChannel
from slime_train.weight_file import WeightFile
from tests.tables import table

Buckets = Iterator[tuple[str, torch.Tensor]]


class OpenedAtOnce(SharedBuffer):
    def __init__(self, settings: Settings, setup: TransportSetup) -> None:
        super().__init__(settings, setup)
        self.folder = setup.scratch

    def open(self, slots: Sequence[WeightSlot]) -> SharedBufferChannel:  # type: ignore[override]
        return SharedBufferChannel("bad", tuple(slots), self.folder)


class InAnotherOrder(SharedBuffer):
    async def open(self, slots: Sequence[WeightSlot]) -> SharedBufferChannel:
        return replace(await super().open(slots), slots=tuple(reversed(slots)))


@dataclass(frozen=True, slots=True)
class Widening(SharedBufferChannel):
    def receiver(self, engine: int, worker: int = 0) -> MappedReceiver:
        class Floats(MappedReceiver):
            def read(self, version: int) -> Buckets:
                for name, tensor in super().read(version):
                    yield name, tensor.float()

        return Floats(self)


@dataclass(frozen=True, slots=True)
class ByOrder(SharedBufferChannel):
    def sender(self, rank: int, world_size: int) -> WeightSender:
        class InOrder(MappedSender):
            def send(self, version: int, buckets: Buckets, engines: Sequence[int]) -> None:
                names = iter(slot.name for slot in slots)
                super().send(version, (fitted(next(names), tensor) for _, tensor in buckets), engines)

        slots = self.slots

        def fitted(name: str, tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
            slot = next(slot for slot in slots if slot.name == name)
            return name, tensor.reshape(-1)[:1].expand(slot.shape) if tensor.shape != slot.shape else tensor

        return InOrder(self, rank)


@dataclass(frozen=True, slots=True)
class OneForAll(SharedBufferChannel):
    def files(self) -> tuple[WeightFile, WeightFile]:
        first, _ = SharedBufferChannel.files(self)
        return first, first


@dataclass(frozen=True, slots=True)
class Swallowing(SharedBufferChannel):
    def sender(self, rank: int, world_size: int) -> WeightSender:
        class EndingEarly(MappedSender):
            def send(self, version: int, buckets: Buckets, engines: Sequence[int]) -> None:
                if rank == 0:
                    file = channel.begin(version)
                    weights = map_weights(file)
                    try:
                        for name, tensor in buckets:
                            weights[name].copy_(tensor)
                    finally:
                        channel.end(file, version)

        channel = self
        return EndingEarly(self, rank)


@dataclass(frozen=True, slots=True)
class OnceEach(SharedBufferChannel):
    def receiver(self, engine: int, worker: int = 0) -> MappedReceiver:
        (self.folder / f"{engine}-{worker}").touch(exist_ok=False)
        return MappedReceiver(self)


@dataclass(frozen=True, slots=True)
class WholeEverywhere(SharedBufferChannel):
    def sender(self, rank: int, world_size: int) -> WeightSender:
        class Counting(MappedSender):
            def send(self, version: int, buckets: Buckets, engines: Sequence[int]) -> None:
                given = dict(buckets)
                super().send(version, iter([(slot.name, given[slot.name]) for slot in slots]), engines)

        slots = self.slots
        return Counting(self, rank)


def opening(channel: type[SharedBufferChannel]) -> type[SharedBuffer]:
    class Opening(SharedBuffer):
        async def open(self, slots: Sequence[WeightSlot]) -> SharedBufferChannel:
            made = await super().open(slots)
            return channel(made.transport, made.slots, made.folder)

    return Opening


BAD: dict[str, type[SharedBuffer]] = {
    "TRP-001": OpenedAtOnce,
    "TRP-002": InAnotherOrder,
    "TRP-003": opening(Widening),
    "TRP-004": opening(ByOrder),
    "TRP-005": opening(OneForAll),
    "TRP-006": opening(Swallowing),
    "TRP-007": opening(OnceEach),
    "TRP-008": opening(WholeEverywhere),
}


def contract_of(transport: str | type[SharedBuffer]) -> type[TransportContract]:
    def factory(settings: Settings, setup: TransportSetup) -> SharedBuffer:
        assert not isinstance(transport, str)
        return transport(settings, setup)

    class Subject(TransportContract):
        choice = transport if isinstance(transport, str) else TransportSpec("bad", factory)

    return Subject


@table("name", ["shared-buffer", "disk"])
def test_the_cores_own_transports_keep_the_contract(name: str) -> None:
    results = contract_of(f"slime-train/{name}").report()
    assert {result.status for result in results} == {CheckStatus.PASSED}, results


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == TransportContract.checks().keys()


@table("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str) -> None:
    results = contract_of(BAD[identity]).report()
    assert {each.identity for each in results if each.status is CheckStatus.FAILED} == {identity}


def test_a_transport_that_brings_no_receiver_is_left_to_its_engine() -> None:
    class Subject(TransportContract):
        choice = TransportSpec("own", SharedBuffer, brings_receiver=False)

    by_status = {result.identity: result.status for result in Subject.report()}
    assert by_status["TRP-002"] is CheckStatus.PASSED
    assert by_status["TRP-003"] is CheckStatus.SKIPPED
    assert sorted(Subject().inapplicable()) == [f"TRP-00{number}" for number in range(3, 9)]
