import asyncio
import os
import signal

import pytest

from slime_core.run.folder import StopRequest, on_signals
from tests.tables import table


async def next_message(said: list[str]) -> str:
    async with asyncio.timeout(10):
        while not said:  # noqa: ASYNC110  # a signal arrives when it arrives
            await asyncio.sleep(0.01)
    return said.pop()


@table("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_to_stop_and_interrupts_nothing(sent: signal.Signals) -> None:
    async def go() -> None:
        stop, said = StopRequest(), list[str]()
        with on_signals(stop, said.append):
            assert not stop.requested
            os.kill(os.getpid(), sent)
            assert "finishing this step" in await next_message(said)
            assert stop.requested
            if sent != signal.SIGINT:  # only Ctrl-C cancels, however often the others come
                os.kill(os.getpid(), sent)
                await asyncio.sleep(0.05)
            assert said == []

    asyncio.run(go())


@table("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_second_ctrl_c_cancels_the_run(first: signal.Signals) -> None:
    said = list[str]()

    async def go() -> None:
        with on_signals(StopRequest(), said.append):
            os.kill(os.getpid(), first)
            await next_message(said)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(go())
    assert said == ["stopping at once; the newest checkpoint stays"]


def test_a_hangup_that_is_ignored_stays_ignored_and_afterwards_signals_mean_what_they_always_mean() -> None:
    async def go() -> None:
        stop = StopRequest()
        with on_signals(stop, print):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
        assert not stop.requested

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asyncio.run(go())
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
