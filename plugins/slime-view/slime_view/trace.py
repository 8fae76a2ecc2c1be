"""Trace: the spans of a run in Chrome's trace format, for Perfetto; times are microseconds from the first span.

Overlapping spans are on separate tracks: the loop, the trainer, a lane for each sample and each group in flight, and
the number of samples in each wait.

Example:

    trace = Trace.of(Path("runs/first"), first=10, last=19)
    json.dump(trace.to_dict(), file)
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import cast

from slime_core.errors import RunFolderError
from slime_core.rollout.calls import NOT_STARTED, WAITING_FOR_SLOT
from slime_core.run import GroupState
from slime_core.run.ledger import Line, read_ledger
from slime_core.sample import Json
from slime_view.ledger_view import read_resumes
from slime_view.spans import SampleSpan, SpanLine, SpanLog

LOOP, TRAINER, SAMPLES, EVALUATIONS, GROUPS, WAITING = range(1, 7)
_PROCESSES = {
    LOOP: "loop",
    TRAINER: "trainer",
    SAMPLES: "samples",
    EVALUATIONS: "samples of evaluations",
    GROUPS: "groups",
    WAITING: "samples that wait for",
}
STEPS = "optimizer steps"
OF_ROLLOUT = ("generate", "read", "train", "publish")
"""Phases that follow one another and make up a rollout."""
QUEUE = (NOT_STARTED, WAITING_FOR_SLOT)
GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time on a track."""

    name: str
    began: int
    ended: int
    about: Mapping[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class Trace:
    """The events of some rollouts."""

    run: Path
    """The run folder."""
    events: list[dict[str, Json]] = field(default_factory=list)
    """Chrome's trace events; complete events on one track are disjoint or nested."""
    loop_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of the loop by phase."""
    samples_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of all samples by kind of wait, including evaluations."""
    origin: float = 0.0
    """Origin of the times, in seconds since 1970."""

    @classmethod
    def of(cls, run: Path, first: int = 0, last: int | None = None) -> "Trace":
        """The trace of a range of rollouts.

        Raises:
            RunFolderError: the run has no spans, or none of these rollouts, or its files are damaged.
        """
        lines = SpanLog.read(run / "spans.jsonl", first, last)
        if not lines:
            there = sorted({line.rollout_id for line in SpanLog.read(run / "spans.jsonl")})
            has = f"has spans of rollouts {there[0]} to {there[-1]}" if there else "has none"
            raise RunFolderError(f"{run / 'spans.jsonl'} {has}: runs of `slime train` and `slime sft` write them")
        trace = cls(run)
        starts = [line.began + each.began / 1e6 for line in lines for each in line.phases]
        starts += [line.began + each.marks[0][1] / 1e6 for line in lines for each in line.samples]
        trace.origin = min(starts)
        trace._add_phases(lines)
        trace._add_samples(lines)
        trace._add_groups(lines)
        trace._add_resumes()
        return trace

    def to_dict(self) -> dict[str, Json]:
        """The trace as a JSON document."""
        names = [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
            for pid, name in _PROCESSES.items()
        ]
        events = cast(list[Json], [*names, *self.events])
        return {
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {"run": str(self.run), "began": self.origin},
        }

    def _at(self, line: SpanLine, at: int) -> int:
        return round((line.began - self.origin) * 1e6) + at

    def _add(self, pid: int, tid: int, span: Span) -> None:
        event: dict[str, Json] = {
            "ph": "X",
            "name": span.name,
            "ts": span.began,
            "dur": span.ended - span.began,
            "pid": pid,
            "tid": tid,
        }
        self.events.append(event | ({"args": dict(span.about)} if span.about else {}))

    def _add_phases(self, lines: Sequence[SpanLine]) -> None:
        for line in lines:
            spans = [Span(each.name, self._at(line, each.began), self._at(line, each.ended)) for each in line.phases]
            if parts := [each for each in spans if each.name in OF_ROLLOUT]:
                self._add(LOOP, 1, Span(f"rollout {line.rollout_id}", parts[0].began, parts[-1].ended))
            for phase, span in zip(line.phases, spans, strict=True):
                about = {"rollout_id": phase.rollout_id}
                self._add(TRAINER if span.name == STEPS else LOOP, 1, replace(span, about=about))
                if span.name != STEPS:
                    self.loop_s[span.name] += (span.ended - span.began) / 1e6

    def _add_samples(self, lines: Sequence[SpanLine]) -> None:
        lanes: defaultdict[int, Lanes] = defaultdict(Lanes)
        changes: list[tuple[int, str, int]] = []
        for line in lines:
            for sample in sorted(line.samples, key=lambda each: each.marks[0][1]):
                spans = self._parts(line, sample)
                pid = EVALUATIONS if sample.evaluation else SAMPLES
                lane = lanes[pid].lane(spans[0].began, spans[0].ended)
                for span in spans:
                    self._add(pid, lane, span)
                for span in self._waits(line, sample):
                    if span.began == span.ended:
                        continue
                    changes += [(span.began, span.name, 1), (span.ended, span.name, -1)]
                    self.samples_s[span.name] += (span.ended - span.began) / 1e6
        now: Counter[str] = Counter()
        for at, together in groupby(sorted(changes), key=lambda each: each[0]):
            touched = set()
            for _, name, change in together:
                now[name] += change
                touched.add(name)
            for name in sorted(touched):
                counted: dict[str, Json] = {"samples": now[name]}
                self.events.append({"ph": "C", "name": name, "ts": at, "pid": WAITING, "tid": 0, "args": counted})

    def _waits(self, line: SpanLine, sample: SampleSpan) -> Iterator[Span]:
        for what, began, ended in waits_of(sample):
            yield Span(what, self._at(line, began), self._at(line, ended))

    def _parts(self, line: SpanLine, sample: SampleSpan) -> list[Span]:
        """The whole sample, then its parts: queue, generate with its turns, teacher and rewards."""
        began, ended = self._at(line, sample.marks[0][1]), self._at(line, sample.ended)
        name = sample.group if sample.index is None else f"{sample.group}/{sample.index}"
        about: dict[str, Json] = {"group": sample.group, "index": sample.index}
        spans, waits = [Span(name, began, ended, about)], list(self._waits(line, sample))
        spans += [each for each in waits if not _generates(each.name) and each.ended > each.began]
        made = [each for each in waits if _generates(each.name)]
        if made:
            spans.append(Span("generate", made[0].began, made[-1].ended))
        turn, before = 0, GENERATOR
        for each in made:
            if each.name != GENERATOR:
                turn += before == GENERATOR  # engines called after the first one belong to the same turn
                spans.append(Span(f"turn {turn}", each.began, each.ended, {"engine": each.name}))
            before = each.name
        return spans

    def _add_groups(self, lines: Sequence[SpanLine]) -> None:
        trains = {
            each.rollout_id: (self._at(line, each.began), self._at(line, each.ended))
            for line in lines
            for each in line.phases
            if each.name == "train"
        }
        found: dict[tuple[str, float], list[int]] = {}
        for line in lines:
            for sample in line.samples:
                if not sample.evaluation:
                    times = [self._at(line, sample.marks[0][1]), self._at(line, sample.ended)]
                    found.setdefault((sample.group, line.began), []).extend(times)
        newest = dict(list(found))  # by group, the process that ran it last
        ends = self._ends(newest)
        lanes = Lanes()
        for (group, began), times in sorted(found.items(), key=lambda each: min(each[1])):
            first, last = min(times), max(times)
            end = ends.get(group) if newest[group] == began else None
            trained = trains.get(cast(int, end["rollout_id"])) if end and end["state"] == "trained" else None
            inside = [Span("samples", first, last)]
            if trained is not None and trained[0] >= last:
                inside += [Span("waits for training", last, trained[0]), Span("train", *trained)]
            about = {key: value for key, value in end.items() if key != "id"} if end else {}
            lane = lanes.lane(first, inside[-1].ended)
            for span in [Span(group, first, inside[-1].ended, about), *inside]:
                self._add(GROUPS, lane, span)

    def _ends(self, groups: Mapping[str, float]) -> dict[str, Line]:
        path, found = self.run / "ledger.jsonl", dict[str, Line]()
        for line in read_ledger(path) if path.exists() else ():
            if line["id"] in groups and line["state"] in (GroupState.TRAINED.value, GroupState.DROPPED.value):
                found.setdefault(str(line["id"]), line)
        return found

    def _add_resumes(self) -> None:
        latest = max(cast(int, each["ts"]) + cast(int, each.get("dur", 0)) for each in self.events)
        for resume in read_resumes(self.run):
            at = round((resume.time - self.origin) * 1e6)
            if 0 <= at <= latest:
                name = f"resumed after {resume.rollout_id} rollouts"
                self.events.append({"ph": "i", "s": "g", "name": name, "ts": at, "pid": LOOP, "tid": 1})


class Lanes:
    """Assigns spans to as few tracks as possible in order of arrival, without overlap on any."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []
        self._count = 0

    def lane(self, began: int, ended: int) -> int:
        """The number (from 1) of a track that is free at `began`."""
        if self._free and self._free[0][0] <= began:
            _, lane = heapq.heappop(self._free)
        else:
            self._count += 1
            lane = self._count
        heapq.heappush(self._free, (ended, lane))
        return lane


def waits_of(sample: SampleSpan) -> list[tuple[str, int, int]]:
    """A sample's successive waits: name, begin and end, in microseconds as in its span."""
    marks = [("queue" if what in QUEUE else what, at) for what, at in sample.marks]
    firsts = [next(same) for _, same in groupby(marks, key=lambda each: each[0])]
    return [(what, at, until) for (what, at), (_, until) in pairwise([*firsts, ("", sample.ended)])]


def _generates(what: str) -> bool:
    return what in (GENERATOR, "engine") or what.startswith("engine ")
