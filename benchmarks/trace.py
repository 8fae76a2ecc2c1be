"""What `slime trace` costs a run: the spans of a real run noted and written again, against the time of its rollouts.

    python benchmarks/trace.py
    python benchmarks/trace.py --run runs/first              # of a run that is there, instead of a short demo

Every mark of every sample is made again by the code that a run makes it with, on an event loop, and every line is
written; the best of the rounds, in processor seconds, over the time that the run's rollouts took. The demo is the
hardest case: its model is tiny, and its rollouts of 512 samples take half a second. The last line is one JSON
object.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from slime_core.rollout.calls import SamplesInFlight
from slime_core.sample import GroupId
from slime_core.telemetry import MetricsLog
from slime_view.spans import SpanLine, SpanLog
from slime_view.trace import Trace

Marked = tuple[GroupId, int | None, bool, Sequence[str]]
"""A sample, and what it waited for after its first mark."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = options.run or _demo(Path(scratch))
        found = _measured(run, Path(scratch), options.rounds)
    print(json.dumps(found))


def _demo(scratch: Path) -> Path:
    """The first rollouts of the demo, warm start included."""
    command = [sys.executable, "-m", "slime_core", "demo", "--num-rollout", "20", "--save", str(scratch / "runs")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=scratch)
    (found,) = (each.parent for each in scratch.rglob("spans.jsonl") if "base" not in each.parent.name)
    return found


def _measured(run: Path, scratch: Path, rounds: int) -> dict[str, float]:
    lines = SpanLog.read(run / "spans.jsonl")
    steps = [
        row.metrics["perf/step_time"]
        for row in MetricsLog.read(run / "metrics.jsonl")
        if "perf/step_time" in row.metrics
    ]
    samples = sum(len(line.samples) for line in lines)
    marks = sum(len(sample.marks) for line in lines for sample in line.samples)
    with_notes = min(_again(lines, scratch / f"{number}.jsonl", noted=True) for number in range(rounds))
    without = min(_again(lines, scratch / "none.jsonl", noted=False) for _ in range(rounds))
    began = time.process_time()
    events = len(Trace.of(run).events)
    return {
        "rollouts": len(steps),
        "samples": samples,
        "marks_per_sample": marks / samples,
        "us_per_sample": 1e6 * (with_notes - without) / samples,
        "bytes_per_sample": (run / "spans.jsonl").stat().st_size / samples,
        "share_of_rollouts": (with_notes - without) / sum(steps),
        "limit": 0.01,
        "seconds_to_draw": time.process_time() - began,
        "events": events,
    }


def _again(lines: Sequence[SpanLine], path: Path, *, noted: bool) -> float:
    """Processor seconds of making all marks and lines once more; without notes, of the same loop alone."""
    given = [
        [
            (GroupId.parse(each.group), each.index, each.evaluation, [what for what, _ in each.marks[1:]])
            for each in line.samples
        ]
        for line in lines
    ]

    async def all_lines() -> float:
        spans, in_flight = SpanLog(path), SamplesInFlight()
        in_flight.on_end = spans.add_sample
        began = time.process_time()
        for line, samples in zip(lines, given, strict=True):
            for sample in samples:
                _mark(in_flight, sample) if noted else _visit(sample)
            if noted:
                for phase in line.phases:
                    spans.add_phase(phase.name, phase.rollout_id, 0.0, 1.0)
                await spans.write(line.rollout_id)
        return time.process_time() - began

    return asyncio.run(all_lines())


def _mark(in_flight: SamplesInFlight, sample: Marked) -> None:
    group, index, evaluation, whats = sample
    with in_flight.track(group, index, evaluation=evaluation) as state:
        for what in whats:
            state.set_wait(what)


def _visit(sample: Marked) -> None:
    for _ in sample[3]:
        pass


if __name__ == "__main__":
    main()
