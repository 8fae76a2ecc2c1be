"""Publishing: both sides of a version, in the order that the transport needs, and what is said when one fails."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from slime_core.catalog.catalog import Used
from slime_core.errors import ContractError, PluginError, RunFolderError, WorkerError
from slime_core.roles import Transport, WeightChannel
from slime_core.rollout import EnginePool
from slime_core.run import Trainer
from slime_core.run.trainer import Publishing
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


async def start(sides: Sides, *, rendezvous: bool = False) -> Publishing:
    transport = Used("mine", "slime-mine", cast(Transport, sides))
    return await Publishing.start(cast(Trainer, sides), cast(EnginePool, sides), transport, rendezvous=rendezvous)


def test_the_channel_is_opened_for_what_ranks_publish_and_late_engines_are_seen_to() -> None:
    sides = Sides()

    async def go() -> None:
        await (await start(sides)).close()

    asyncio.run(go())
    assert sides.asked == [("open", ()), ("connect", sides.channel), ("set_resend", sides.publish_again), ("close",)]


@table("channel", [None, WeightChannel("here", cast(tuple[()], ("a slot of its own",)))])
def test_a_channel_that_is_none_or_another_one_is_refused_by_name(channel: object) -> None:
    sides = Sides()
    sides.channel = channel
    with pytest.raises(ContractError, match=r"^transport 'mine' of plugin slime-mine: open\(\) returned .*; expected"):
        asyncio.run(start(sides))


@table("method", ["open", "close"])
def test_a_transport_that_raises_is_named_with_its_method(method: str) -> None:
    sides = Sides(**{method: OSError("no port")})

    async def go() -> None:
        await (await start(sides)).close()

    with pytest.raises(PluginError, match=rf"^transport 'mine' \({method}\) of plugin slime-mine raised OSError"):
        asyncio.run(go())


def test_a_version_is_written_before_it_is_read() -> None:
    sides = Sides()

    async def go() -> None:
        await (await start(sides)).publish(4)

    asyncio.run(go())
    assert sides.asked[3:] == [("publish", 4, ()), ("load_weights", sides.channel, 4)]


def test_where_both_must_meet_they_are_at_it_together_and_ranks_know_who_serves() -> None:
    sides = Sides()

    async def go() -> None:
        publishing = await start(sides, rendezvous=True)
        sides.met = asyncio.Barrier(2)
        async with asyncio.timeout(60.0):
            await publishing.publish(4)

    asyncio.run(go())
    assert sides.asked[3:] == [("publish", 4, (0, 2)), ("load_weights", sides.channel, 4)]


@pytest.mark.parametrize("rendezvous", [False, True])
@pytest.mark.parametrize("method", ["publish", "load_weights"])
def test_what_fails_says_which_version_is_served_on(method: str, rendezvous: bool) -> None:
    sides = Sides()

    class Gone(WorkerError):
        """Of somebody's own."""

    async def go() -> None:
        publishing = await start(sides, rendezvous=rendezvous)
        sides.fails[method] = Gone("rank 1 died")
        with pytest.raises(WorkerError) as first:
            await publishing.publish(0)
        assert type(first.value) is WorkerError
        assert str(first.value) == (
            "version 0 of the weights could not be published, no version is served: rank 1 died"
        )
        del sides.fails[method]
        await publishing.publish(1)
        sides.fails[method] = RunFolderError("the disk is full")
        with pytest.raises(RunFolderError, match=r"^version 2 of .*, version 1 is served on: the disk is full$"):
            await publishing.publish(2)

    asyncio.run(go())
