"""Small git repositories, and the programs of tools/ run on them."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")


def git(repository: Path, *argv: str) -> str:
    done = subprocess.run(["git", *AUTHOR, "-C", repository, *argv], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def commit(repository: Path, files: Mapping[str, str]) -> None:
    """Commit everything, with these files, to a repository that is made if needed."""
    if not (repository / ".git").exists():
        repository.mkdir(exist_ok=True)
        git(repository, "init", "-qb", "main")
    write(repository, files)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Change", "--allow-empty")


def run_tool(name: str, *argv: object) -> "subprocess.CompletedProcess[str]":
    """`python tools/NAME ARGV` of this checkout."""
    command = [sys.executable, ROOT / "tools" / name, *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
