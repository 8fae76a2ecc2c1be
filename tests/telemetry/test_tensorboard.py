import asyncio
from pathlib import Path

import pytest

from slime_core.roles import Settings, Tracker, TrackerSetup
from slime_trackers.tensorboard_tracker import tensorboard_tracker


def make_nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def track(run_dir: Path, rows: list[tuple[int, dict[str, float]]]) -> None:
    """What one process of a run does."""
    tracker = tensorboard_tracker(Settings(), TrackerSetup(make_nothing, 0, run_dir))
    assert isinstance(tracker, Tracker)

    async def log_all() -> None:
        for step, metrics in rows:
            await tracker.log(step, metrics)
        await tracker.close()

    asyncio.run(log_all())


def scalars(run_dir: Path, tag: str) -> list[tuple[int, float]]:
    """A curve as TensorBoard itself reads it."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run_dir / "tensorboard"))
    events.Reload()
    return [(event.step, round(event.value, 4)) for event in events.Scalars(tag)]


def test_a_resumed_curve_does_not_double_back(tmp_path: Path) -> None:
    track(tmp_path, [(step, {"r": 0.1}) for step in range(6)])
    track(tmp_path, [(step, {"r": 0.2}) for step in range(3, 8)])
    track(tmp_path, [(step, {"r": 0.3}) for step in range(5, 7)])
    assert scalars(tmp_path, "r") == [(0, 0.1), (1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2), (5, 0.3), (6, 0.3)]
