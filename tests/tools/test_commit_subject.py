"""A commit's subject fits a line, as the hook of a checkout reads it."""

import subprocess
import sys
from pathlib import Path

from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]


def checked(message: str, tmp_path: Path) -> tuple[int, str]:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    command = [sys.executable, str(ROOT / "tools" / "commit_subject.py"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@table(
    "message",
    [
        "Refuse a duplicate reward name\n\nTwo plugins may each have one of that name.",
        f"{'x' * 72}\n",
        "# what git says of the commit\n\nRefuse a duplicate reward name\n",
        f"Merge branch '{'x' * 72}'",
    ],
)
def test_what_fits_is_let_through(message: str, tmp_path: Path) -> None:
    assert checked(message, tmp_path) == (0, "")


def test_what_is_too_long_is_cut_where_it_should_end(tmp_path: Path) -> None:
    status, said = checked(f"{'x' * 72}yz\n\nbody\n", tmp_path)
    assert status == 1
    assert said == f"{'x' * 72}|yz: 74 characters, at most 72: say why in the body\n"


def test_a_full_stop_is_refused(tmp_path: Path) -> None:
    assert checked("Refuse a duplicate reward name.", tmp_path)[0] == 1
