import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import StopRun
from slime_core.events import RolloutStart, RunEnd, WeightsPublished
from slime_core.run.watching import MAX_TIMEOUTS, RunHooks, Trackers
from slime_core.stats import PluginStats
from tests.conftest import Install

HEADER = """
import asyncio

from slime_core import StopRun, hookimpl

SLIME_API = "1"
told = []

"""


@pytest.fixture
def hooks(install_plugin: Install) -> Callable[..., RunHooks]:
    """Run hooks of plugins made of the given function bodies, in order."""

    def made(*bodies: str, limit_s: float = 30.0) -> RunHooks:
        for number, body in enumerate(bodies):
            files = {f"watch{number}.py": HEADER + body}
            install_plugin(f"slime-watch-{number}", files, entry_points={f"watch-{number}": f"watch{number}"})
        return RunHooks(Catalog.discover(strict=True), PluginStats(), limit_s=limit_s)

    return made


def told(number: int) -> list[object]:
    import importlib

    module = importlib.import_module(f"watch{number}")
    return list(module.told)


def test_watchers_are_told_of_the_event_they_ask_for(hooks: Callable[..., RunHooks]) -> None:
    plain = "@hookimpl\ndef slime_rollout_start(event): told.append(event)\n"
    waiting = "@hookimpl\nasync def slime_rollout_start(event):\n    await asyncio.sleep(0)\n    told.append(event)\n"
    silent = "@hookimpl\ndef slime_rollout_start(): told.append('called')\n"
    made = hooks(plain, waiting, silent)
    event = RolloutStart(rollout_id=3, weight_version=2)
    asyncio.run(made.emit(event))
    asyncio.run(made.emit(WeightsPublished(version=1)))
    assert (told(0), told(1), told(2)) == ([event], [event], ["called"])
    assert made.errors == {}


@pytest.mark.parametrize(
    "body",
    [
        "def slime_run_end(event): sys.exit(0)",
        "def slime_run_end(event): raise KeyboardInterrupt",
        "async def slime_run_end(event): raise asyncio.CancelledError",
        "def slime_run_end(event): raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})",
    ],
)
def test_nothing_that_a_watcher_raises_ends_the_run(
    hooks: Callable[..., RunHooks], body: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = hooks(f"import sys\n@hookimpl\n{body}\n", "@hookimpl\ndef slime_run_end(event): told.append(event)\n")
    with caplog.at_level(logging.ERROR):
        asyncio.run(made.emit(RunEnd(Path("run"), 1)))
    assert list(made.errors.values()) == [1]
    assert len(told(1)) == 1


@pytest.mark.parametrize(
    "wait",
    [
        "    await asyncio.Event().wait()",
        "    while not told:\n        try: await asyncio.sleep(60)\n        except asyncio.CancelledError: pass",
    ],
)
@pytest.mark.timeout(60)
def test_a_watcher_that_hangs_is_given_up_after_a_few_times(
    hooks: Callable[..., RunHooks], wait: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = f"@hookimpl\nasync def slime_run_end(event):\n{wait}\n"
    made = hooks(body, "@hookimpl\ndef slime_run_end(event): told.append(event)\n", limit_s=0.01)

    async def emit() -> None:
        for _ in range(MAX_TIMEOUTS + 2):
            await made.emit(RunEnd(Path("run"), 1))

    with caplog.at_level(logging.ERROR):
        asyncio.run(emit())
    assert made.errors == {"slime-watch-0/slime_run_end/TimeoutError": MAX_TIMEOUTS}
    assert [record.getMessage() for record in caplog.records][-1] == (
        "run hook slime-watch-0/slime_run_end: skipped from now on, after 3 timeouts"
    )
    assert len(told(1)) == MAX_TIMEOUTS + 2


def test_stop_run_ends_the_run_after_all_have_been_called(hooks: Callable[..., RunHooks]) -> None:
    made = hooks(
        "@hookimpl\ndef slime_run_end(event): raise StopRun('good enough')\n",
        "@hookimpl\nasync def slime_run_end(event): told.append(event)\n",
    )
    with pytest.raises(StopRun, match="good enough"):
        asyncio.run(made.emit(RunEnd(Path("run"), 1)))
    assert (len(told(1)), made.errors) == (1, {})


def test_a_cancelled_run_is_not_held_up_by_its_watchers(hooks: Callable[..., RunHooks]) -> None:
    made = hooks("@hookimpl\nasync def slime_run_end(event): await asyncio.sleep(60)\n")

    async def cancelled() -> bool:
        task = asyncio.create_task(made.emit(RunEnd(Path("run"), 1)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        return task.cancelled()

    assert asyncio.run(cancelled())


class Recorder:
    """Tracker: keeps its rows, and fails as it is told."""

    def __init__(self, *errors: BaseException, hangs: bool = False) -> None:
        self.rows: list[tuple[int, Mapping[str, float]]] = []
        self.closed, self.errors, self.hangs = False, list(errors), hangs

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.errors:
            metrics.clear()  # type: ignore[attr-defined]
            raise self.errors.pop(0)
        self.rows.append((step, metrics))

    async def close(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.closed = True


def test_every_tracker_gets_every_row_whatever_the_others_do(caplog: pytest.LogCaptureFixture) -> None:
    broken = Recorder(ConnectionError("no route"), ConnectionError("no route"), KeyError("loss"), hangs=True)
    exits, good = Recorder(*(SystemExit(0) for _ in range(3))), Recorder()
    uses = [BuiltChoice(*each) for each in (("bad", "x", broken), ("exits", "y", exits), ("good", "z", good))]
    stats = PluginStats()
    made = Trackers(stats, uses, limit_s=0.01)

    async def run() -> None:
        for step in range(3):
            await made.log(step, {"loss": 1.0})
        await made.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert (good.rows, good.closed) == ([(step, {"loss": 1.0}) for step in range(3)], True)
    errors = {
        "x/bad/ConnectionError": 2,
        "x/bad/KeyError": 1,
        "x/bad/TimeoutError": 1,
        "y/exits/SystemExit": 3,
    }
    assert made.errors == errors
    counted = {name: value for name, value in stats.take().items() if value and name.endswith(("errors", "timeouts"))}
    of = "plugin/tracker/"
    assert counted == {f"{of}bad/errors": 3.0, f"{of}bad/timeouts": 1.0, f"{of}exits/errors": 3.0}
    assert len(caplog.records) == 4
    assert "tracker x/bad/ConnectionError: no route (logged once; the run goes on)" in caplog.text
