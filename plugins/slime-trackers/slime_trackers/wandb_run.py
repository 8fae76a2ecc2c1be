"""Weights & Biases tracker: one W&B run per run folder, online or as files in the run folder's `wandb/`.

Example:

    tracker = wandb_tracker(WandbSettings(project="sums", mode="offline"), setup)
"""

import os
import struct
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.errors import ConfigError
from slime_core.roles import TrackerSetup
from slime_trackers.settings import WandbSettings
from slime_trackers.tracker import OpenRun, ServiceTracker, require_library

if TYPE_CHECKING:
    import wandb


CLOSING_S = 20.0
"""Seconds that W&B's service process may take to end after its driver."""


def wandb_tracker(settings: WandbSettings, setup: TrackerSetup) -> ServiceTracker:
    """The tracker's factory.

    Raises:
        ConfigError: the library is not installed, or an online run has no API key.
    """
    require_library("wandb", "wandb")
    if (settings.mode or os.environ.get("WANDB_MODE", "online")) == "online" and not has_key():
        raise ConfigError(
            "the tracker 'wandb' has no API key. Set WANDB_API_KEY in the environment, or run `wandb login`. Or set "
            '[tracker.wandb] mode = "offline", which writes to the run folder; upload later with `wandb sync`.'
        )
    return ServiceTracker("wandb", WandbRun(settings, setup.run_dir), setup.run_dir)


def has_key() -> bool:
    """Whether W&B may find credentials. Without credentials it would prompt on the terminal."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    netrc, config = os.environ.get("NETRC"), os.environ.get("WANDB_CONFIG_DIR")
    files = [Path(netrc)] if netrc else [Path.home() / ".netrc", Path.home() / "_netrc"]
    files.append((Path(config) if config else Path.home() / ".config" / "wandb") / "settings")
    return any(path.is_file() for path in files)


class WandbRun:
    """One run; W&B merges rows of the same step and requires ascending steps."""

    def __init__(self, settings: WandbSettings, run_dir: Path) -> None:
        self._settings = settings
        self._run_dir = run_dir
        self._run: wandb.Run | None = None

    def open(self, run: str | None, config: Mapping[str, object]) -> OpenRun:
        """Start a run, or continue the run with this id."""
        # Set before the import. Otherwise W&B reports errors to its developers, in offline mode too.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        if "wandb" not in sys.modules:
            # A parent process that uses W&B passes its service on. The service outlives a killed driver and keeps its
            # run open, so a resume would fail with "run ID … is in use".
            os.environ.pop("WANDB_SERVICE", None)
        import wandb

        options = self._settings
        run_id = options.run_id or run or uuid.uuid4().hex[:8]
        settings = wandb.Settings(
            console="off",  # the run's display draws on the terminal
            silent=options.mode == "offline",
            reinit="create_new",  # do not end a run that the user's code has in this process
            login_timeout=1,
        )
        if options.host:
            settings.base_url = options.host
        wait_until_closed(offline_files(self._run_dir, run_id))
        self._run = wandb.init(
            project=options.project,
            entity=options.team,
            group=options.group,
            name=options.name or self._run_dir.resolve().name,
            tags=options.tags or None,
            mode=options.mode,
            id=run_id,
            resume="allow",
            dir=str(self._run_dir),
            config=dict(config),
            allow_val_change=True,
            settings=settings,
        )
        offline = self._run.settings.mode == "offline"
        # A server knows the next step. Offline files are written every 15 seconds, so read the last step from them.
        return OpenRun(run_id, last_offline_step(self._run_dir, run_id) if offline else self._run.step - 1)

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue a row; the library sends it in the background."""
        assert self._run is not None
        self._run.log(dict(metrics), step=step)

    def finish(self) -> None:
        """Wait until everything is sent or written."""
        if self._run is not None:
            self._run.finish()
            self._run = None


def offline_files(run_dir: Path, run_id: str) -> list[Path]:
    """The offline files of a run."""
    return sorted((run_dir / "wandb").glob(f"offline-run-*-{run_id}/run-{run_id}.wandb"))


def wait_until_closed(files: Sequence[Path]) -> None:
    """Wait until no process has these files open: W&B's service may write for a moment after its driver was killed.

    Only Linux lists open files in /proc. On other systems this returns at once.
    """
    names = {str(file.resolve()) for file in files}
    until = time.monotonic() + CLOSING_S
    while names and time.monotonic() < until and any(map(names.__contains__, _open_files())):
        time.sleep(0.1)


def _open_files() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            for link in (process / "fd").iterdir():
                with suppress(OSError):
                    yield str(link.readlink())


def last_offline_step(run_dir: Path, run_id: str) -> int:
    """The last step in a run's offline files; -1 before the first."""
    from wandb.proto.wandb_internal_pb2 import Record

    last = -1
    for path in offline_files(run_dir, run_id):
        for data in records(path.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                last = max(last, record.history.step.num)
    return last


def records(data: bytes) -> Iterator[bytes]:
    """Records of a W&B file: a header of seven bytes, then LevelDB's log format. The last record may be truncated.

    Source: https://github.com/google/leveldb/blob/main/doc/log_format.md
    """
    block, head, at, part = 32768, struct.Struct("<IHB"), 7, b""
    while at + head.size <= len(data):
        left = block - at % block
        if left < head.size:
            at += left
            continue
        _, length, kind = head.unpack_from(data, at)
        if at + head.size + length > len(data):
            return
        part += data[at + head.size : at + head.size + length]
        at += head.size + length
        if kind in (1, 4):  # a whole record, or the last part of a record
            yield part
            part = b""
