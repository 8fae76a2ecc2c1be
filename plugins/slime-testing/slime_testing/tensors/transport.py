"""TransportContract: what every transport must keep, TRP-001 to TRP-008; ranks and workers are threads of this process.

Example:

    class TestMine(TransportContract):
        choice = "slime-transport-mine/mine"
"""

import asyncio
import inspect
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from slime_core.roles import Transport, TransportSetup, TransportSpec, WeightChannel, WeightDtype, WeightSlot
from slime_testing.contract import check, require
from slime_testing.protected import SEED
from slime_testing.role import RoleContract
from slime_testing.tensors.batches import need_torch
from slime_testing.tensors.ends import ENGINES, WORKERS, Ends

if TYPE_CHECKING:
    import torch

SLOTS = (
    WeightSlot("model.embed.weight", (7, 3)),
    WeightSlot("model.norm.weight", (3,), WeightDtype.BFLOAT16),
    WeightSlot("model.scale", (), WeightDtype.FLOAT16),
    WeightSlot("model.steps", (2,), WeightDtype.INT64),
    WeightSlot("lm_head.weight", (64, 65)),
)


class TransportContract(RoleContract[TransportSpec]):
    """Inherit and name the transport. It is given an empty `scratch`, two engines of two workers, and two ranks."""

    kind = TransportSpec
    choice: ClassVar[str | TransportSpec]
    """The transport: a name for the catalog, or a spec."""
    limit_s: ClassVar[float] = 30.0
    """Seconds within which these few weights arrive."""

    @check("TRP-001")
    def test_the_factory_builds_a_transport(self) -> None:
        """`open(slots)` and `close()` are awaited: both are `async def`; `close` may come without `open`, and twice."""

        async def twice(built: Transport) -> None:
            await built.close()
            await built.close()

        with tempfile.TemporaryDirectory() as scratch:
            built = self._build(Path(scratch))
            wrong = [name for name in ("open", "close") if not inspect.iscoroutinefunction(getattr(built, name, None))]
            require(not wrong, f"{' and '.join(wrong)} must be `async def`")
            asyncio.run(twice(built))

    @check("TRP-002", needs=("TRP-001",))
    def test_the_channel_travels(self) -> None:
        """It is pickled for ranks and engines, who open their ends: plain data, equal on arrival, with the slots."""
        need_torch()
        with tempfile.TemporaryDirectory() as scratch:
            built = self._build(Path(scratch))
            channel: object = asyncio.run(built.open(SLOTS))
            require(isinstance(channel, WeightChannel), f"open() returned {channel!r:.80}; expected a WeightChannel")
            arrived = ForkingPickler.loads(ForkingPickler.dumps(channel))
            asyncio.run(built.close())
        require(arrived == channel, f"after pickling it is {arrived!r:.80}, and not equal to what it was")
        require(tuple(arrived.slots) == SLOTS, "its slots are not those that it was opened for")
        late = arrived.late_readers
        require(late or self.spec.rendezvous, "who cannot read late must wait with the sender: rendezvous=True")

    @check("TRP-003", needs=("TRP-002",))
    def test_all_weights_arrive_by_name(self) -> None:
        """Every worker of every engine reads each slot once, with its shape, its dtype and the bytes that were sent."""
        with self._ends() as ends:
            sent = values(1)
            for place, read in ends.publish(1, [sent, sent]).items():
                self._require_equal(read, sent, f"engine {place[0]}, worker {place[1]}")

    @check("TRP-004", needs=("TRP-003",))
    def test_buckets_may_come_in_any_order(self) -> None:
        """Stages of a pipeline yield as they come: place buckets by name."""
        with self._ends() as ends:
            sent = values(2)
            backwards = dict(reversed(sent.items()))
            for read in ends.publish(1, [backwards, backwards]).values():
                self._require_equal(read, sent, "sent backwards")

    @check("TRP-005", needs=("TRP-003",))
    def test_a_version_is_of_one_piece(self) -> None:
        """What is served in place stays as it is while the next version is sent; the two share no memory."""
        with self._ends() as ends:
            first, second, third = (values(number) for number in (1, 2, 3))
            held = ends.publish(0, [first, first], hold=True)
            self._require_equal(next(iter(ends.publish(1, [second, second], hold=True).values())), second, "version 1")
            if ends.lasting:
                for read in held.values():
                    self._require_equal(read, first, "version 0 after version 1 was sent")
            self._require_equal(next(iter(ends.publish(2, [third, third]).values())), third, "version 2")

    @check("TRP-006", needs=("TRP-003",))
    def test_what_is_incomplete_reaches_nobody(self) -> None:
        """A rank's buckets may end with an error: `send` raises it, nobody gets the version, the next one works."""

        def broken() -> "Iterator[tuple[str, torch.Tensor]]":
            yield next(iter(values(2).items()))
            raise Broken("the buckets ended with an error")

        with self._ends() as ends:
            sent, after = values(1), values(3)
            ends.publish(0, [sent, sent])
            outcome = ends.try_publish(1, [broken(), iter(sent.items())])
            require(isinstance(outcome.sent[0], Broken), f"rank 0's send() ended with {outcome.sent[0]!r:.80}")
            got = [place for place, read in outcome.read.items() if not isinstance(read, BaseException)]
            require(not got, f"{len(got)} of {len(outcome.read)} receivers were given a version that is not whole")
            for read in ends.publish(2, [after, after]).values():
                self._require_equal(read, after, "the version after a broken one")

    @check("TRP-007", needs=("TRP-003",))
    def test_an_engine_that_comes_late_gets_the_newest(self) -> None:
        """One that was restarted opens a new receiver; it reads alone if `late_readers`, else it is sent to again."""
        with self._ends() as ends:
            sent = values(1)
            ends.publish(0, [sent, sent])
            for place, read in ends.late(1, 0, sent).items():
                self._require_equal(read, sent, f"engine {place[0]}, worker {place[1]}, after a restart")
            after = values(2)
            for read in ends.publish(1, [after, after]).values():
                self._require_equal(read, after, "the version after a restart")

    @check("TRP-008", needs=("TRP-003",))
    def test_ranks_other_than_the_first_may_have_less(self) -> None:
        """A gathered bucket may be on rank 0 alone: other ranks yield fewer, or none, and their `send` ends well."""
        with self._ends() as ends:
            sent = values(1)
            for read in ends.publish(1, [sent, {}]).values():
                self._require_equal(read, sent, "with nothing on rank 1")

    def beyond(self) -> Collection[str]:
        """All checks that read, if the transport brings no receiver: the contract of its engine covers those."""
        if self.spec.brings_receiver:
            return ()
        return [identity for identity, info in self.checks().items() if {identity, *info.needs} & {"TRP-003"}]

    def _build(self, scratch: Path) -> Transport:
        setup = TransportSetup(self.make, SEED, scratch=scratch, engines=ENGINES, receivers=WORKERS)
        return self.spec.factory(self.validated(), setup)

    def _ends(self) -> Ends:
        need_torch()
        return Ends(self._build, SLOTS, self.spec, self.limit_s)

    def _require_equal(
        self, read: "Mapping[str, torch.Tensor]", sent: "Mapping[str, torch.Tensor]", where: str
    ) -> None:
        require(read.keys() == sent.keys(), f"{where}: got {sorted(read)}; expected {sorted(sent)}")
        for name, tensor in sent.items():
            got = read[name]
            same = (got.dtype, got.shape) == (tensor.dtype, tensor.shape) and bool((got.cpu() == tensor).all())
            require(same, f"{where}: {name} is not what was sent: {got.dtype} {tuple(got.shape)}")


class Broken(Exception):
    """A rank failed in the middle of its weights."""


def values(number: int, slots: Sequence[WeightSlot] = SLOTS) -> "dict[str, torch.Tensor]":
    """Weights that differ from number to number."""
    import torch

    return {
        slot.name: (torch.arange(slot.numel) % 101 + number).view(slot.shape).to(getattr(torch, slot.dtype.value))
        for slot in slots
    }
