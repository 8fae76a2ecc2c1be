"""Soaking: every round is run, and what failed is named with how often."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def soak(folder: Path, body: str, rounds: int) -> "subprocess.CompletedProcess[str]":
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(body)
    command = [sys.executable, str(ROOT / "tools/soak.py"), str(rounds), "--workers", "1", str(folder)]
    rest = ["-c", str(folder / "pytest.ini"), "-p", "no:cacheprovider"]
    return subprocess.run([*command, *rest], capture_output=True, text=True, check=False)


def test_a_flake_is_named_with_how_often_it_failed(tmp_path: Path) -> None:
    count = f"import pathlib\nN = pathlib.Path({str(tmp_path / 'count')!r})\n"
    body = (
        f"{count}def test_odd():\n    N.write_text(N.read_text() + '.' if N.exists() else '.')\n"
        "    assert len(N.read_text()) != 2\n\ndef test_even():\n    pass\n"
    )
    done = soak(tmp_path, body, 3)
    assert done.returncode == 1
    assert "test_it::test_odd failed in 1 of 3 rounds" in done.stdout
    assert done.stdout.endswith("2 tests, 3 rounds: 1 failed\n")
