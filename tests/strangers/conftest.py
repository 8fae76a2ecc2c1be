"""Where strangers' packages live: a clean room, with wheels of this checkout in a virtual environment outside of it,
without torch; and a site, a folder of packages that is put before the environment of these tests.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from slime_testing import write_distribution

collect_ignore = ["halves", "naive", "tcp"]
"""Packages of strangers: their tests run where they are installed."""
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KIT = ROOT / "plugins" / "slime-testing"
TOOLS = ("hatchling", "hypothesis", "pytest")
"""What authors have besides slime-core; hatchling, so that no build needs an environment of its own."""


@dataclass(frozen=True)
class Room:
    """A folder with a virtual environment, where nothing of this checkout can be imported."""

    folder: Path

    @property
    def site_packages(self) -> Path:
        (found,) = (self.folder / "venv").glob("lib/python*/site-packages")
        return found

    def run(self, program: str, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A program of the environment, by name; its failure is the caller's to judge."""
        command = [str(self.folder / "venv" / "bin" / program), *map(str, arguments)]
        theirs = environment() | {"XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run(command, cwd=cwd or self.folder, env=theirs, capture_output=True, text=True, check=False)

    def pytest(self, folder: Path) -> str:
        """The tests of a package, which pass; returns what pytest says."""
        done = self.run("python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, *paths: object, offline: bool = True) -> None:
        """Install folders or wheels with what is there; if not `offline`, with a build backend of the index."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder / "venv/bin/python"), "install", "--quiet"]
        options = ["--no-index", "--no-build-isolation"] if offline else []
        checked([*pip, "--no-deps", *options, *map(str, paths)], cwd=self.folder)

    def add_wheels(self, *sources: Path) -> None:
        """Build wheels here, which has hatchling, and install them."""
        wheels = Path(tempfile.mkdtemp(dir=self.folder))
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        checked([*pip, "--wheel-dir", str(wheels), *map(str, sources)], cwd=self.folder)
        self.install(*wheels.glob("*.whl"))


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """One clean room of a session: the core and the kit of this checkout, and what authors have."""
    return linked_room(tmp_path_factory.mktemp("strangers"), KIT, also=TOOLS)


def linked_room(folder: Path, *sources: Path, also: Sequence[str] = ()) -> Room:
    """A room without an index: wheels of the core and of `sources`, and links to what the core requires.

    `also` names distributions that are linked with all that they require. tokenizers is linked without what downloads.
    """
    made = Room(folder.resolve())
    assert not made.folder.is_relative_to(ROOT), f"{folder} lies in this checkout: set TMPDIR to a folder outside of it"
    checked([sys.executable, "-m", "venv", "--without-pip", str(made.folder / "venv")], cwd=made.folder)
    tops = {top for name in (*_required("slime-core"), *also) for top in _closure(name)}
    for path in {*tops, Path(str(distribution("tokenizers").locate_file("tokenizers")))}:
        (made.site_packages / path.name).symlink_to(path)
    made.add_wheels(ROOT, *sources)
    return made


def _closure(name: str) -> set[Path]:
    """Where the files of a distribution lie, and of all that it requires."""
    left, seen, tops = [name], set[str](), set[Path]()
    while left:
        dist = distribution(left.pop())
        if dist.name not in seen:
            seen.add(dist.name)
            own = {file.parts[0] for file in dist.files or ()} - {"..", "__pycache__"}
            tops |= {Path(str(dist.locate_file(top))) for top in own}
            left += _required(dist.name)
    return tops


def _required(name: str) -> list[str]:
    """The names of what a distribution requires here, without its extras."""
    needed = map(Requirement, distribution(name).requires or ())
    return [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]


@dataclass(frozen=True)
class Site:
    """A folder of installed packages, and the environment of these tests, torch included."""

    folder: Path

    def run(self, root: Path, *arguments: str) -> str:
        """`python *arguments` in a folder, which ends well; returns what it prints."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pytest(self, test: Path, folder: Path) -> str:
        """A test file of a package, which passes; run in a folder outside of this checkout."""
        shutil.copy(test, folder)
        (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")  # its own, wherever the folder lies
        return self.run(folder, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", test.name)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """An engine with extras, a trainer with shares and a transport, none of which is known here."""
    folder = tmp_path_factory.mktemp("site")
    for dist, source in (("slime-engine-naive", "naive"), ("slime-transport-tcp", "tcp")):
        files = {path.name: path.read_text("utf-8") for path in (HERE / source).glob("slime_*.py")}
        module = dist.replace("-", "_")
        write_distribution(folder, dist, files, entry_points={dist.removeprefix("slime-"): module})
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    shutil.copytree(HERE / "halves", halves := tmp_path_factory.mktemp("source") / "halves")
    checked([*pip, "--target", str(folder), str(halves)], cwd=folder)
    return Site(folder)


def environment() -> dict[str, str]:
    """A stranger's: nothing that leads back to this checkout or to the environment of this process."""
    ours = ("COVERAGE_", "HYPOTHESIS_", "PYTEST_", "PYTHON", "SLIME_", "VIRTUAL_ENV")
    theirs = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return theirs | {"SLIME_PLUGINS_STRICT": "1"}  # as their CI file has it


def checked(command: Sequence[str], *, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
