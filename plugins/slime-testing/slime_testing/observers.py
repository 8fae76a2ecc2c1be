"""Contracts of trackers (TRK) and run hooks (HOK).

Example:

    class TestTensorBoard(TrackerContract):
        choice = "slime-trackers/tensorboard"
"""

import asyncio
import contextlib
import copy
import inspect
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar
from unittest import SkipTest

from slime_core.catalog import ALL_INSTALLED, PluginState
from slime_core.catalog.loading import hook_faults
from slime_core.errors import SlimeError, StopRun, WorkerError
from slime_core.events import (
    CheckpointLoaded,
    CheckpointSaved,
    EvalEnd,
    Event,
    GroupsDone,
    RolloutEnd,
    RolloutStart,
    RunEnd,
    RunFailed,
    RunStart,
    SamplesDone,
    TrainStepEnd,
    WeightsPublished,
)
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.roles import PluginSet, Tracker, TrackerSetup, TrackerSpec
from slime_testing.blocking import blocks
from slime_testing.calling import call, capture_stdout, find_leaks
from slime_testing.contract import Contract, check, require
from slime_testing.role import SEED, RoleContract, catalog_of
from slime_testing.samples import odd_groups, varied_groups

ROWS: tuple[tuple[int, Mapping[str, float]], ...] = (
    (0, {"rollout/reward_mean": 0.25, "train/loss": -0.5}),
    (1, {"rollout/reward_mean": 0.5, "train/grad_norm": 1e-12, "eval/math/pass@1": 1}),
    (3, {f"plugin/reward/name-{number}/p50": 1e9 * number for number in range(50)}),
    (2, {"rollout/reward_mean": 0.5}),
    (2, {}),
)
"""Metrics of a resumed run, which repeats its last steps."""


class TrackerContract(RoleContract[TrackerSpec]):
    """Contract of trackers: inherit it and set `choice`. The tracker receives an empty run folder."""

    kind = TrackerSpec

    @check("TRK-001")
    def test_the_factory_builds_a_tracker(self) -> None:
        """The core awaits `tracker.log(step, metrics)` and `tracker.close()`, so both are `async def`.

        If a library is not installed, the factory raises `ConfigError` with the package to install.
        """

        async def built() -> list[str]:
            async with self._tracker() as tracker:
                methods = {name: getattr(tracker, name, None) for name in ("log", "close")}
                return [name for name, method in methods.items() if not inspect.iscoroutinefunction(method)]

        wrong = asyncio.run(built())
        require(not wrong, f"{' and '.join(wrong)} must be `async def`")

    @check("TRK-002", needs=("TRK-001", "TRK-004"))
    def test_it_accepts_every_row(self) -> None:
        """Accept names with "/", "@" and "-", names that first appear later, empty rows, and steps that repeat."""
        asyncio.run(self._played())

    @check("TRK-003", needs=("TRK-002",))
    def test_it_does_not_change_the_metrics(self) -> None:
        """All trackers receive the same mapping. Copy it before you add to it (`{**metrics, ...}`)."""
        metrics = {"rollout/reward_mean": 0.25, "train/loss": -0.5}

        async def logged() -> None:
            async with self._tracker() as tracker:
                await tracker.log(0, metrics)
                await tracker.close()

        asyncio.run(logged())
        require(
            metrics == {"rollout/reward_mean": 0.25, "train/loss": -0.5},
            f"it changed the metrics to {metrics}; change a copy",
        )

    @check("TRK-004", needs=("TRK-001",))
    def test_it_does_not_block_the_event_loop(self) -> None:
        """The run waits while a tracker blocks the event loop. `await` the network, or use `asyncio.to_thread`."""
        if stall := blocks(self._logged):
            raise AssertionError(stall)

    @check("TRK-005", needs=("TRK-002",))
    def test_close_works_without_rows_and_twice(self) -> None:
        """A run may end before its first row and close the tracker twice. A second `close` does nothing."""

        async def closed() -> None:
            async with self._tracker() as tracker:
                await tracker.close()
                await tracker.close()

        asyncio.run(closed())

    @check("TRK-006", needs=("TRK-002",))
    def test_it_leaves_nothing_running(self) -> None:
        """End every task, thread, process, file and connection of the tracker in `close`."""

        async def pending() -> int:
            await self._logged()
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        tasks = asyncio.run(pending())
        require(tasks == 0, f"{tasks} tasks are still running after close()")
        left = find_leaks(lambda: self._logged)
        require(not left, f"close() leaves {left}")

    @check("TRK-007", needs=("TRK-002",))
    def test_it_writes_only_to_the_run_folder(self) -> None:
        """Write only to `setup.run_dir`. The working directory belongs to the user."""
        cwd = Path.cwd()
        with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
            os.chdir(folder)
            try:
                asyncio.run(self._played())
            finally:
                os.chdir(cwd)
            written = sorted(path.name for path in Path(folder).iterdir())
        require(not written, f"it wrote {', '.join(written)} to the working directory; write to setup.run_dir")

    async def _played(self) -> None:
        async with self._tracker() as tracker:
            for step, metrics in ROWS:
                await call(tracker.log, step, metrics)
            await call(tracker.close)

    async def _logged(self) -> None:
        async with self._tracker() as tracker:
            await call(tracker.log, *ROWS[0])
            await call(tracker.close)

    @contextlib.asynccontextmanager
    async def _tracker(self) -> AsyncIterator[Tracker]:
        with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
            setup = TrackerSetup(self.make, SEED, run_dir=Path(folder))
            try:
                built = self.spec.factory(self.make_settings(), setup)
            except SlimeError as error:
                raise SkipTest(f"it cannot be built on this machine: {error}") from error
            try:
                yield built
            finally:
                with contextlib.suppress(Exception):  # a failed check leaves the tracker open
                    await call(built.close)


class RunHooksContract(Contract):
    """Contract of run hooks: inherit it and set `plugin`. Its hooks receive a whole, a resumed and a failed run."""

    plugin: ClassVar[object]
    """The plugin to check: an installed plugin's name, or the module or object with the hooks."""
    plugins: ClassVar[PluginSet] = ALL_INSTALLED
    """Plugins to load."""

    @check("HOK-001")
    def test_every_hook_exists(self) -> None:
        """A misspelt hook is never called. Use names from `slime_core.hookspecs`, and take `event` or no argument."""
        if not isinstance(self.plugin, str):
            faults = "; ".join(hook_faults(self.plugin))
            require(not faults, faults)
        else:
            found = [each for each in catalog_of(self.plugins).statuses if self.plugin in (each.plugin, each.name)]
            problem = "; ".join(map(str, found)) or f"no plugin {self.plugin!r} is installed"
            require(found and found[0].state is PluginState.LOADED, problem)
        if not any(self._hooks_of(event) for event in HOOK_OF_EVENT):
            raise SkipTest("it has no run hooks")

    @check("HOK-002", needs=("HOK-001", "HOK-004"))
    def test_it_accepts_every_event_of_a_run(self) -> None:
        """Accept every event that a run can send. If a hook raises, its work is lost, and the run only logs the error.

        A run can be resumed, fail before its first rollout, and be followed by another run in the same process.
        """
        for events in (_run, _resumed, _failed, _run):
            asyncio.run(self._replay(events))

    @check("HOK-003", needs=("HOK-002",))
    def test_it_does_not_change_the_events(self) -> None:
        """The trainer uses the groups and samples of an event. To change them, implement a role instead of a hook."""
        with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
            for event in _run(Path(folder)):
                before = copy.deepcopy(event)
                asyncio.run(self._send(event))
                require(repr(event) == repr(before), f"{HOOK_OF_EVENT[type(event)]} changed its event; copy it first")

    @check("HOK-004", needs=("HOK-001",))
    def test_it_does_not_block_the_event_loop(self) -> None:
        """The run waits while a hook blocks the event loop. Use `async def`, and `await` or `asyncio.to_thread`."""
        if stall := blocks(lambda: self._replay(_run)):
            raise AssertionError(stall)

    @check("HOK-005", needs=("HOK-002",))
    def test_it_leaves_nothing_running(self) -> None:
        """In `slime_run_end` and `slime_run_failed`, end everything that `slime_run_start` started."""

        async def pending() -> int:
            await self._replay(_run)
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        tasks = asyncio.run(pending())
        require(tasks == 0, f"{tasks} tasks are still running after the run")
        left = find_leaks(lambda: lambda: self._replay(_run))
        require(not left, f"it leaks {left.replace('calls', 'runs')}")

    @check("HOK-006", needs=("HOK-002",))
    def test_it_prints_nothing(self) -> None:
        """Standard output is for the progress display and for `--json`. Use `logging` instead of `print`."""
        text = capture_stdout(lambda: self._replay(_run))
        require(not text, f"it printed {text[:80]!r}; use `logging`")

    async def _replay(self, events: Callable[[Path], Iterator[Event]]) -> None:
        with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
            for event in events(Path(folder)):
                await self._send(event)

    async def _send(self, event: Event) -> None:
        for function, takes_event in self._hooks_of(type(event)):
            try:
                await call(function, *((event,) if takes_event else ()))
            except StopRun:
                return
            except Exception as error:
                raise AssertionError(f"{HOOK_OF_EVENT[type(event)]} raised {type(error).__name__}: {error}") from error

    def _hooks_of(self, event: type) -> Sequence[tuple[Callable[..., object], bool]]:
        return self._hooks[event]

    @cached_property
    def _hooks(self) -> Mapping[type, Sequence[tuple[Callable[..., object], bool]]]:
        if isinstance(self.plugin, str):
            catalog = catalog_of(self.plugins)
            names = {each.plugin for each in catalog.statuses if self.plugin in (each.plugin, each.name)}
            return {
                event: [(each.function, each.takes_event) for each in catalog.listeners(hook) if each.plugin in names]
                for event, hook in HOOK_OF_EVENT.items()
            }
        functions = {event: getattr(self.plugin, hook, None) for event, hook in HOOK_OF_EVENT.items()}
        return {
            event: [(function, bool(inspect.signature(function).parameters))] if function else []
            for event, function in functions.items()
        }


def _run(folder: Path) -> Iterator[Event]:
    groups, odd = varied_groups(), odd_groups()
    metrics = {"rollout/reward_mean": 0.5}
    yield RunStart(folder, rollout_id=0, num_rollout=2)
    for rollout in range(2):
        yield RolloutStart(rollout, weight_version=rollout)
        yield SamplesDone(rollout, groups[0].samples, evaluation=False)
        yield GroupsDone(rollout, groups[:2], {odd[0].id: "unscored"})
        yield RolloutEnd(rollout, kept=groups, dropped=odd, metrics=metrics)
        yield TrainStepEnd(rollout, step=rollout, metrics={"train/loss": -0.5})
        yield WeightsPublished(version=rollout + 1)
        yield CheckpointSaved(folder / "checkpoints" / str(rollout), rollout_id=rollout + 1)
        yield SamplesDone(rollout, groups[1].samples, evaluation=True)
        yield EvalEnd(rollout + 1, samples={"math": groups[1].samples}, metrics={"eval/math": 1.0})
    yield RunEnd(folder, rollout_id=2)


def _resumed(folder: Path) -> Iterator[Event]:
    yield CheckpointLoaded(folder / "checkpoints" / "4", rollout_id=5)
    yield RunStart(folder, rollout_id=5, num_rollout=6)
    yield RolloutStart(5, weight_version=5)
    yield SamplesDone(5, [], evaluation=False)
    yield RolloutEnd(5, kept=[], dropped=[], metrics={})
    yield RunEnd(folder, rollout_id=6)


def _failed(folder: Path) -> Iterator[Event]:
    yield RunStart(folder, rollout_id=0, num_rollout=6)
    yield RunFailed(folder, WorkerError("a worker died"))
