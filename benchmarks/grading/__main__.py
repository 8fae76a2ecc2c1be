"""Measures graders side by side: accuracy, throughput, latency, memory, hostile answers.

    python benchmarks/grading --cases pairs.jsonl --slime ../slime

All graders run in one process; see `throughput` for what is cold and what is interleaved. Prints one JSON object at the
end, with every figure by grader.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cases import Case, read_cases
from classes import misses
from graders import Checkouts, Grader, available
from speed import GROUP, graded, imports, large, memo, responses, throughput

from slime_reward_math.cases import PAIRS
from slime_reward_math.cases import hostile as attacks

TOGETHER, PASSES = f"grades/s, {GROUP} together", "grades/s, pass by pass"


def main() -> int:
    """Run what was asked for and print it."""
    asked = _arguments()
    cases = read_cases(asked.cases)
    graders = available(Checkouts(asked.slime, asked.verl, asked.qwen))
    wanted = {name: graders[name] for name in asked.graders or graders if name in graders}
    print(f"{len(cases)} undisputed pairs of {asked.cases}")
    found = {name: accuracy(name, grader, cases) for name, grader in wanted.items()}
    if asked.rounds:
        real = responses(cases)
        print(f"{len(real)} whole responses, the median of {asked.rounds} rounds")
        alone, together, passes = (throughput(wanted, real, asked.rounds, burst) for burst in (1, GROUP, len(real)))
        for name in wanted:
            found[name] |= alone[name] | {TOGETHER: together[name]["grades/s"], PASSES: passes[name]["grades/s"]}
    if "ours" in wanted:
        found["ours"]["undecided"] = undecided(cases)
        found["ours"] |= _against(found) | memo(wanted["ours"], cases) | large(wanted["ours"]) | imports()
        found["ours"] |= hostile(wanted["ours"]) | stall() | memory(wanted["ours"], asked.grades)
    _print(found)
    for name in wanted if asked.classes else ():
        _print_classes(name, misses(cases, functools.partial(_paid, wanted[name])))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))
    return 0


def _against(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """How many times as fast as each other grader ours is, one by one and a group together."""
    return {
        f"{rate} / {name}": found["ours"][rate] / figures[rate]
        for rate in ("grades/s", TOGETHER, PASSES)
        for name, figures in found.items()
        if name != "ours" and rate in figures
    }


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
        verdict = _paid(grader, case)
        paid += verdict and not case.expected
        missed += not verdict and case.expected
    right = len(cases) - paid - missed
    return {"accuracy %": 100 * right / len(cases), "false positives": paid, "false negatives": missed}


def _paid(grader: Grader, case: Case) -> bool:
    return graded(grader, case.gold, case.wrapped)


def undecided(cases: Sequence[Case]) -> int:
    """How many pairs our grader leaves undecided; they count as errors where they were right."""
    from slime_reward_math import grade

    return sum(grade(case.gold, case.wrapped).score is None for case in cases)


def hostile(grader: Grader) -> dict[str, float]:
    """CPU milliseconds of the plugin's hostile answers, and how many were paid."""
    times, paid = [], 0
    for attack in attacks():
        start = time.process_time()
        paid += grader(attack.gold, attack.response)
        times.append(1e3 * (time.process_time() - start))
    times.sort()
    slow = {"hostile p99 ms": times[int(0.99 * len(times))], "hostile worst ms": times[-1]}
    return {"hostile": len(times), "hostile paid": paid, **slow}


def stall() -> dict[str, float]:
    """Milliseconds for which a thousand hostile answers stop an event loop, measured in a process of its own."""
    script = Path(__file__).with_name("stall.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    if done.returncode:
        print(f"stall: not measured ({done.stderr.strip().splitlines()[-1]})", file=sys.stderr)
        return {}
    return dict(json.loads(done.stdout))


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
