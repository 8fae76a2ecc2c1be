"""The new plugins of tensor roles, tested where there is torch: strangers' tests skip what needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slime_core.scaffold import License, Names, render, write_package

TENSOR_ROLES = ("advantage", "correction", "loss", "trainer")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, and a folder in which they are installed."""
    folder = tmp_path_factory.mktemp("with-torch")
    packages = [folder / Names.parse(role, "mine").dist for role in TENSOR_ROLES]
    for role, package in zip(TENSOR_ROLES, packages, strict=True):
        write_package(render(Names.parse(role, "mine"), License.MIT), package)
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder / "site")]
    _run([sys.executable, "-m", "pip", "install", *offline, *map(str, packages)], folder)
    return folder


@pytest.mark.parametrize("role", TENSOR_ROLES)
def test_a_new_plugin_of_a_tensor_role_passes_without_a_skip(site: Path, role: str) -> None:
    said = _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], site / f"slime-{role}-mine", site)
    assert " passed" in said
    assert "skipped" not in said


def _run(command: list[str], folder: Path, site: Path | None = None) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COVERAGE_", "PYTEST_"))}
    if site is not None:
        environment["PYTHONPATH"] = str(site / "site")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
