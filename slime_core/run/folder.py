"""The run folder: all files that one run writes, its lock, and the stop on Ctrl-C.

Only one process can hold the lock. The first Ctrl-C finishes the step and saves; the second one stops at once. SIGTERM
and SIGHUP count as one Ctrl-C.

Example:

    with RunFolder.open(path, config) as folder: ...      # created if missing, refused if it holds another run
"""

import asyncio
import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Self

from slime_core.config import write_toml
from slime_core.errors import RunFolderError
from slime_core.outputs import check_tree, mark_run
from slime_core.run.checkpoint import clear_unfinished, list_checkpoints
from slime_core.sample import Json
from slime_core.telemetry import run_folder_errors

NOTHING_TRAINED = "rollout_000000"
SCRATCH = "scratch"
"""Removed when a run opens the folder; workers keep links and sockets there."""


class RunFolder:
    """Paths of one run, and its lock."""

    def __init__(self, root: Path) -> None:
        """Set the paths; does not touch the disk."""
        self.root = root
        self.config_file = root / "run.toml"
        self.metrics = root / "metrics.jsonl"
        self.ledger = root / "ledger.jsonl"
        self.checkpoints = root / "checkpoints"
        self.samples = root / "samples"
        self.spans = root / "spans.jsonl"
        self.logs = root / "logs"
        self.scratch = root / SCRATCH
        self._lock: FileIO | None = None
        self._config = ""

    @classmethod
    def open(cls, root: Path, config: Mapping[str, Json]) -> "RunFolder":
        """Create or reopen a run folder for a configuration, and lock it.

        Writes the configuration to run.toml if nothing was trained yet. Otherwise a run first compares it with its
        checkpoint's, and then calls `write_config`.

        Raises:
            RunFolderError: it cannot be written, another process runs in it, or a link in it leads out of it.
        """
        folder = cls(root)
        try:
            with run_folder_errors(root, "use run folder"):
                root.mkdir(parents=True, exist_ok=True)
                check_tree(root, skip=SCRATCH)
                folder._acquire()
                mark_run(root)
                for directory in (folder.checkpoints, folder.samples, folder.logs):
                    directory.mkdir(exist_ok=True)
                shutil.rmtree(folder.scratch, ignore_errors=True)
                folder.scratch.mkdir()
                clear_unfinished(folder.checkpoints)
                folder._config = write_toml(config)
                if all(path.name == NOTHING_TRAINED for path in list_checkpoints(folder.checkpoints)):
                    folder.write_config()
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def locked(cls, root: Path) -> "RunFolder":
        """Lock an existing run folder to change its files, so that no run can start in it.

        Raises:
            RunFolderError: another process runs in it, or it cannot be written.
        """
        folder = cls(root)
        with run_folder_errors(root, "use run folder"):
            check_tree(root, skip=SCRATCH)
            folder._acquire()
        return folder

    def write_config(self, text: str = "") -> str:
        """Write the configuration, or `text`, to run.toml; returns its old text.

        Raises:
            OSError: it cannot be written.
        """
        old = self.config_file.read_text("utf-8", "replace") if self.config_file.is_file() else ""
        temporary = self.config_file.with_suffix(".tmp")
        temporary.write_text(text or self._config, encoding="utf-8")
        temporary.rename(self.config_file)
        return old

    def _acquire(self) -> None:
        lock = (self.root / "lock").open("a+b", buffering=0)  # closing must not fail on a full disk
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().decode() or "another process"
            lock.close()
            raise RunFolderError(f"{owner} is running in {self.root}: wait for it, or give another --save") from None
        except OSError:
            lock.close()
            raise
        # Only after the lock is taken: `close` clears scratch files if this process holds the lock.
        self._lock = lock
        lock.truncate(0)
        lock.write(f"process {os.getpid()}".encode())

    def close(self) -> None:
        """Release the lock and remove scratch files; idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class StopRequest:
    """Whether the run should end early."""

    requested = False
    """Whether to end after the current step."""
    complete = False
    """Whether a run hook or an alarm ended the run as complete."""

    def request(self, complete: bool = False) -> None:
        """Request an end after the current step; with `complete`, the run counts as complete."""
        self.requested = True
        self.complete = self.complete or complete


@contextmanager
def on_signals(stop_request: StopRequest, notify: Callable[[str], None]) -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into a stop request; SIGINT after any of them cancels the current task.

    A SIGHUP that is ignored, as under nohup, stays ignored.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    signalled = False

    def stop(at_once: bool) -> None:
        nonlocal signalled
        if at_once and signalled and task is not None:
            notify("stopping at once; the newest checkpoint stays")
            task.cancel()
        elif not signalled:
            signalled = True
            stop_request.request()
            notify("finishing this step, then saving; press Ctrl-C again to stop at once")

    handled = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.add(signal.SIGHUP)
    for each in handled:
        loop.add_signal_handler(each, stop, each is signal.SIGINT)
    try:
        yield
    finally:
        for each in handled:
            loop.remove_signal_handler(each)
