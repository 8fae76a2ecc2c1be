"""TrackerContract: what every tracker must keep, TRK-001 to TRK-007.

Example:

    class TestTensorBoard(TrackerContract):
        choice = "slime-trackers/tensorboard"
"""

import asyncio
import contextlib
import inspect
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import ClassVar
from unittest import SkipTest

from slime_core.errors import SlimeError
from slime_core.roles import Tracker, TrackerSetup, TrackerSpec
from slime_testing.blocking import blocks
from slime_testing.calling import call, left_behind
from slime_testing.contract import check, require
from slime_testing.protected import SEED
from slime_testing.role import RoleContract

ROWS: tuple[tuple[int, Mapping[str, float]], ...] = (
    (0, {"rollout/reward_mean": 0.25, "train/loss": -0.5}),
    (1, {"rollout/reward_mean": 0.5, "train/grad_norm": 1e-12, "eval/math/pass@1": 1}),
    (3, {f"plugin/reward/name-{number}/p50": 1e9 * number for number in range(50)}),
    (2, {"rollout/reward_mean": 0.5}),
    (2, {}),
)
"""Rows of a run that was resumed: the last steps come again."""


class TrackerContract(RoleContract[TrackerSpec]):
    """Inherit and name the tracker. It is given an empty folder as the run folder."""

    kind = TrackerSpec
    choice: ClassVar[str | TrackerSpec]
    """The tracker: a name for the catalog, or a spec."""

    @check("TRK-001")
    def test_the_factory_builds_a_tracker(self) -> None:
        """The core awaits `tracker.log(step, metrics)` and `tracker.close()`: both are `async def`.

        A factory whose library is not installed raises `ConfigError` and says what to install.
        """

        async def built() -> list[str]:
            async with self._tracker() as tracker:
                methods = {name: getattr(tracker, name, None) for name in ("log", "close")}
                return [name for name, method in methods.items() if not inspect.iscoroutinefunction(method)]

        wrong = asyncio.run(built())
        require(not wrong, f"{' and '.join(wrong)} must be `async def`")

    @check("TRK-002", needs=("TRK-001", "TRK-004"))
    def test_it_takes_every_row(self) -> None:
        """Names hold "/", "@" and "-"; new names appear late; after a resume steps come again; a row may be empty."""
        asyncio.run(self._played())

    @check("TRK-003", needs=("TRK-002",))
    def test_it_leaves_the_metrics_as_they_were(self) -> None:
        """Every tracker is given the same mapping: copy it before you add to it (`{**metrics, ...}`)."""
        given = {"rollout/reward_mean": 0.25, "train/loss": -0.5}

        async def logged() -> None:
            async with self._tracker() as tracker:
                await tracker.log(0, given)
                await tracker.close()

        asyncio.run(logged())
        require(given == {"rollout/reward_mean": 0.25, "train/loss": -0.5}, f"it changed the metrics to {given}")

    @check("TRK-004", needs=("TRK-001",))
    def test_the_event_loop_goes_on(self) -> None:
        """The run waits while a tracker writes: `await` the network, or `asyncio.to_thread` what blocks."""
        if stall := blocks(self._logged):
            raise AssertionError(stall)

    @check("TRK-005", needs=("TRK-002",))
    def test_it_closes_whatever_happened(self) -> None:
        """A run may end before its first row, and close twice: flush what there is, and do nothing the second time."""

        async def closed() -> None:
            async with self._tracker() as tracker:
                await tracker.close()
                await tracker.close()

        asyncio.run(closed())

    @check("TRK-006", needs=("TRK-002",))
    def test_it_leaves_nothing_running(self) -> None:
        """`close` ends every task, thread, process, file and connection that the tracker started."""

        async def pending() -> int:
            await self._logged()
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        tasks = asyncio.run(pending())
        require(tasks == 0, f"{tasks} tasks are still running after close")
        left = left_behind(lambda: self._logged)
        require(not left, f"{left} are still there")

    @check("TRK-007", needs=("TRK-002",))
    def test_it_writes_into_the_run_folder_alone(self) -> None:
        """`setup.run_dir` is the run's; the directory in which the command was started is the user's."""
        here = Path.cwd()
        with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
            os.chdir(folder)
            try:
                asyncio.run(self._played())
            finally:
                os.chdir(here)
            written = sorted(path.name for path in Path(folder).iterdir())
        require(not written, f"it wrote {', '.join(written)} into the current directory")

    async def _played(self) -> None:
        async with self._tracker() as tracker:
            for step, metrics in ROWS:
                await call(tracker.log, step, metrics)
            await call(tracker.close)

    async def _logged(self) -> None:
        """Log one row with a new tracker, and close it."""
        async with self._tracker() as tracker:
            await call(tracker.log, *ROWS[0])
            await call(tracker.close)

    @contextlib.asynccontextmanager
    async def _tracker(self) -> AsyncIterator[Tracker]:
        with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:
            setup = TrackerSetup(self.make, SEED, run_dir=Path(folder))
            try:
                made = self.spec.factory(self.validated(), setup)
            except SlimeError as error:
                raise SkipTest(f"it cannot be built here: {error}") from error
            try:
                yield made
            finally:
                with contextlib.suppress(Exception):  # a failed check has left the tracker open
                    await call(made.close)
