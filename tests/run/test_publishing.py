"""Publishing: both sides of a version, in the order that the transport needs, and errors of each."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import ContractError, PluginError, WorkerError
from slime_core.roles import Transport, WeightChannel
from slime_core.rollout import EnginePool
from slime_core.run import Trainer
from slime_core.run.trainer import Publisher
from tests.tables import table


class Sides:
    """A trainer, an engine and a transport that note what they are asked; those named in `fails` fail."""

    serving = (0, 2)

    def __init__(self, **fails: Exception) -> None:
        self.asked: list[object] = []
        self.fails = fails
        self.met: asyncio.Barrier | None = None
        self.channel: object = WeightChannel("here", ())

    def _note(self, *asked: object) -> None:
        self.asked.append(asked)
        if error := self.fails.get(str(asked[0])):
            raise error

    async def weight_slots(self) -> Sequence[object]:
        return ()

    async def open(self, slots: Sequence[object]) -> object:
        self._note("open", tuple(slots))
        return self.channel

    async def connect(self, channel: WeightChannel) -> None:
        self._note("connect", channel)

    async def publish(self, version: int, serving: Sequence[int]) -> None:
        self._note("publish", version, tuple(serving))
        if self.met:
            await self.met.wait()

    async def publish_again(self, number: int, receive: object) -> None: ...

    def set_resend(self, again: object) -> None:
        self._note("set_resend", again)

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        self._note("load_weights", channel, version)
        if self.met:
            await self.met.wait()

    async def close(self) -> None:
        self._note("close")


def run(sides: Sides, *, rendezvous: bool = False, version: int | None = None) -> None:
    """Open the channel, publish a version if there is one, and close."""
    transport = BuiltChoice("mine", "slime-mine", cast(Transport, sides))

    async def go() -> None:
        trainer, engine = cast(Trainer, sides), cast(EnginePool, sides)
        publisher = await Publisher.open(trainer, engine, transport, rendezvous=rendezvous)
        if rendezvous:
            sides.met = asyncio.Barrier(2)
        if version is not None:
            async with asyncio.timeout(60.0):
                await publisher.publish(version)
        await publisher.close()

    asyncio.run(go())


@table("rendezvous, serving", [(False, ()), (True, (0, 2))])
def test_a_version_is_sent_before_it_is_read_or_while_both_meet(rendezvous: bool, serving: Sequence[int]) -> None:
    sides = Sides()
    run(sides, rendezvous=rendezvous, version=4)
    opened = [("open", ()), ("connect", sides.channel), ("set_resend", sides.publish_again)]
    published = [("publish", 4, serving), ("load_weights", sides.channel, 4)]
    assert sides.asked == [*opened, *published, ("close",)]


@table("channel", [None, WeightChannel("here", cast(tuple[()], ("a slot of its own",)))])
def test_a_channel_that_is_none_or_another_one_is_refused_by_name(channel: object) -> None:
    sides = Sides()
    sides.channel = channel
    with pytest.raises(ContractError, match=r"^transport 'mine' of plugin slime-mine: open\(\) returned .*; expected"):
        run(sides)


@table("method", ["open", "close"])
def test_a_transport_that_raises_is_named_with_its_method(method: str) -> None:
    with pytest.raises(PluginError, match=rf"^transport 'mine' \({method}\) of plugin slime-mine raised OSError"):
        run(Sides(**{method: OSError("no port")}))


@table("method, rendezvous", [(method, each) for method in ("publish", "load_weights") for each in (False, True)])
def test_an_error_of_either_side_is_raised(method: str, rendezvous: bool) -> None:
    with pytest.raises(WorkerError, match=r"^rank 1 died$"):
        run(Sides(**{method: WorkerError("rank 1 died")}), rendezvous=rendezvous, version=0)
