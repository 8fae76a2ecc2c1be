"""Environments that are this one but for some distributions: what is left out is not installed there at all."""

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path


def environment_without(folder: Path, *names: str) -> Path:
    """Make one; returns its Python.

    Args:
        folder: an empty one.
        names: distributions to leave out, with all of their files; of one in editable form, with the line that
            leads to it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    here = Path(sysconfig.get_path("purelib"))
    there = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    left_out = {"__pycache__", "bin"}
    for each in distributions(path=[str(here)]):
        if each.name in names:
            left_out |= {Path(str(file)).parts[0] for file in each.files or ()}
    for entry in here.iterdir():
        if entry.name not in left_out:
            (there / entry.name).symlink_to(entry)
    return folder / "bin/python"


def run(python: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a Python, with what tests of coverage and the like have set left out."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}
    return subprocess.run(
        [str(python), *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
