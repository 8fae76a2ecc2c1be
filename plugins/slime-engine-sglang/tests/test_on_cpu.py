"""The start of a server on a CPU where it cannot be: one sentence, and the process ends."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime_engine_sglang.server_command import ON_CPU
from tests.tables import table

COPIES = """
import json, os, runpy, sys, torch
script, out, err = sys.argv[1:]
for line in sys.stdin:
    packages, *arguments = json.loads(line)
    if not (child := os.fork()):
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.path.insert(0, packages)
        sys.argv[:] = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
WHOLE = "def install_platform_stubs(): pass\ndef _patch_non_blocking(): pass\n"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a start ended."""

    returncode: int
    stdout: str
    stderr: str


class Starts:
    """A process that has imported torch, which takes seconds, and starts the script in a copy of itself each time."""

    def __init__(self, folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", COPIES, str(ON_CPU), str(self._out), str(self._err)],
            env={"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, packages: Path, *arguments: str) -> Ran:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(packages), *arguments]), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        return Ran(code, self._out.read_text("utf-8"), self._err.read_text("utf-8"))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    starts = Starts(tmp_path_factory.mktemp("starts"))
    yield starts
    starts.close()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with an SGLang of which only what is needed to start is there."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (tmp_path / "sglang-0.5.23.dist-info").mkdir()
    (tmp_path / "sglang-0.5.23.dist-info/METADATA").write_text("Name: sglang\nVersion: 0.5.23\n", "utf-8")
    (package / "_platform_stubs.py").write_text(
        "def _patch_non_blocking(): pass\ndef install_platform_stubs(): print('stubs are in')\n", "utf-8"
    )
    (package / "launch_server.py").write_text("print('the server runs')\n", "utf-8")
    return tmp_path


def test_a_server_is_started_behind_the_stand_ins(packages: Path, started: Starts) -> None:
    ran = started(packages)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, ["stubs are in", "the server runs"]), ran.stderr


def test_the_stand_in_of_an_older_release_is_found(packages: Path, started: Starts) -> None:
    (packages / "sglang/_platform_stubs.py").unlink()
    (packages / "sglang/_triton_stub.py").write_text("def install(): print('an older stub')\n", "utf-8")
    assert started(packages).stdout.splitlines() == ["an older stub", "the server runs"]


@table(
    "broken, arguments, said",
    [
        ("raise AttributeError('torch has no such thing')", (), "AttributeError: torch has no such thing"),
        (
            WHOLE,
            ("--enable-deterministic-inference",),
            "No module named 'sglang.srt'",
        ),
    ],
)
def test_another_torch_or_release_is_named_with_what_to_type(
    packages: Path, started: Starts, broken: str, arguments: tuple[str, ...], said: str
) -> None:
    (packages / "sglang/_platform_stubs.py").write_text(broken, "utf-8")
    ran = started(packages, *arguments)
    assert ran.returncode == 1
    assert "the server runs" not in ran.stdout
    last = ran.stderr.strip().splitlines()[-1]
    assert "SGLang 0.5.23 cannot be started on the CPU with torch " in last
    assert said in last
    assert "were made for SGLang 0.5.23 with torch 2.13; `make servers`" in last
    assert "Traceback" not in ran.stderr


def test_a_python_without_sglang_says_so(tmp_path: Path, started: Starts) -> None:
    ran = started(tmp_path)
    assert ran.returncode == 1
    assert "has no sglang: name another one by [engine.sglang] python" in ran.stderr
