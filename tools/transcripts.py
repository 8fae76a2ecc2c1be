"""The command transcripts of the documentation, run and compared: what a page shows is what the command prints.

A transcript is a `console` block below the comment `<!-- transcript -->`; its commands run in a fresh directory that
holds the files which the page shows above it (blocks with a title). `<!-- transcript: numbers -->` lets numbers differ.

    .venv/bin/python tools/transcripts.py            exit 1 with the difference
    .venv/bin/python tools/transcripts.py --write    write what the commands print now
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"^(?P<marker><!-- transcript(?P<loose>: numbers)? -->\n\n?)?"
    r"```(?P<kind>\w+)(?P<title> title=\"[^\"]+\")?\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
SPACES = re.compile(r"  +")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    kind: str
    """Its language."""
    title: str
    """The file that it shows; empty without one."""
    body: str
    """Its lines."""
    start: int
    """Where the body begins in the page."""
    transcript: bool
    """Whether its commands are to be run."""
    loose: bool
    """Whether numbers may differ."""

    @property
    def shows_output(self) -> bool:
        """Whether there is more than commands in it."""
        lines = self.body.splitlines()
        return any(line.startswith("$ ") for line in lines) and any(
            line and not line.startswith("$ ") for line in lines
        )


def main() -> int:
    """Check or write every transcript, and return the exit status."""
    parser = argparse.ArgumentParser(description="the command transcripts of the documentation")
    parser.add_argument("--write", action="store_true", help="write what the commands print now")
    parser.add_argument("pages", nargs="*", type=Path, help="pages; all by default")
    chosen = parser.parse_args()
    found = False
    for page in map(Path.resolve, chosen.pages or pages()):
        for problem in check_page(page, write=chosen.write):
            found = True
            print(problem)
    if found and not chosen.write:
        print("Commands print something else than the pages show. If that is wanted: `make reference`.")
    return 1 if found and not chosen.write else 0


def pages() -> list[Path]:
    """The README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for match in BLOCK.finditer(text):
        title = (match["title"] or "").partition('"')[2].rstrip('"')
        marked = match["marker"] is not None
        yield Block(match["kind"], title, match["body"], match.start("body"), marked, match["loose"] is not None)


def check_page(page: Path, *, write: bool) -> Iterator[str]:
    """Run the transcripts of a page in order; yields the difference of each that is not as shown."""
    text = page.read_text("utf-8")
    found = list(blocks(text))
    if not any(block.transcript for block in found):
        return
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        project.mkdir()
        fresh: dict[int, str] = {}
        for block in found:
            if block.title:
                path = project / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.body, "utf-8")
            if block.transcript:
                printed = run(block.body, project)
                if _comparable(printed, block) != _comparable(block.body, block):
                    fresh[block.start] = printed
                    lines = difflib.unified_diff(
                        block.body.splitlines(),
                        printed.splitlines(),
                        str(page.relative_to(ROOT)),
                        "printed",
                        lineterm="",
                    )
                    yield "\n".join(lines)
    if write and fresh:
        for block in reversed(found):
            if block.start in fresh:
                text = text[: block.start] + fresh[block.start] + text[block.start + len(block.body) :]
        page.write_text(text, "utf-8")


def run(body: str, project: Path) -> str:
    """The block with what its commands print now."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLIME_", "PYTEST", "COVERAGE"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "XDG_CACHE_HOME": str(project.parent / "cache"),
    }
    lines = []
    for command in (line for line in body.splitlines() if line.startswith("$ ")):
        ran = subprocess.run(
            ["bash", "-c", command.removeprefix("$ ")],
            cwd=project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        lines += [command, *(line.rstrip() for line in _without_paths(ran.stdout, project).splitlines())]
    return "\n".join(lines) + "\n"


def _without_paths(text: str, project: Path) -> str:
    """Paths of this machine as a reader's."""
    text = text.replace(str(project), "~/project").replace(str(ROOT), "~/slime-core")
    return re.sub(r"/\S*/(lib/python3\.\d+(?:/site-packages)?)", r"…/\1", text)


def _comparable(body: str, block: Block) -> str:
    return SPACES.sub("  ", NUMBER.sub("0", body)) if block.loose else body


if __name__ == "__main__":
    sys.exit(main())
