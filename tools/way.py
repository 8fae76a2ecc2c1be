#!/usr/bin/env python3
"""How many functions of ours a command runs, and in how many files, counted by a profiler.

    .venv/bin/python tools/way.py plan --no-data run.toml
    .venv/bin/python tools/way.py train run.toml --num-rollout 1 --after BaseLoop._one_rollout
    .venv/bin/python tools/way.py train run.toml --after BaseLoop._one_rollout --until Trainer.train --list

Everything after the tool's own flags is a command of `slime`, which runs in this process: what its worker processes run
is not counted. With `--after NAME` the count begins at the first call of the function with that qualified name, and
with `--until NAME` it ends at the next call of that function.
The last line is one JSON object: functions, files, calls, and the processor time of the same command unprofiled.
"""

import json
import os
import subprocess
import sys
import threading
from argparse import ArgumentParser, RawTextHelpFormatter
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parent.parent
OURS = ("slime_core", "plugins")


class Calls:
    """Calls by code object, from the first call of the function `after` to the next call of `until`."""

    def __init__(self, after: str | None, until: str | None) -> None:
        self.after, self.until = after, until
        self.is_over = False
        self.codes = Counter[CodeType]()

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function of `sys.setprofile`."""
        code = frame.f_code
        # Bodies of modules, classes and comprehensions are no functions.
        if event != "call" or code.co_name.startswith("<") or not code.co_flags & CO_OPTIMIZED:
            return
        if self.after == code.co_qualname:
            self.after = None
        self.is_over |= self.after is None and self.until == code.co_qualname
        if self.after is None and not self.is_over:
            self.codes[code] += 1

    def of_ours(self) -> dict[CodeType, int]:
        """The calls of functions in files of this checkout."""
        roots = tuple(str(ROOT / name) + os.sep for name in OURS)
        return {code: calls for code, calls in self.codes.items() if code.co_filename.startswith(roots)}


def main() -> int:
    """Count, list, and say how much processor time the command takes."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawTextHelpFormatter)
    parser.add_argument("--after", help="begin at the first call of this function, such as BaseLoop._one_rollout")
    parser.add_argument("--until", help="end at the next call of this function, such as BaseLoop._save")
    parser.add_argument("--list", action="store_true", help="print the functions, by file")
    options, command = parser.parse_known_args()
    seen = Calls(options.after, options.until)
    sys.argv = ["slime", *command]
    from slime_core.cli import main as slime  # here: importing it is part of the way

    threading.setprofile(seen.see)
    sys.setprofile(seen.see)
    try:
        slime()
    except SystemExit as stop:
        status = stop.code
    else:
        status = 0
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if seen.after is not None:
        parser.error(f"the command did not call {seen.after}")
    calls = seen.of_ours()
    files = Counter(code.co_filename for code in calls)
    if options.list:
        for code in sorted(calls, key=lambda code: (code.co_filename, code.co_firstlineno)):
            print(f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno}: {code.co_qualname} {calls[code]}")
    figures: dict[str, object] = {
        "status": status,
        "functions": len(calls),
        "files": len(files),
        "calls": sum(calls.values()),
    }
    if options.after is None:
        figures["processor_s"] = _processor_time(command)
    print(json.dumps(figures))
    return 0


def _processor_time(command: list[str]) -> float:
    before = os.times()
    subprocess.run([Path(sys.executable).parent / "slime", *command], stdout=subprocess.DEVNULL, check=False)
    after = os.times()
    return round(after.children_user + after.children_system - before.children_user - before.children_system, 3)


if __name__ == "__main__":
    sys.exit(main())
