"""The pages of docs/start, from top to bottom: their files are written, their commands run, in a folder of their own.

A block of commands says whether it is run: `<!-- run -->` above it, or `<!-- not run: why -->`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tables import table

START = Path(__file__).resolve().parent.parent / "docs" / "start"
PAGES = sorted(START.glob("*.md"))
BLOCK = re.compile(
    r"^(?:<!-- (?P<marker>[^\n]+) -->\n)?```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LIMIT_S = 600


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    marker: str
    kind: str
    title: str
    body: str

    @property
    def commands(self) -> list[str]:
        """What one types."""
        return [line.removeprefix("$ ") for line in self.body.splitlines() if line.startswith("$ ")]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    for found in BLOCK.finditer(page.read_text("utf-8")):
        yield Block(found["marker"] or "", found["kind"], found["title"] or "", found["body"])


@table("page", PAGES)
def test_every_command_of_a_journey_says_whether_it_is_run(page: Path) -> None:
    shown = [block for block in blocks(page) if block.kind == "console"]
    assert any(block.marker == "run" for block in shown)
    for block in shown:
        assert block.marker == "run" or re.fullmatch(r"not run: .{10,}", block.marker), block.body
        assert all(line.startswith("$ ") for line in block.body.splitlines()), "an output that nobody compares"


def environment(home: Path) -> dict[str, str]:
    """A reader's: nothing of this machine's settings, and no network of a hub."""
    kept = {
        name: each
        for name, each in os.environ.items()
        if not name.startswith(("SLIME_", "PYTEST", "COVERAGE", "WANDB"))
    }
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "XDG_CACHE_HOME": str(home / "cache"),
    }


def typed(command: str, folder: Path) -> None:
    """Run a command as a reader does."""
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert ran.returncode == 0, f"$ {command}\n{ran.stdout}\nexit code {ran.returncode}"


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `slime demo` was run: where every journey begins."""
    pytest.importorskip("slime_local", reason="the demo trains with slime-local")
    folder = tmp_path_factory.mktemp("first") / "project"
    folder.mkdir()
    typed("slime demo --no-progress", folder)
    return folder


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_journey_can_be_gone(page: Path, first_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(first_run, folder)
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.body, "utf-8")
        if block.marker == "run":
            for command in block.commands:
                typed(command, folder)
