"""SpanLog: spans.jsonl, the timeline of a run's phases and samples; one line per row of metrics.

Timings differ from run to run, so neither samples nor checkpoints contain them. A resume does not truncate the file,
which records what the machine did. `slime trace` draws it.

    spans = SpanLog(run_dir / "spans.jsonl")
    with spans.phase("checkpoint", rollout_id=3): ...
    await spans.write(3)
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import RunFolderError
from slime_core.sample import GroupId, parse_count, parse_number
from slime_core.telemetry import run_folder_errors
from slime_core.telemetry.metrics import end_of_last_line, read_lines
from slime_core.telemetry.recording import SpanWriter

SCHEMA_VERSION = 1
LONGEST = 100_000
"""Maximum samples per line; further samples of a metrics row are not kept."""

Mark = tuple[str, int]
"""Name of a wait and its start, in microseconds after the line's `began`."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the loop's work."""

    name: str
    """Such as "generate" or "train"."""
    rollout_id: int
    """Number of the rollout; for an evaluation or a checkpoint, rollouts done before it."""
    began: int
    """Microseconds after the line's `began`."""
    ended: int
    """Microseconds after the line's `began`."""


@dataclass(frozen=True, slots=True)
class SampleSpan:
    """One period in flight of a drawn sample."""

    group: str
    """Identity of its group."""
    index: int | None
    """Its number in the group."""
    evaluation: bool
    """Whether it belongs to an evaluation."""
    marks: Sequence[Mark]
    """Its waits; each ends where the next begins."""
    ended: int
    """Microseconds after the line's `began`."""


@dataclass(frozen=True, slots=True)
class SpanLine:
    """Spans that ended between two rows of metrics."""

    rollout_id: int
    """Number of the metrics row's rollout."""
    began: float
    """Origin of the line's times, in seconds since 1970, UTC: equal in all lines of one process."""
    phases: Sequence[Phase]
    """Ordered by end."""
    samples: Sequence[SampleSpan]
    """Ordered by end."""


class SpanLog(SpanWriter):
    """Collects spans and appends them to a file. Opening it removes an incomplete last line.

    Raises:
        RunFolderError: the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with run_folder_errors(path, "open"), path.open("ab") as file:
            file.truncate(end_of_last_line(path))
        self._began, self._opened = time.time(), time.monotonic()
        self._phases: list[tuple[str, int, float, float]] = []
        self._samples: list[tuple[GroupId, int | None, bool, Sequence[tuple[str, float]], float]] = []

    def add_phase(self, name: str, rollout_id: int, began: float, ended: float) -> None:
        """Record a phase of the loop, in seconds of `time.monotonic`."""
        self._phases.append((name, rollout_id, began, ended))

    @contextmanager
    def phase(self, name: str, rollout_id: int) -> Iterator[None]:
        """Record the enclosed work as a phase of the loop, unless it raises."""
        began = time.monotonic()
        yield
        self.add_phase(name, rollout_id, began, time.monotonic())

    def add_sample(
        self, group: GroupId, index: int | None, evaluation: bool, marks: Sequence[tuple[str, float]], ended: float
    ) -> None:
        """Record a sample that is no longer in flight, in seconds of `time.monotonic`."""
        if len(self._samples) < LONGEST:
            self._samples.append((group, index, evaluation, marks, ended))

    async def write(self, rollout_id: int) -> None:
        """Append the spans recorded since the previous line, in a separate thread."""
        phases, samples = self._phases, self._samples
        if not phases and not samples:
            return
        self._phases, self._samples = [], []

        def append() -> None:
            line = {
                "schema_version": SCHEMA_VERSION,
                "rollout_id": rollout_id,
                "began": self._began,
                "phases": [[name, of, self._after(began), self._after(ended)] for name, of, began, ended in phases],
                "samples": [self._packed(*each) for each in samples],
            }
            data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
            with run_folder_errors(self.path, "write"), self.path.open("ab") as file:
                file.write(data)

        await asyncio.to_thread(append)

    def _packed(
        self, group: GroupId, index: int | None, evaluation: bool, marks: Sequence[tuple[str, float]], ended: float
    ) -> list[object]:
        flat = [part for what, at in marks for part in (what, self._after(at))]
        return [str(group), index, evaluation, flat, self._after(ended)]

    def _after(self, at: float) -> int:
        return round((at - self._opened) * 1e6)

    def clear(self) -> None:
        """Delete the file's content."""
        with run_folder_errors(self.path, "truncate"):
            self.path.write_bytes(b"")

    @staticmethod
    def read(path: Path, first: int = 0, last: int | None = None) -> list[SpanLine]:
        """The complete lines of some rollouts, oldest first; none if there is no file.

        Raises:
            RunFolderError: a complete line holds no spans; the message gives its number.
        """
        lines = [_parsed(path, number, text) for number, text in enumerate(read_lines(path), start=1)]
        return [each for each in lines if first <= each.rollout_id and (last is None or each.rollout_id <= last)]

    @staticmethod
    def read_group(path: Path, group: str) -> list[tuple[float, SampleSpan]]:
        """The spans of one group's samples, oldest first, each with the `began` that its times count from.

        Raises:
            RunFolderError: as `read` does.
        """
        named, found = json.dumps(group).encode(), list[tuple[float, SampleSpan]]()
        for number, text in enumerate(read_lines(path), start=1):
            if named in text:
                line = _parsed(path, number, text)
                found += [(line.began, each) for each in line.samples if each.group == group]
        return found


def _parsed(path: Path, number: int, text: bytes) -> SpanLine:
    try:
        line = json.loads(text)
        if line["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {line['schema_version']}, this slime-core reads {SCHEMA_VERSION}")
        phases = [Phase(str(name), *map(parse_count, others)) for name, *others in line["phases"]]
        samples = [
            SampleSpan(str(group), index, bool(evaluation), _marks(marks), parse_count(end))
            for group, index, evaluation, marks, end in line["samples"]
        ]
        return SpanLine(parse_count(line["rollout_id"]), parse_number(line["began"]), phases, samples)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise RunFolderError(f"{path}, line {number} is not a line of spans: {error}") from None


def _marks(flat: Sequence[object]) -> list[Mark]:
    marks = [(str(what), parse_count(at)) for what, at in zip(flat[::2], flat[1::2], strict=True)]
    if not marks:
        raise ValueError("a sample without a mark")
    return marks
