"""What other packages add to a run: what is kept for readers of a finished run.

An entry point of the group `slime.run` offers each part. A run needs none of them: without slime-view it writes
metrics, ledger and checkpoints, and no samples. Each base class here keeps nothing, and is what such a run has.

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
class Generated:
    """The groups of a rollout's shard."""

    kept: Sequence[Group]
    """In order of the draws; without the buffer's notes."""
    dropped: Sequence[Group]
    """The others."""
    reasons: Mapping[GroupId, str]
    """Why each dropped group was."""
    failed: Sequence[Group] = ()
    """Samples that failed, by the groups that went on without them."""


KeeperT = TypeVar("KeeperT")


class SampleWriter:
    """Keeps the samples of a run; slime-view's `SampleStore` is one."""

    async def write(self, rollout_id: int, generated: Generated, draw: Draw) -> None:
        """Keep what a rollout generated, and what it is trained on."""

    async def write_eval(self, rollout_id: int, samples: Mapping[str, Sequence[Sample]]) -> None:
        """Keep the samples of an evaluation, by data set."""

    async def flush(self) -> None:
        """Wait until everything is on disk."""

    def rewind(self, rollouts: int | None) -> None:
        """Remove what came after a commit point of so many rollouts; None removes everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...


class SpanWriter:
    """Keeps what a run did when; slime-view's `SpanLog` is one. Times are seconds of `time.monotonic`."""

    def add_phase(self, name: str, rollout_id: int, began: float, ended: float) -> None:
        """Note a part of the loop's work."""

    def phase(self, name: str, rollout_id: int) -> AbstractContextManager[None]:
        """Note what is done inside as a part of the loop's work."""
        return nullcontext()

    def add_sample(
        self, group: GroupId, index: int | None, evaluation: bool, marks: Sequence[tuple[str, float]], ended: float
    ) -> None:
        """Note a sample that is no longer in flight."""

    async def write(self, rollout_id: int) -> None:
        """Append what was noted since the line before."""

    def clear(self) -> None:
        """Remove what is kept so far."""


class RaisedAlarm(Protocol):
    """What an alarm saw; `str()` is the line that is shown."""

    @property
    def name(self) -> AlarmName:
        """Which alarm, as in `stop_on_alarms`."""
        ...


class AlarmWatch:
    """Looks at rows of metrics in their order; slime-view's `Alarms` is one."""

    def look(self, row: MetricsRow) -> Sequence[RaisedAlarm]:
        """The alarms that this row raises and the row before did not."""
        return ()


def recorder(name: str, without: type[KeeperT], *given: object) -> KeeperT:
    """What an installed package offers under a name, made with what is given; without one, what keeps nothing."""
    entry = entry_point_of(PARTS, name)
    return cast(Callable[..., KeeperT], entry.load())(*given) if entry else without()


def write_run_report(run_dir: Path) -> Sequence[tuple[str, Path]]:
    """Write the report of a run, and name what was written; nothing without a package that writes reports."""
    entry = entry_point_of(PARTS, "report")
    return cast(Callable[[Path], Sequence[tuple[str, Path]]], entry.load())(run_dir) if entry else ()
