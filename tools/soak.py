"""Tests again and again while the machine is busy: what fails once in twenty is a defect.

    make soak N=20 ARGS="-k ledger"
    .venv/bin/python tools/soak.py 20 tests/run -k ledger

All rounds are run, each in a process of its own, on twice as many workers as there are cores. Then each test
that failed is named, with how often. The exit status is 1 where one did, 5 where no test was found.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NO_TESTS = 5
"""pytest's own exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds and name what failed; return the exit status."""
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=about, epilog="The rest goes to pytest.", allow_abbrev=False)
    parser.add_argument("rounds", type=int, help="how often, such as 20")
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1), help="%(default)s")
    args, rest = parser.parse_known_args(argv)
    if args.rounds < 1:
        parser.error(f"{args.rounds} rounds: expected one at least")
    failed, seen = Counter[str](), set[str]()
    for number in range(1, args.rounds + 1):
        names, found = _round(args.workers, rest)
        seen |= found
        failed.update(names)
        told = f", {len(names)} failed: {', '.join(sorted(names)[:3])}" if names else ""
        print(f"round {number} of {args.rounds}: {len(found)} tests{told}", flush=True)
        if not found:
            return NO_TESTS
    for name, times in failed.most_common():
        print(f"{name} failed in {times} of {args.rounds} rounds")
    print(f"{len(seen)} tests, {args.rounds} rounds: {len(failed) or 'none'} failed")
    return 1 if failed else 0


def _round(workers: int, rest: Sequence[str]) -> tuple[set[str], set[str]]:
    """The tests that failed in one round, and all that were run; a round that broke off counts as a test."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        report = Path(folder) / "report.xml"
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            str(workers),
            "--dist",
            "worksteal",
            f"--junit-xml={report}",
        ]
        done = subprocess.run([*pytest, *rest], cwd=ROOT, capture_output=True, text=True, check=False)
        names, found = set[str](), set[str]()
        for case in ET.parse(report).iter("testcase") if report.exists() else ():
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            found.add(name)
            if case.find("failure") is not None or case.find("error") is not None:
                names.add(name)
        if names or done.returncode not in (0, NO_TESTS):
            print(done.stdout[-6000:] + done.stderr[-2000:], flush=True)
        if done.returncode not in (0, 1, NO_TESTS):
            names.add(f"the round itself, which ended with {done.returncode}")
        return names, found


if __name__ == "__main__":
    sys.exit(main())
