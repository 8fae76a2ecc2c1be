"""A clean room: the wheels of this checkout, installed into a virtual environment outside of it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("hatchling>=1.27", "pytest>=8.4")
"""What an author has besides slime-core: hatchling once for all, so that no build makes an environment of its own."""


@dataclass(frozen=True)
class Room:
    """A folder with a virtual environment, where nothing of this checkout can be imported."""

    folder: Path
    wheels: tuple[Path, ...]

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def run(self, program: str, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A program of the environment, by name; its failure is the caller's to judge."""
        command = [str(self.python.with_name(program)), *map(str, arguments)]
        return subprocess.run(
            command, cwd=cwd or self.folder, env=_environment(), capture_output=True, text=True, check=False
        )

    def install(self, *requirements: object, offline: bool = False) -> None:
        """Install into the environment; `offline` builds with what is there and asks no index."""
        options = ["--no-deps", "--no-index", "--no-build-isolation"] if offline else []
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", *options]
        _checked([*pip, *map(str, requirements)], cwd=self.folder)


@pytest.fixture(scope="session")
def room() -> Iterator[Room]:
    """One clean room for all tests of a session."""
    with tempfile.TemporaryDirectory(prefix="strangers-") as name:
        folder = Path(name).resolve()
        assert not folder.is_relative_to(ROOT), f"{folder} lies in this checkout: set TMPDIR to a folder outside of it"
        _build_wheels(folder / "wheels")
        room = Room(folder, tuple(sorted((folder / "wheels").glob("*.whl"))))
        _checked([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], cwd=folder)
        room.install(*room.wheels, *TOOLS)
        yield room


def _build_wheels(folder: Path) -> None:
    """The core and every plugin of this checkout, as a release builds them."""
    projects = [ROOT, *(path.parent for path in sorted(ROOT.glob("plugins/*/pyproject.toml")))]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    _checked([*pip, str(folder), *map(str, projects)], cwd=folder.parent)


def _environment() -> dict[str, str]:
    """A stranger's: nothing that leads back to this checkout or to the environment of this process."""
    ours = ("COVERAGE_", "HYPOTHESIS_", "PYTEST_", "PYTHON", "SLIME_", "VIRTUAL_ENV")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def _checked(command: Sequence[str], *, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
