"""TransportContract: the requirements on every transport, TRP-001 to TRP-008. Ranks and workers are threads.

Example:

    class TestMine(TransportContract):
        choice = "slime-transport-mine/mine"
"""

import asyncio
import inspect
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast
from unittest import SkipTest

from slime_core.roles import (
    Transport,
    TransportSetup,
    TransportSpec,
    WeightChannel,
    WeightDtype,
    WeightReceiver,
    WeightSender,
    WeightSlot,
)
from slime_testing.contract import check, require
from slime_testing.role import SEED, RoleContract
from slime_testing.tensors.batches import need_torch

if TYPE_CHECKING:
    import torch

    Weights: TypeAlias = Mapping[str, torch.Tensor]
    Buckets: TypeAlias = Iterator[tuple[str, torch.Tensor]]
    import torch


RANKS, ENGINES, WORKERS = 2, 2, 2
Place: TypeAlias = tuple[int, int]
"""Number of an engine, and number of its worker."""


@dataclass
class Outcome:
    """Result of a publication."""

    sent: dict[int, BaseException | None] = field(default_factory=dict)
    """The error of each rank's `send`; None: it succeeded."""
    read: "dict[Place, Weights | BaseException]" = field(default_factory=dict)
    """What each receiver read: weights or an error."""


class Peers:
    """Opens a transport with all its senders and receivers, and closes them."""

    def __init__(
        self, build: Callable[[Path], Transport], slots: Sequence[WeightSlot], spec: TransportSpec, limit_s: float
    ) -> None:
        self._build, self._slots, self._spec, self._limit_s = build, slots, spec, limit_s
        self.keeps_tensors = False
        """Whether all receivers keep their tensors until the next read."""

    def __enter__(self) -> "Peers":
        if not self._spec.brings_receiver:
            raise SkipTest("it has no receiver: only its engine reads the weights")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        try:
            self._open()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def _open(self) -> None:
        self._transport = self._build(Path(self._folder.name))
        self._channel = asyncio.run(self._transport.open(self._slots))
        self._senders: list[WeightSender] = [self._channel_copy().sender(rank, RANKS) for rank in range(RANKS)]
        places = [(engine, worker) for engine in range(ENGINES) for worker in range(WORKERS)]
        self._receivers: dict[Place, WeightReceiver] = {
            place: self._channel_copy().receiver(*place) for place in places
        }
        self.keeps_tensors = all(receiver.keeps_tensors for receiver in self._receivers.values())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        peers: list[WeightSender | WeightReceiver] = [*self._receivers.values(), *self._senders]
        for peer in (*peers, *peers):
            peer.close()
        asyncio.run(self._transport.close())
        self._folder.cleanup()

    def _channel_copy(self) -> WeightChannel:
        return cast(WeightChannel, ForkingPickler.loads(ForkingPickler.dumps(self._channel)))

    def publish(self, version: int, of_ranks: "Sequence[Weights]", *, hold: bool = False) -> "dict[Place, Weights]":
        """Send a version; returns the weights that each worker reads. `hold` does not copy lasting tensors.

        Raises:
            AssertionError: a sender or receiver raised, or exceeded the time limit.
        """
        outcome = self.try_publish(version, [iter(weights.items()) for weights in of_ranks], hold=hold)
        return self._weights(outcome)

    def try_publish(self, version: int, of_ranks: "Sequence[Buckets]", *, hold: bool = False) -> Outcome:
        """Like `publish`, but return errors in the result."""
        return self._move(version, of_ranks, list(self._receivers), hold)

    def read_after_restart(self, engine: int, version: int, weights: "Weights") -> "dict[Place, Weights]":
        """Weights that workers of a restarted engine read after this version was sent; raises like `publish`."""
        places = [place for place in self._receivers if place[0] == engine]
        for place in places:
            self._receivers[place].close()
            self._receivers[place] = self._channel_copy().receiver(*place)
        sends = [] if self._channel.late_readers else [iter(weights.items()) for _ in range(RANKS)]
        return self._weights(self._move(version, sends, places, hold=False))

    def _weights(self, outcome: Outcome) -> "dict[Place, Weights]":
        for rank, error in outcome.sent.items():
            if error is not None:
                raise AssertionError(f"send() of rank {rank} ended with {error!r:.200}") from error
        read: dict[Place, Weights] = {}
        for place, found in outcome.read.items():
            if isinstance(found, BaseException):
                raise AssertionError(f"read() of engine {place[0]}, worker {place[1]} ended with {found!r:.200}")
            read[place] = found
        return read

    def _move(self, version: int, of_ranks: "Sequence[Buckets]", places: Sequence[Place], hold: bool) -> Outcome:
        outcome, engines = Outcome(), sorted({engine for engine, _ in places})

        def send(rank: int, buckets: "Buckets") -> None:
            outcome.sent[rank] = TimeoutError(f"it took longer than limit_s = {self._limit_s:g} s")
            try:
                self._senders[rank].send(version, buckets, engines)
                for _ in buckets:  # the core also iterates the remaining buckets
                    pass
                outcome.sent[rank] = None
            except Exception as error:
                outcome.sent[rank] = error

        def read(place: Place) -> None:
            outcome.read[place] = TimeoutError(f"it took longer than limit_s = {self._limit_s:g} s")
            receiver = self._receivers[place]
            try:
                found = receiver.read(version)
                keep = hold and receiver.keeps_tensors
                outcome.read[place] = {name: tensor if keep else tensor.clone() for name, tensor in found}
            except Exception as error:
                outcome.read[place] = error

        sends = [threading.Thread(target=send, args=each, daemon=True) for each in enumerate(of_ranks)]
        reads = [threading.Thread(target=read, args=(place,), daemon=True) for place in places]
        for concurrent in ([*sends, *reads],) if self._spec.rendezvous else (sends, reads):
            _run(concurrent, self._limit_s)
        return outcome


def _run(threads: Iterable[threading.Thread], limit_s: float) -> None:
    started = list(threads)
    for thread in started:
        thread.start()
    end = time.monotonic() + limit_s
    for thread in started:
        thread.join(max(0.0, end - time.monotonic()))


SLOTS = (
    WeightSlot("model.embed.weight", (7, 3)),
    WeightSlot("model.norm.weight", (3,), WeightDtype.BFLOAT16),
    WeightSlot("model.scale", (), WeightDtype.FLOAT16),
    WeightSlot("model.steps", (2,), WeightDtype.INT64),
    WeightSlot("lm_head.weight", (64, 65)),
)


class TransportContract(RoleContract[TransportSpec]):
    """Contract of transports: inherit it and set `choice`. The transport serves two ranks and two engines.

    Each engine has two workers. `scratch` is an empty folder.
    """

    kind = TransportSpec
    limit_s: ClassVar[float] = 30.0
    """Seconds in which these few weights must arrive."""

    @check("TRP-001")
    def test_the_factory_builds_a_transport(self) -> None:
        """`open(slots)` and `close()` are `async def`. The core may call `close` without `open`, and twice."""

        async def twice(built: Transport) -> None:
            await built.close()
            await built.close()

        with tempfile.TemporaryDirectory() as scratch:
            built = self._build(Path(scratch))
            wrong = [name for name in ("open", "close") if not inspect.iscoroutinefunction(getattr(built, name, None))]
            require(not wrong, f"{' and '.join(wrong)} must be `async def`")
            asyncio.run(twice(built))

    @check("TRP-002", needs=("TRP-001",))
    def test_the_channel_can_be_pickled(self) -> None:
        """The core sends the channel to ranks and engines, which open it. It consists of plain data and the slots."""
        need_torch()
        with tempfile.TemporaryDirectory() as scratch:
            built = self._build(Path(scratch))
            channel: object = asyncio.run(built.open(SLOTS))
            require(isinstance(channel, WeightChannel), f"open() returned {channel!r:.80}; expected a WeightChannel")
            arrived = ForkingPickler.loads(ForkingPickler.dumps(channel))
            asyncio.run(built.close())
        require(arrived == channel, f"after pickling, the channel is {arrived!r:.80}; expected {channel!r:.80}")
        require(tuple(arrived.slots) == SLOTS, f"channel.slots is {arrived.slots!r:.80}; expected the slots of open()")
        require(
            arrived.late_readers or self.spec.rendezvous,
            "late_readers is False, which requires TransportSpec(rendezvous=True)",
        )

    @check("TRP-003", needs=("TRP-002",))
    def test_every_worker_receives_all_weights_by_name(self) -> None:
        """Every worker of every engine reads each slot once, with the shape, dtype and values that were sent."""
        with self._peers() as peers:
            sent = values(1)
            for place, read in peers.publish(1, [sent, sent]).items():
                self._require_equal(read, sent, f"engine {place[0]}, worker {place[1]}")

    @check("TRP-004", needs=("TRP-003",))
    def test_buckets_can_arrive_in_any_order(self) -> None:
        """Pipeline stages yield weights in any order. Assign them to slots by name."""
        with self._peers() as peers:
            sent = values(2)
            backwards = dict(reversed(sent.items()))
            for read in peers.publish(1, [backwards, backwards]).values():
                self._require_equal(read, sent, "sent in reverse order")

    @check("TRP-005", needs=("TRP-003",))
    def test_versions_share_no_memory(self) -> None:
        """With `keeps_tensors`, tensors that were read must not change while the next version is sent."""
        with self._peers() as peers:
            first, second, third = (values(number) for number in (1, 2, 3))
            held = peers.publish(0, [first, first], hold=True)
            self._require_equal(next(iter(peers.publish(1, [second, second], hold=True).values())), second, "version 1")
            if peers.keeps_tensors:
                for read in held.values():
                    self._require_equal(read, first, "version 0 after version 1 was sent")
            self._require_equal(next(iter(peers.publish(2, [third, third]).values())), third, "version 2")

    @check("TRP-006", needs=("TRP-003",))
    def test_an_incomplete_version_is_not_delivered(self) -> None:
        """If a rank's weights end with an error, `send` raises it, and no receiver gets the incomplete version.

        The next version must arrive again.
        """

        def broken() -> "Iterator[tuple[str, torch.Tensor]]":
            yield next(iter(values(2).items()))
            raise Broken("the contract kit lets the weights of rank 0 fail")

        with self._peers() as peers:
            sent, after = values(1), values(3)
            peers.publish(0, [sent, sent])
            outcome = peers.try_publish(1, [broken(), iter(sent.items())])
            error = outcome.sent[0]
            require(isinstance(error, Broken), f"send() of rank 0 ended with {error!r:.80}; expected the kit's error")
            got = [place for place, read in outcome.read.items() if not isinstance(read, BaseException)]
            require(not got, f"{len(got)} of {len(outcome.read)} receivers read an incomplete version")
            for read in peers.publish(2, [after, after]).values():
                self._require_equal(read, after, "the version after an incomplete one")

    @check("TRP-007", needs=("TRP-003",))
    def test_a_restarted_engine_gets_the_latest_weights(self) -> None:
        """A restarted engine opens a new receiver, and reads the last version.

        With `late_readers` it reads without a sender; otherwise the ranks send the version again.
        """
        with self._peers() as peers:
            sent = values(1)
            peers.publish(0, [sent, sent])
            for place, read in peers.read_after_restart(1, 0, sent).items():
                self._require_equal(read, sent, f"engine {place[0]}, worker {place[1]}, after a restart")
            after = values(2)
            for read in peers.publish(1, [after, after]).values():
                self._require_equal(read, after, "the version after a restart")

    @check("TRP-008", needs=("TRP-003",))
    def test_other_ranks_can_send_fewer_weights(self) -> None:
        """Gathered weights may be on rank 0 only. Other ranks yield fewer weights or none, and `send` succeeds."""
        with self._peers() as peers:
            sent = values(1)
            for read in peers.publish(1, [sent, {}]).values():
                self._require_equal(read, sent, "with nothing on rank 1")

    def inapplicable(self) -> Collection[str]:
        """All checks that read weights, if the transport has no receiver: its engine's contract covers them."""
        if self.spec.brings_receiver:
            return ()
        return [identity for identity, info in self.checks().items() if {identity, *info.needs} & {"TRP-003"}]

    def _build(self, scratch: Path) -> Transport:
        setup = TransportSetup(self.make, SEED, scratch=scratch, engines=ENGINES, receivers=WORKERS)
        return self.spec.factory(self.make_settings(), setup)

    def _peers(self) -> Peers:
        need_torch()
        return Peers(self._build, SLOTS, self.spec, self.limit_s)

    def _require_equal(
        self, read: "Mapping[str, torch.Tensor]", sent: "Mapping[str, torch.Tensor]", where: str
    ) -> None:
        require(read.keys() == sent.keys(), f"{where}: it read {sorted(read)}; expected {sorted(sent)}")
        for name, tensor in sent.items():
            got = read[name]
            same = (got.dtype, got.shape) == (tensor.dtype, tensor.shape) and bool((got.cpu() == tensor).all())
            shown = f"{got.dtype} {tuple(got.shape)}; sent was {tensor.dtype} {tuple(tensor.shape)}"
            require(same, f"{where}: {name} has other values, shape or dtype than sent: {shown}")


class Broken(Exception):
    """Raised by the kit in the middle of a rank's weights."""


def values(number: int, slots: Sequence[WeightSlot] = SLOTS) -> "dict[str, torch.Tensor]":
    """Weights that differ for each number."""
    import torch

    return {
        slot.name: (torch.arange(slot.numel) % 101 + number).view(slot.shape).to(getattr(torch, slot.dtype.value))
        for slot in slots
    }
