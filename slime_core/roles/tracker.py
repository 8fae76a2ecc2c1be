"""Tracker: sends metrics somewhere else than the run folder's own metrics.jsonl."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Setup, Spec


@dataclass(frozen=True, slots=True)
class TrackerSetup(Setup):
    """What a tracker's factory is given."""

    run_dir: Path
    """The run folder."""


@runtime_checkable
class Tracker(Protocol):
    """Receives every metrics row once, in order; after a resume, rows from the resumed step on come again."""

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of one step."""
        ...

    async def close(self) -> None:
        """Flush."""
        ...


@dataclass(frozen=True)
class TrackerSpec(Spec[Tracker]):
    """Offers a tracker."""

    role: ClassVar[str] = "tracker"
    many: ClassVar[bool] = True
