"""Honest trackers and run hooks, and each way of breaking them."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

from slime_core import hookimpl
from slime_core.events import RolloutEnd, RunStart
from slime_core.roles import Settings, TrackerSetup, TrackerSpec
from slime_testing import Contract, RunHooksContract, TrackerContract

# --- trackers


class Csv:
    """Rows in a file of the run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = (folder / "rows.csv").open("a")

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.file.write(f"{step} {dict(metrics)}\n")

    async def close(self) -> None:
        self.file.close()


def logging(act: Callable[[Csv, int, dict[str, float]], object]) -> type[Contract]:
    """The contract of a tracker that does something with each row."""

    async def log(self: Csv, step: int, metrics: dict[str, float]) -> None:
        act(self, step, metrics)

    return tracker(type("Logs", (Csv,), {"log": log}))


class OnlyOnwards(Csv):
    last = -1

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        assert step > self.last, "steps go on"
        self.last = step


class ClosesOnce(Csv):
    async def close(self) -> None:
        assert not self.file.closed
        self.file.close()


class NeverCloses(Csv):
    async def close(self) -> None:
        OPEN.append(os.dup(self.file.fileno()) if not self.file.closed else 0)
        self.file.close()


class SavesHere(Csv):
    async def close(self) -> None:
        await super().close()
        Path("summary.txt").write_text("done")  # noqa: ASYNC240
        if Path.cwd() == HOME:
            Path("summary.txt").unlink()  # noqa: ASYNC240


OPEN: list[object] = []
HOME = Path.cwd()


def tracker(kind: type[Csv]) -> type[Contract]:
    def factory(settings: Settings, setup: TrackerSetup) -> Csv:
        return kind(setup.run_dir)

    class Subject(TrackerContract):
        choice = TrackerSpec("subject", factory)

    return Subject


# --- run hooks


def hooks(**functions: Callable[..., object]) -> type[Contract]:
    """The contract of a plugin with these hooks."""
    marked = SimpleNamespace(**{name: hookimpl(function) for name, function in functions.items()})

    class Subject(RunHooksContract):
        plugin = marked

    return Subject


async def counts(event: RolloutEnd) -> None:
    await asyncio.sleep(0)
    COUNTED.append(len(event.kept))
    del COUNTED[:-1]


def resets_rewards(event: RolloutEnd) -> None:
    for group in event.kept:
        group.samples[0].reward = 0.0


async def watches_on(event: RunStart) -> None:
    OPEN.append(asyncio.ensure_future(asyncio.sleep(60)))


def thread_a_run(event: RunStart) -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


COUNTED: list[int] = []

GOOD = [tracker(Csv), hooks(slime_rollout_end=counts)]
MUTANTS = {
    "TRK-001": [tracker(type("NotAsync", (Csv,), {"log": lambda self, step, metrics: None}))],
    "TRK-002": [logging(lambda csv, step, metrics: max(metrics.values())), tracker(OnlyOnwards)],
    "TRK-003": [logging(lambda csv, step, metrics: metrics.update(step=step))],
    "TRK-004": [logging(lambda csv, step, metrics: time.sleep(0.3))],
    "TRK-005": [tracker(ClosesOnce)],
    "TRK-006": [tracker(NeverCloses)],
    "TRK-007": [tracker(SavesHere)],
    "HOK-001": [hooks(slime_rolout_end=counts), hooks(slime_rollout_end=lambda evnt: None)],
    "HOK-002": [hooks(slime_samples_done=lambda event: COUNTED.append(event.samples[0].response_length))],
    "HOK-003": [hooks(slime_rollout_end=resets_rewards)],
    "HOK-004": [hooks(slime_rollout_end=lambda event: time.sleep(0.3))],
    "HOK-005": [hooks(slime_run_start=watches_on), hooks(slime_run_start=thread_a_run)],
    "HOK-006": [hooks(slime_run_end=lambda event: print("done"))],
}
