"""Lifecycle: a generator is started once, and closed whatever happened."""

import asyncio
import logging

import pytest

from slime_core.errors import PluginError
from slime_core.rollout import Lifecycle


class Part:
    """What is started and closed; fails as the test says."""

    def __init__(self, start: Exception | None = None, close: Exception | None = None, seconds: float = 0.0) -> None:
        self.calls: list[str] = []
        self._start, self._close, self._seconds = start, close, seconds

    async def start(self) -> None:
        self.calls.append("start")
        await asyncio.sleep(self._seconds)
        if self._start:
            raise self._start

    async def close(self) -> None:
        self.calls.append("close")
        if self._close:
            raise self._close


def test_it_is_started_once_however_many_ask_at_once(caplog: pytest.LogCaptureFixture) -> None:
    part = Part()
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=60.0)

    async def go() -> None:
        await asyncio.gather(*(lifecycle.start() for _ in range(5)))
        await lifecycle.start()
        assert part.calls == ["start"]
        await lifecycle.close()
        await lifecycle.close()
        assert part.calls == ["start", "close"]
        await lifecycle.start()

    asyncio.run(go())
    assert part.calls == ["start", "close", "start"]
    assert not caplog.records


def test_what_was_never_started_is_not_closed() -> None:
    part = Part()
    asyncio.run(Lifecycle("agent", "slime-agent", part, limit_s=60.0).close())
    assert part.calls == []


def test_a_start_that_fails_is_named_tried_again_and_closed() -> None:
    part = Part(start=OSError("no port"))
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=60.0)

    async def go() -> None:
        for _ in range(2):
            with pytest.raises(PluginError, match=r"^start of generator 'agent' of plugin slime-agent raised OSError"):
                await lifecycle.start()
        await lifecycle.close()

    asyncio.run(go())
    assert part.calls == ["start", "start", "close"]


def test_a_start_that_hangs_says_which_limit_to_raise() -> None:
    part = Part(seconds=3600.0)
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=0.01)
    with pytest.raises(
        PluginError, match=r"^start of generator 'agent' of plugin slime-agent: .*raise sample_timeout_s"
    ):
        asyncio.run(lifecycle.start())


def test_a_close_that_fails_is_told_and_keeps_nothing_else_open(caplog: pytest.LogCaptureFixture) -> None:
    part = Part(close=OSError("no port"))
    lifecycle = Lifecycle("agent", "slime-agent", part, limit_s=60.0)

    async def go() -> None:
        await lifecycle.start()
        await lifecycle.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(go())
    assert "generator agent of plugin slime-agent could not be closed: no port" in caplog.text
