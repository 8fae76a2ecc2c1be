"""The new plugins where there is torch: tensor roles tested whole, and one run that uses all of them."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slime_core.roles import SELECTABLE
from slime_testing import write_distribution
from slime_testing.scaffold import KINDS, License, Names, render, write_package
from tests.conftest import Project

TENSOR_ROLES = ("advantage", "correction", "loss", "trainer", "transport")
APART = {"engine", "trainer", "buffer_filter"}
"""Engine and trainer serve and train a table of logits, no model; the new buffer asks no filter."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every package, and `site`, in which they are as pip would have installed them."""
    folder = tmp_path_factory.mktemp("with-torch")
    for kind in KINDS:
        names = Names.parse(kind, "mine")
        write_package(files := render(names, License.MIT), folder / names.dist)
        modules = {path: text for path, text in files.items() if path.startswith(f"{names.module}/")}
        offered = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]["slime.plugins"]
        write_distribution(folder / "site", names.dist, modules, entry_points=offered, readme=files["README.md"])
    return folder


@pytest.mark.long
@pytest.mark.parametrize("role", TENSOR_ROLES)
def test_a_new_plugin_of_a_tensor_role_skips_what_its_spec_rules_out_alone(packages: Path, role: str) -> None:
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    said = _run(pytest_, packages / f"slime-{role}-mine", packages / "site")
    assert " passed" in said
    skips = [line for line in said.splitlines() if line.startswith("SKIPPED")]
    assert [line for line in skips if "the spec's" not in line and "use one rank" not in line] == []


def test_a_run_takes_a_new_plugin_of_every_role(packages: Path, project: Project) -> None:
    """It counts the tracker's lines: two steps, each with its number."""
    used = {role: {"use": "mine"} for role in SELECTABLE if role not in APART}
    project.write_run(prompt_data=None, input_key=None, label_key=None, apply_chat_template=None, **used)
    _run([str(Path(sys.executable).with_name("slime")), "train", "run.toml"], project.root, packages / "site")
    lines = (project.run / "metrics.csv").read_text("utf-8").splitlines()
    assert {line.split(",")[0] for line in lines} == {"step", "1", "2"}


def _run(command: list[str], folder: Path, site: Path | None = None) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COVERAGE_", "PYTEST_"))}
    if site is not None:
        environment["PYTHONPATH"] = str(site)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
