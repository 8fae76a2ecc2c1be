"""The lines at the end of contract tests and end-to-end tests that make `python tests/e2e/test_short.py` run them.

    .venv/bin/python tools/runnable.py --write        # add them, or put right what is there
    .venv/bin/python tools/runnable.py --check        # exit 1 and name the files that need that; `make lint` does this

A job that runs one file, and who has only that file in front of them, need no other command.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests/e2e", "tests/plugin_contracts")
GUARD = 'if __name__ == "__main__":\n'
LINES = f'{GUARD}    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))\n'
"""`-m ""` also runs what a whole suite leaves out."""
IMPORTS = ("subprocess", "sys")


def main(argv: Sequence[str] | None = None) -> int:
    """Check or write; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="add the lines where they are missing")
    what.add_argument("--check", action="store_true", help="exit 1 where they are missing")
    parser.add_argument("--root", type=Path, default=ROOT, help="where (this checkout)")
    args = parser.parse_args(argv)
    paths = sorted(path for folder in FOLDERS for path in (args.root / folder).glob("test_*.py"))
    stale = {path: text for path in paths if (text := runnable(path.read_text("utf-8"))) != path.read_text("utf-8")}
    for path, text in stale.items():
        if args.write:
            path.write_text(text, "utf-8")
        else:
            print(f"{path.relative_to(args.root)} cannot be run by itself: python tools/runnable.py --write")
    return 1 if stale and args.check else 0


def runnable(text: str) -> str:
    """The text of a test file, with the lines and what they import."""
    body = text.partition(f"\n{GUARD}")[0].rstrip("\n")
    for name in reversed(IMPORTS):
        if not re.search(rf"^import {name}$", body, re.MULTILINE):
            first = re.search(r"^(?:import|from) ", body, re.MULTILINE)
            at = first.start() if first else len(body)
            body = f"{body[:at]}import {name}\n{body[at:]}"
    return f"{body}\n\n\n{LINES}"


if __name__ == "__main__":
    sys.exit(main())
