"""Trackio tracker: one Trackio run per run folder, in Trackio's local folder, on a Space or on a server.

Example:

    tracker = trackio_tracker(TrackioSettings(project="sums"), setup)
"""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.roles import TrackerSetup
from slime_trackers.settings import TrackioSettings
from slime_trackers.tracker import OpenRun, ServiceTracker, require_library

if TYPE_CHECKING:
    import trackio


def trackio_tracker(settings: TrackioSettings, setup: TrackerSetup) -> ServiceTracker:
    """The tracker's factory.

    Raises:
        ConfigError: the library is not installed.
    """
    require_library("trackio", "trackio")
    return ServiceTracker("trackio", TrackioRun(settings, setup.run_dir), setup.run_dir)


class TrackioRun:
    """One run; Trackio identifies the runs of a project by name."""

    def __init__(self, settings: TrackioSettings, run_dir: Path) -> None:
        self._settings = settings
        self._run_dir = run_dir
        self._run: trackio.Run | None = None

    def open(self, run: str | None, config: Mapping[str, object]) -> OpenRun:
        """Start a run, or continue the run with this name."""
        import trackio

        options = self._settings
        # A random suffix: two run folders with the same name must be two runs.
        name = run or options.name or f"{self._run_dir.resolve().name}-{uuid.uuid4().hex[:6]}"
        self._run = trackio.init(
            project=options.project,
            name=name,
            group=options.group,
            space_id=options.space,
            server_url=options.server_url,
            config=dict(config),
            resume="never" if run is None else "allow",
            embed=False,
        )
        # Trackio keeps rows in memory for half a second. No public call returns the last stored step.
        following = getattr(self._run, "_next_step", None)
        return OpenRun(name, None if following is None else following - 1)

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue a row; the library writes or sends it in the background."""
        assert self._run is not None
        self._run.log(dict(metrics), step=step)

    def finish(self) -> None:
        """Wait until everything is written or sent."""
        if self._run is not None:
            self._run.finish()
            self._run = None
