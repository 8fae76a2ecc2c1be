"""The code that all trackers share, without their libraries."""

import asyncio
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from slime_core.errors import ConfigError
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_trackers.tracker import OpenRun, SentRecord, ServiceTracker, WorkerThread, require_library
from tests.tables import table


class FakeService:
    """A library that keeps rows in a list."""

    def __init__(self) -> None:
        self.opened: list[str | None] = []
        self.rows: list[tuple[int, Mapping[str, float]]] = []
        self.finished = 0
        self.fails = False
        self.last: int | None = None

    def open(self, run: str | None, config: Mapping[str, object]) -> OpenRun:
        if self.fails:
            raise ConnectionError("no route")
        self.opened.append(run)
        return OpenRun(run or "made", self.last)

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.fails:
            raise ConnectionError("no route")
        self.rows.append((step, metrics))

    def finish(self) -> None:
        self.finished += 1


@table("fails", ["open", "send"])
def test_failed_call_is_repeated_with_the_next_row(tmp_path: Path, fails: str) -> None:
    service = FakeService()
    tracker = ServiceTracker("kept", service, tmp_path / fails)

    async def run() -> None:
        if fails == "send":
            await tracker.log(0, {"a": 1.0})
        service.fails = True
        with pytest.raises(ConnectionError):
            await tracker.log(1, {"a": 2.0})
        service.fails = False
        await tracker.log(1, {"a": 2.0})
        await tracker.close()

    asyncio.run(run())
    assert service.rows == [(0, {"a": 1.0}), (1, {"a": 2.0})][fails == "open" :]
    assert service.opened == [None]


def test_new_tracker_run_receives_everything(tmp_path: Path) -> None:
    record = SentRecord(tmp_path / "kept" / "slime.json")
    record.begin("first", None)
    record.mark_sent(3, {"a": 1.0})
    record = SentRecord(tmp_path / "kept" / "slime.json")
    record.begin("first", None)
    assert record.unsent(2, {"a": 1.0}) == {}
    assert record.unsent(3, {"a": 1.0, "b": 2.0}) == {"b": 2.0}
    record.begin("second", None)
    assert record.unsent(2, {"a": 1.0}) == {"a": 1.0}


def test_lost_rows_are_sent_again_from_metrics(tmp_path: Path) -> None:
    service = FakeService()
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        for step in range(3):
            log.append(MetricsRow(step, step, 0.0, {"a": float(step)}))
    record = SentRecord(tmp_path / "kept" / "slime.json")
    record.begin("first", None)
    record.mark_sent(2, {"a": 2.0})
    service.last = 0
    tracker = ServiceTracker("kept", service, tmp_path)

    async def run() -> None:
        await tracker.log(3, {"a": 3.0})
        await tracker.close()

    asyncio.run(run())
    assert service.opened == ["first"]
    assert service.rows == [(step, {"a": float(step)}) for step in (1, 2, 3)]


def test_calls_run_in_order_after_a_timeout() -> None:
    calls: list[int] = []
    goes_on = threading.Event()

    def first() -> None:
        goes_on.wait(20.0)
        calls.append(1)

    async def run() -> None:
        thread = WorkerThread("kept")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(thread.call(first), 0.01)
        goes_on.set()
        await thread.call(calls.append, 2)
        thread.end()

    asyncio.run(run())
    assert calls == [1, 2]
    assert all(thread.name != "kept" for thread in threading.enumerate() if not thread.daemon)


def test_system_exit_is_raised_at_the_call() -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def run() -> None:
        thread = WorkerThread("kept")
        with pytest.raises(SystemExit):
            await thread.call(leave)
        assert await thread.call(time.monotonic) > 0
        thread.end()

    asyncio.run(run())


def test_folder_with_the_library_name_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trackerlib").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"pip install 'slime-trackers\[wandb\]'"):
        require_library("trackerlib", "wandb")
