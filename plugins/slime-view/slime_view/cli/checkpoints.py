"""`slime checkpoints`: lists, verifies and removes a run's checkpoints."""

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from slime_core.cli.train import run_file_of
from slime_core.errors import CheckpointError, printable
from slime_core.run import RunFolder, list_checkpoints, verify
from slime_core.run.checkpoint import MANIFEST, remove_checkpoint
from slime_core.sample import Json

DAMAGED = 1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """One checkpoint."""

    path: Path
    """Its directory."""
    size: int
    """Bytes of its files."""
    written: float
    """When it was complete, in seconds since 1970; for one without a manifest, when its directory changed."""
    verified: bool
    """Whether its files' contents were compared, not only their sizes."""
    problem: str
    """The damage found; empty without any."""


def examine(root: Path, *, contents: bool) -> list[CheckpointStatus]:
    """Every checkpoint in a run's `checkpoints`, oldest first; one that is deleted meanwhile is left out."""
    return [found for path in list_checkpoints(root) if (found := _examine(path, contents)) is not None]


def prune(root: Path, keep: int) -> Sequence[Path]:
    """Remove checkpoints that are older than the newest `keep` complete ones, except the best one.

    A damaged checkpoint does not count as one of the `keep`.

    Returns:
        The removed directories; none if there are fewer complete ones.
    """
    whole = 0
    paths = list_checkpoints(root)
    for place in reversed(range(len(paths))):
        if whole == keep:
            best = (root.parent / "best").resolve()
            removed = [path for path in paths[: place + 1] if path.resolve() != best]
            for path in removed:
                remove_checkpoint(path)
            return removed
        whole += not _problem(paths[place], contents=True)
    return ()


def _examine(path: Path, contents: bool) -> CheckpointStatus | None:
    problem = _problem(path, contents)
    try:
        manifest = path / MANIFEST
        written = (manifest if manifest.is_file() else path).stat().st_mtime
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except FileNotFoundError:  # the active run has removed it
        return None
    return CheckpointStatus(path, size, written, contents and not problem, problem)


def _problem(path: Path, contents: bool) -> str:
    try:
        verify(path, contents)
    except CheckpointError as error:
        return str(error)
    return ""


@click.command(short_help="List, verify and prune a run's checkpoints.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Compare the contents of every file, not only its size.")
@click.option(
    "--prune",
    "keep",
    type=click.IntRange(min=1),
    metavar="KEEP",
    help="Remove checkpoints older than the newest KEEP intact ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def checkpoints(run: Path, verify: bool, keep: int | None, as_json: bool) -> int:
    """List the checkpoints of the run in RUN; the exit code is 1 if one is damaged.

    \b
    slime checkpoints runs/first
    slime checkpoints runs/first --verify
    slime checkpoints runs/first --prune 2

    Works while the run is active, except --prune.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    run_file_of(run)
    root = run / "checkpoints"
    with RunFolder.locked(run) if keep else nullcontext():
        removed = prune(root, keep) if keep else ()
    found = examine(root, contents=verify or keep is not None)
    if as_json:
        click.echo(json.dumps(_as_plain_data(run, found, removed), indent=2))
    else:
        _show(found, removed)
    return DAMAGED if any(each.problem for each in found) else 0


def _as_plain_data(run: Path, found: Sequence[CheckpointStatus], removed: Sequence[Path]) -> dict[str, Json]:
    return {
        "schema_version": 1,
        "run": str(run),
        "checkpoints": [
            {
                "name": each.path.name,
                "bytes": each.size,
                "written": each.written,
                "state": _state(each),
                "problem": each.problem,
            }
            for each in found
        ],
        "removed": [path.name for path in removed],
    }


def _state(each: CheckpointStatus) -> str:
    return "damaged" if each.problem else "verified" if each.verified else "complete"


def _show(found: Sequence[CheckpointStatus], removed: Sequence[Path]) -> None:
    for path in removed:
        click.echo(f"removed {path.name}")
    for each in found:
        size, age = _size(each.size), _age(time.time() - each.written)
        state = click.style(_state(each), fg="red" if each.problem else "green")
        click.echo(f"{each.path.name:<16} {size:>10} {age:>9} old  {state}")
        if each.problem:
            click.echo(f"    {printable(each.problem)}")
    if not found:
        click.echo("no checkpoint yet")


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def _age(seconds: float) -> str:
    for length, unit in _AGES:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
