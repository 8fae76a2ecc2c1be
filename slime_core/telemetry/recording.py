"""Interfaces of the packages that record a run for later analysis.

Entry points of the group `slime.run` provide the parts. All are optional: without slime-view, a run writes metrics,
ledger and checkpoints, but no samples. The base classes here record nothing; a run uses them without such a package.

Example:

    with recorder("samples", SampleWriter, folder.samples) as samples:
        await samples.write(rollout_id, generated, draw)
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar, cast

from slime_core.catalog import PARTS
from slime_core.config import AlarmName
from slime_core.lazy import entry_point_of
from slime_core.roles import Draw
from slime_core.sample import Group, GroupId, Sample
from slime_core.telemetry.metrics import MetricsRow


@dataclass(frozen=True, slots=True)
class GeneratedGroups:
    """All groups that a rollout generated."""

    kept: Sequence[Group]
    """Groups to train on, in the order that they were drawn, without the buffer's notes."""
    dropped: Sequence[Group]
    """The other groups."""
    reasons: Mapping[GroupId, str]
    """Reason of each dropped group."""
    failed: Sequence[Group] = ()
    """Failed samples, in the groups that continued without them."""


RecorderT = TypeVar("RecorderT")


class SampleWriter:
    """Records the samples of a run, for example slime-view's `SampleStore`."""

    async def write(self, rollout_id: int, generated: GeneratedGroups, draw: Draw) -> None:
        """Record the groups that a rollout generated and the draw that it trains on."""

    async def write_eval(self, rollout_id: int, samples: Mapping[str, Sequence[Sample]]) -> None:
        """Record the samples of an evaluation, by data set."""

    async def flush(self) -> None:
        """Wait until all records are on disk."""

    def rewind(self, rollouts: int | None) -> None:
        """Remove records after a commit point of `rollouts` rollouts; None removes all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...


class SpanWriter:
    """Records when a run did what, for example slime-view's `SpanLog`. Times are seconds of `time.monotonic`."""

    def add_phase(self, name: str, rollout_id: int, began: float, ended: float) -> None:
        """Record a span of the loop."""

    def phase(self, name: str, rollout_id: int) -> AbstractContextManager[None]:
        """Context manager that records a span of the loop."""
        return nullcontext()

    def add_sample(
        self, group: GroupId, index: int | None, evaluation: bool, marks: Sequence[tuple[str, float]], ended: float
    ) -> None:
        """Record a sample that is no longer in flight."""

    async def write(self, rollout_id: int) -> None:
        """Append the records since the last line."""

    def clear(self) -> None:
        """Remove all records."""


class RaisedAlarm(Protocol):
    """A raised alarm; `str()` is the line that is shown."""

    @property
    def name(self) -> AlarmName:
        """Name of the alarm, as in `stop_on_alarms`."""
        ...


class AlarmWatch:
    """Checks rows of metrics in order, for example slime-view's `Alarms`."""

    def check(self, row: MetricsRow) -> Sequence[RaisedAlarm]:
        """Return the alarms that this row raises and the previous row did not."""
        return ()


def recorder(name: str, without: type[RecorderT], *given: object) -> RecorderT:
    """Return the recorder that an installed package provides under a name, built with `given`; else `without()`."""
    entry = entry_point_of(PARTS, name)
    return cast(Callable[..., RecorderT], entry.load())(*given) if entry else without()


def write_run_report(run_dir: Path) -> Sequence[tuple[str, Path]]:
    """Write a run's report and return what was written; empty if no package writes reports."""
    entry = entry_point_of(PARTS, "report")
    return cast(Callable[[Path], Sequence[tuple[str, Path]]], entry.load())(run_dir) if entry else ()
