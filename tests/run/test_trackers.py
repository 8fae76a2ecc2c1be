"""Trackers are best effort: what one does never reaches the run, or the others."""

import asyncio
import logging
import sys
from collections.abc import Mapping

import pytest

from slime_core.catalog.catalog import Used
from slime_core.run.watching import Trackers
from slime_core.stats import PluginStats


class Recorder:
    def __init__(self) -> None:
        self.rows: list[tuple[int, Mapping[str, float]]] = []
        self.closed = False

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append((step, metrics))

    async def close(self) -> None:
        self.closed = True


class Broken(Recorder):
    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        raise ConnectionError("no route") if step < 2 else KeyError("loss")

    async def close(self) -> None:
        await asyncio.Event().wait()


class Exits(Recorder):
    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        metrics.clear()  # type: ignore[attr-defined]
        sys.exit(0)


def test_every_tracker_gets_every_row_whatever_the_others_do(caplog: pytest.LogCaptureFixture) -> None:
    good = Recorder()
    uses = [Used("broken", "slime-x", Broken()), Used("exits", "slime-y", Exits()), Used("good", "z", good)]
    stats = PluginStats()
    made = Trackers(stats, uses, limit_s=0.01)

    async def run() -> None:
        for step in range(3):
            await made.log(step, {"loss": 1.0})
        await made.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert good.rows == [(step, {"loss": 1.0}) for step in range(3)]
    assert good.closed
    assert made.errors == {
        "slime-x/broken/ConnectionError": 2,
        "slime-x/broken/KeyError": 1,
        "slime-x/broken/TimeoutError": 1,
        "slime-y/exits/SystemExit": 3,
    }
    counted = stats.take()
    failures = {name: value for name, value in counted.items() if value and name.endswith(("errors", "timeouts"))}
    assert failures == {
        "plugin/tracker/broken/errors": 3.0,
        "plugin/tracker/broken/timeouts": 1.0,
        "plugin/tracker/exits/errors": 3.0,
    }
    assert len(caplog.records) == 4
    assert "tracker slime-x/broken/ConnectionError: no route (logged once; the run goes on)" in caplog.text
