"""TensorBoard tracker: scalars as event files in run_dir/tensorboard, written without torch or TensorFlow.

Example:

    tracker = tensorboard_tracker(Settings(), TrackerSetup(make, seed, run_dir))
    await tracker.log(3, {"rollout/raw_reward": 0.4})
"""

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from slime_core.errors import PluginError
from slime_core.roles import Settings, TrackerSetup
from slime_core.telemetry import run_folder_errors


class _Event(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802  # protobuf's name


def tensorboard_tracker(settings: Settings, setup: TrackerSetup) -> "TensorBoardTracker":
    """The tracker's factory.

    Raises:
        PluginError: the extra `tensorboard` is not installed.
    """
    try:
        import tensorboard.compat.proto.event_pb2  # type: ignore[import-untyped]  # ships no types  # noqa: F401
    except ModuleNotFoundError as error:
        raise PluginError(
            f"the tracker 'tensorboard' needs the package {error.name}, which is not installed. Run "
            "`pip install 'tensorboard>=2.18'`, or choose another tracker."
        ) from None
    return TensorBoardTracker(setup.run_dir)


class TensorBoardTracker:
    """Writes one event file per process. The first row of a process tells TensorBoard to discard that step and later
    steps of earlier processes, so a resumed curve never goes backwards.
    """

    def __init__(self, run_dir: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]  # ships no types

        self._event, self._session = event_pb2.Event, event_pb2.SessionLog
        self._summary = summary_pb2.Summary
        directory = run_dir / "tensorboard"
        with run_folder_errors(directory, "make"):
            directory.mkdir(parents=True, exist_ok=True)
            self._continues = any(directory.iterdir())
            # TensorBoard reads files in the order of their names, so names begin with a time; nanoseconds are unique.
            name = f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}"
            self._file = (directory / name).open("wb")
        self._records = RecordWriter(self._file)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        self._first = True

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar per metric."""
        if self._first and self._continues:
            self._forget_from(step)
        self._first = False
        self._scalars(step, metrics)
        self._file.flush()

    async def close(self) -> None:
        """Flush and close the event file."""
        self._file.close()

    def _forget_from(self, step: int) -> None:
        restart = self._session(status=self._session.START)
        self._write(self._event(wall_time=time.time(), step=step, session_log=restart))

    def _scalars(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        if values:
            self._write(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def _write(self, event: "_Event") -> None:
        self._records.write(event.SerializeToString())
