"""How fast graders are: cold and interleaved, from the memo, on a long response, at import.

Example:

    throughput({"ours": grade, "math-verify": verify}, cases, rounds=5, burst=1)
"""

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from cases import Case
from graders import Grader, forget

REAL = 200
"""Characters from which on a response is one that a model has written, and no line of some test."""
GROUP = 8
"""Responses that come in together, as the samples of a group do."""


def responses(cases: Sequence[Case]) -> list[Case]:
    """The whole responses of models among the cases; all cases if there are none."""
    real = [case for case in cases if case.kind == "boxed" and len(case.response) >= REAL]
    return real or list(cases)


def throughput(
    graders: dict[str, Grader], cases: Sequence[Case], rounds: int, burst: int
) -> dict[str, dict[str, float]]:
    """Grades a second of CPU time, the median of the rounds, and latencies in ms: the median, the slowest percent.

    Cold: every memo is emptied before a round, SymPy's too. Interleaved: `burst` cases go to every grader in turn, in a
    random order, before the next ones do. One by one, each grader finds the processor's caches full of another's data;
    with all of them in a burst, the graders take turns pass by pass, as each would work in a run of its own.
    """
    rates: dict[str, list[float]] = {name: [] for name in graders}
    latencies: dict[str, list[float]] = {name: [] for name in graders}
    order = random.Random(1)
    for _ in range(rounds):
        forget()
        spent = dict.fromkeys(graders, 0.0)
        for start in range(0, len(cases), burst):
            several = cases[start : start + burst]
            for name in order.sample(list(graders), len(graders)):
                seconds = _spent(graders[name], several)
                spent[name] += seconds
                latencies[name].append(1e3 * seconds / len(several))
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


def _spent(grader: Grader, cases: Sequence[Case]) -> float:
    texts = [(case.gold, case.wrapped) for case in cases]
    start = time.process_time()
    for gold, response in texts:
        graded(grader, gold, response)
    return time.process_time() - start


def graded(grader: Grader, gold: str, response: str) -> bool:
    """A verdict; a crash is a wrong one."""
    try:
        return grader(gold, response)
    except Exception as error:
        print(f"{type(error).__name__} on gold {gold[:60]!r}", file=sys.stderr)
        return False


def memo(grader: Grader, cases: Sequence[Case]) -> dict[str, float]:
    """Grades a second of pairs that were graded before."""
    texts = [(case.gold, case.wrapped) for case in cases]

    def again() -> None:
        for gold, response in texts:
            grader(gold, response)

    again()
    return {"memo grades/s": len(texts) / _median(again)}


def large(grader: Grader) -> dict[str, float]:
    """Milliseconds for a response of a megabyte."""
    response = "We compute x > y further. " * 40_000 + "\\boxed{\\frac{1}{2}}"

    def cold() -> None:
        forget()
        grader("0.5", response)

    return {"1 MB ms": 1e3 * _median(cold)}


def imports() -> dict[str, float]:
    """CPU milliseconds that importing the grader adds to starting Python."""

    def python(code: str) -> float:
        times = []
        for _ in range(5):
            before = os.times()
            subprocess.run([sys.executable, "-c", code], check=True)
            after = os.times()
            times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return statistics.median(times)

    return {"import CPU ms": 1e3 * (python("import slime_reward_math") - python("pass"))}


def _median(work: Callable[[], None]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
