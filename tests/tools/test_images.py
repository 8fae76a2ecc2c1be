"""The images' files: hadolint finds nothing, what they name is there, and the locks fit what our packages ask for."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def locked(name: str) -> dict[str, str]:
    text = (ROOT / f"docker/{name}.lock").read_text("utf-8")
    return {canonicalize_name(each): version for each, version in re.findall(r"^([\w.-]+)==(\S+) ", text, re.MULTILINE)}


def projects() -> dict[str, set[str]]:
    """What requirements.in names: extras by folder."""
    text = (ROOT / "docker/requirements.in").read_text("utf-8")
    found = re.findall(r"^-e (\S+?)(?:\[(\S+)\])?$", text, re.MULTILINE)
    return {folder: set(extras.split(",")) - {""} for folder, extras in found}


@EACH
def test_hadolint_finds_nothing(path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@EACH
def test_what_it_copies_reaches_the_builder_and_what_it_installs_is_built(path: Path) -> None:
    text = path.read_text("utf-8")
    let_through = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = re.findall(r"^COPY (\S+) ", text, re.MULTILINE)
    assert copied == [f"docker/{path.stem}.lock", "dist/wheelhouse/*.whl"]
    assert {"!docker/*.lock", "!dist/wheelhouse/*.whl"} <= set(let_through)
    installed = set(re.findall(r"/tmp/wheels/(slime_\w+)-\*\.whl", text))
    assert installed == {"slime_core" if f == "." else Path(f).name.replace("-", "_") for f in projects()}


@table("name", [path.stem for path in FILES])
def test_a_lock_has_all_that_ours_need_in_a_version_that_they_take(name: str) -> None:
    lock = locked(name)
    for folder, extras in projects().items():
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        optional = project.get("optional-dependencies", {})
        for line in [*project["dependencies"], *(line for extra in extras for line in optional[extra])]:
            wanted = Requirement(line)
            if wanted.name.startswith("slime-") or (wanted.name == "torch" and name == "cpu"):
                continue
            assert wanted.specifier.contains(lock[canonicalize_name(wanted.name)]), line
    assert not [each for each in lock if each.startswith("slime-")]


def test_the_lock_for_cpus_has_nothing_of_cudas() -> None:
    assert not [each for each in locked("cpu") if each.startswith(("nvidia-", "cuda-", "triton", "torch"))]
    assert locked("cuda")["torch"] == "2.13.0"
    assert (
        "torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu" in (ROOT / "docker/cpu.Dockerfile").read_text()
    )
