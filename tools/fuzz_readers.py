"""Fuzz the readers: each target of tests/fuzz gets anything, for as long as it is told.

Example:

    make fuzz                                   # all targets, a minute each
    make fuzz ARGS="rows --seconds 3600"        # one, for an hour

A target is a module with `fuzz(data)`, which draws its input from hypothesis and fails on what should not happen. What
fails is printed with what was drawn, as small as it could be made, and kept in .hypothesis for the next run.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tests.fuzz"
BATCH = 100


def targets() -> list[str]:
    """Names of the modules in tests/fuzz that have a `fuzz`."""
    modules = (ROOT / "tests" / "fuzz").glob("*.py")
    return sorted(path.stem for path in modules if "\ndef fuzz(" in path.read_text("utf-8"))


def run(name: str, seconds: float) -> bool:
    """Run one target for some seconds; whether nothing failed."""
    target, began, count = importlib.import_module(f"{PACKAGE}.{name}").fuzz, time.monotonic(), 0

    # A batch draws its examples to the end: hypothesis takes one that stops by the clock for a flaky test.
    @settings(max_examples=BATCH, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def batch(data: st.DataObject) -> None:
        nonlocal count
        count += 1
        target(data)

    try:
        while time.monotonic() - began < seconds:
            batch()
    except Exception as error:
        print(
            f"{name}: failed after {count} examples: {type(error).__name__}: {error}",
            *getattr(error, "__notes__", ()),
            sep="\n",
        )
        return False
    spent = time.monotonic() - began
    print(f"{name}: {count} examples in {spent:.0f} s, {count / spent:.0f} a second; none failed")
    return True


def main() -> int:
    """Run the targets that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"any of {', '.join(targets())}; default all")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (default 60)")
    given_names = parser.parse_args()
    if unknown := set(given_names.targets) - set(targets()):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(targets())}")
    sys.path.insert(0, str(ROOT))
    failed = [name for name in given_names.targets or targets() if not run(name, given_names.seconds)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
