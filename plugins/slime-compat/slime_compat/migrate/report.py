"""Report: what became of each flag, in columns, and the run file with its origin on top."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from slime_compat.migrate.outcome import Fate, Migration, Row
from slime_core.config import write_toml

WIDEST = 48
"""Columns of a flag."""


def run_file(migration: Migration, script: Path) -> str:
    """The run file as TOML."""
    left = [*(f"{row.flag}: {row.here}" for row in migration.of(Fate.LEFT_OUT)), *migration.problems]
    lines = [f"# From {script.name}, by slime migrate.", *(f"# Left out: {' '.join(each.split())}" for each in left)]
    return "\n".join(lines) + "\n\n" + write_toml(migration.values)


def report(migration: Migration) -> Iterator[str]:
    """Lines for the screen: what was mapped, what is not needed, what was left out."""
    carried = migration.of(Fate.CARRIED)
    yield f"{len(carried)} carried: {_names(carried)}"
    for fate in (Fate.MAPPED, Fate.NEEDLESS, Fate.MINOR, Fate.LEFT_OUT):
        rows = migration.of(fate)
        yield f"{len(rows)} {fate.value}" + (":" if rows else "")
        yield from _lines(rows)
    if migration.problems:
        yield "slime plan will refuse it:"
        yield from (f"  {each}" for each in migration.problems)


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    """A line a flag; what several have in common is said once."""
    for here in dict.fromkeys(row.here for row in rows):
        alike = [row for row in rows if row.here == here]
        if len(alike) > 2:
            yield f"  {here}:"
            yield f"    {_names(alike)}"
        else:
            yield from map(_line, alike)


def _names(rows: Sequence[Row]) -> str:
    return " ".join(dict.fromkeys(row.flag.split()[0].removeprefix("--") for row in rows))


def _line(row: Row) -> str:
    flag = row.flag if len(row.flag) <= WIDEST else row.flag[: WIDEST - 3] + "..."
    where = f"{row.file}:{row.line}" if row.file else f"line {row.line}" if row.line else ""
    return f"  {where:<9} {flag:<{WIDEST}}  {row.here}"
