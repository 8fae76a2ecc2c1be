"""Measures graders side by side: accuracy, throughput, latency, memory, hostile answers.

    python benchmarks/grading --cases pairs.jsonl --slime ../slime

Throughput is interleaved: every case goes to every grader in turn, in a random order, in one process; memos are emptied
before each round, and the median of the rounds counts.
"""

import argparse
import functools
import json
import os
import random
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cases import Case, read_cases
from classes import misses
from graders import Checkouts, Grader, available, forget

from slime_reward_math.cases import PAIRS


def main() -> int:
    """Run what was asked for and print it."""
    asked = _arguments()
    cases = read_cases(asked.cases)
    graders = available(Checkouts(asked.slime, asked.verl, asked.qwen))
    wanted = {name: graders[name] for name in asked.graders or graders if name in graders}
    print(f"{len(cases)} undisputed pairs of {asked.cases}")
    found = {name: accuracy(name, grader, cases) for name, grader in wanted.items()}
    if asked.rounds:
        responses = [case for case in cases if case.kind == "boxed"] or cases
        for name, figures in throughput(wanted, responses, asked.rounds).items():
            found[name] |= figures
    if "ours" in wanted:
        found["ours"]["undecided"] = undecided(cases)
        found["ours"] |= memo(wanted["ours"], cases) | large(wanted["ours"]) | hostile(wanted["ours"])
        found["ours"] |= memory(wanted["ours"], asked.grades)
    _print(found)
    for name in wanted if asked.classes else ():
        _print_classes(name, misses(cases, functools.partial(_graded, wanted[name])))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/grading", description=__doc__)
    parser.add_argument("--cases", type=Path, default=PAIRS, help="JSON lines with gold, response, expected, kind")
    parser.add_argument("--graders", nargs="*", help="names of the graders to run; all that are here by default")
    parser.add_argument("--slime", type=Path, help="a checkout of slime")
    parser.add_argument("--verl", type=Path, help="a checkout of verl")
    parser.add_argument("--qwen", type=Path, help="a checkout of Qwen2.5-Math")
    parser.add_argument("--classes", action="store_true", help="print misses by the form of the gold answer")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the throughput measurement; 0 for none")
    parser.add_argument("--grades", type=int, default=100_000, help="distinct grades of the memory measurement")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    return parser.parse_args()


def accuracy(name: str, grader: Grader, cases: Sequence[Case]) -> dict[str, float]:
    """Percent of right verdicts, and how many wrong ones of either kind; a crash is a wrong verdict."""
    paid, missed = 0, 0
    for case in cases:
        verdict = _graded(grader, case)
        paid += verdict and not case.expected
        missed += not verdict and case.expected
    right = len(cases) - paid - missed
    return {"accuracy %": 100 * right / len(cases), "false positives": paid, "false negatives": missed}


def _graded(grader: Grader, case: Case) -> bool:
    try:
        return grader(case.gold, case.wrapped)
    except Exception as error:
        print(f"{type(error).__name__} on gold {case.gold[:60]!r}", file=sys.stderr)
        return False


def undecided(cases: Sequence[Case]) -> int:
    """How many pairs our grader leaves undecided; they count as errors where they were right."""
    from slime_reward_math import grade

    return sum(grade(case.gold, case.wrapped).score is None for case in cases)


def throughput(graders: dict[str, Grader], cases: Sequence[Case], rounds: int) -> dict[str, dict[str, float]]:
    """Grades a second, and the median and slowest percent of latencies in ms; cold, interleaved, in CPU time."""
    rates: dict[str, list[float]] = {name: [] for name in graders}
    latencies: dict[str, list[float]] = {name: [] for name in graders}
    order = random.Random(1)
    for _ in range(rounds):
        forget()
        spent = dict.fromkeys(graders, 0.0)
        for case in cases:
            for name in order.sample(list(graders), len(graders)):
                start = time.process_time()
                _graded(graders[name], case)
                taken = time.process_time() - start
                spent[name] += taken
                latencies[name].append(1e3 * taken)
        for name, seconds in spent.items():
            rates[name].append(len(cases) / seconds)
    return {
        name: {
            "grades/s": statistics.median(rates[name]),
            "p50 ms": statistics.median(latencies[name]),
            "p99 ms": sorted(latencies[name])[int(0.99 * len(latencies[name]))],
        }
        for name in graders
    }


def memo(grader: Grader, cases: Sequence[Case]) -> dict[str, float]:
    """Grades a second of pairs that were graded before."""
    for case in cases:
        _graded(grader, case)
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        for case in cases:
            grader(case.gold, case.wrapped)
        rates.append(len(cases) / (time.perf_counter() - start))
    return {"memo grades/s": statistics.median(rates)}


def large(grader: Grader) -> dict[str, float]:
    """Milliseconds for a response of a megabyte."""
    response = "We compute further. " * 52_000 + "\\boxed{\\frac{1}{2}}"
    times = []
    for round_number in range(5):
        forget()
        start = time.perf_counter()
        grader(f"0.{round_number}", response)
        times.append(1e3 * (time.perf_counter() - start))
    return {"1 MB ms": statistics.median(times)}


def hostile(grader: Grader) -> dict[str, float]:
    """CPU milliseconds of the plugin's hostile answers, and how many were paid."""
    from slime_reward_math.cases import hostile as attacks

    times, paid = [], 0
    for attack in attacks():
        start = time.process_time()
        paid += grader(attack.gold, attack.response)
        times.append(1e3 * (time.process_time() - start))
    times.sort()
    return {"hostile": len(times), "hostile paid": paid, "hostile p99 ms": times[int(0.99 * len(times))]}


def memory(grader: Grader, grades: int) -> dict[str, float]:
    """Growth of the resident set over that many distinct grades, in MiB."""
    for number in range(5_000):
        grader(f"\\frac{{{number}}}{{7}}", f"\\boxed{{\\sqrt{{{number}}}}}")
    before = _resident()
    for number in range(grades):
        grader(f"\\frac{{{number}}}{{11}}", f"\\boxed{{{number}x+\\sqrt{{{number}}}}}")
    return {"RSS growth MiB": _resident() - before}


def _resident() -> float:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _print(found: dict[str, dict[str, float]]) -> None:
    for name, figures in found.items():
        shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
        print(f"{name}: {shown}")


def _print_classes(name: str, found: dict[str, tuple[int, int, int]]) -> None:
    print(f"{name}: class, pairs, false negatives, false positives")
    for each, (count, missed, paid) in found.items():
        print(f"  {each:32} {count:5} {missed:4} {paid:4}")


if __name__ == "__main__":
    sys.exit(main())
