"""Limits of modules and functions, as `make lint` checks them."""

import subprocess
import sys
from pathlib import Path

from tests.tools.repository import ROOT, write

WITHIN = "def f():\n" + "    x = 1\n" * 69
LONG = f"{WITHIN}    x = 1\n"


def checked(root: Path, files: dict[str, str], allowed: str = "{}") -> tuple[int, list[str]]:
    """What a copy of the tool, in a checkout with these files, prints."""
    source = (ROOT / "tools" / "check_sizes.py").read_text()
    [start] = [line for line in source.splitlines() if line.startswith("LONGER")]
    tool = source.replace(start, f"LONGER: dict[str, str] = {allowed}")
    write(root, {**files, "tools/check_sizes.py": tool})
    command = [sys.executable, root / "tools" / "check_sizes.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_modules_and_functions_over_their_limits_are_named(tmp_path: Path) -> None:
    files = {
        "slime_core/a.py": "x = 1\n" * 601,
        "slime_core/b.py": "x = 1\n" * 600,
        "plugins/slime-c/slime_c/c.py": f"\n{LONG}",
        "plugins/slime-c/slime_c/d.py": WITHIN,
        "plugins/slime-c/tests/test_c.py": "x = 1\n" * 601,
    }
    assert checked(tmp_path, files) == (
        1,
        [
            "plugins/slime-c/slime_c/c.py:2: f has 71 lines, at most 70",
            "slime_core/a.py: 601 lines, at most 600: is it still opened for one question?",
        ],
    )


def test_a_module_on_the_list_may_be_longer_until_it_is_no_longer(tmp_path: Path) -> None:
    files = {"slime_core/a.py": "x = 1\n" * 601, "slime_core/b.py": "x = 1\n" * 600}
    status, printed = checked(tmp_path, files, '{"slime_core/a.py": "a table", "slime_core/b.py": "a table"}')
    assert (status, printed) == (1, ["slime_core/b.py: 600 lines: remove it from LONGER"])
