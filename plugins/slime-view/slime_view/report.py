"""Report: one self-contained HTML file with the views of `slime view` over a part of the samples.

It embeds the pages' unmodified scripts, each in a separate block. Its content security policy allows only them, by
digest.

Example:

    Path("first.html").write_text(report_page(OpenRun.all([Path("runs/first")]), samples=200), "utf-8")
"""

import json
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from slime_core.errors import SlimeError
from slime_core.sample import Json
from slime_view.comparison import Comparison
from slime_view.guard import digest
from slime_view.index import PAGE, Place, Query
from slime_view.runs import OpenRun
from slime_view.samples import Kind, list_shards
from slime_view.samples.shard import read_columns

STATIC = Path(__file__).with_name("static")
MODULES = ("dom", "tokens", "curves", "samples", "sample", "group", "compare", "offline", "view")
"""The modules, each after its imports."""
ENTRY = "modules.dom.answerFrom(modules.offline.answer);\n"
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


def report_page(runs: Sequence[OpenRun], samples: int) -> str:
    """The page of some runs, each of which has been read.

    Args:
        runs: the runs to show.
        samples: approximate number per run: whole groups, evenly over its rollouts, and the last evaluation's first.

    Raises:
        RunFolderError: a file cannot be read.
    """
    held = {
        "runs": [_of_run(run, samples) for run in runs],
        "comparisons": {
            f"{one.name}\n{other.name}": Comparison.of(one.folder, other.folder).shown()
            for pair in combinations(runs, 2)
            for one, other in (pair, pair[::-1])
        },
    }
    data = json.dumps(held, separators=(",", ":")).replace("<", "\\u003c")
    styles = "\n".join((STATIC / name).read_text("utf-8") for name in ("uplot/uPlot.min.css", "view.css"))
    scripts = [(STATIC / "uplot/uPlot.iife.min.js").read_text("utf-8"), bundle()]
    allowed = " ".join(map(digest, scripts))
    policy = f"default-src 'none'; script-src {allowed}; style-src {digest(styles)}; img-src data:; base-uri 'none'"
    body = (STATIC / "index.html").read_text("utf-8").partition("<body>")[2]
    plot, own = scripts
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>slime report</title>\n<style>{styles}</style>\n<script>{plot}</script>\n"
        f'<script type="application/json" id="held">{data}</script>\n</head>\n<body>{body.partition("</body>")[0]}'
        f'<script type="module">{own}</script>\n</body>\n</html>\n'
    )


def bundle() -> str:
    """The modules as one script: each is a function, which stores its exports in an object for later ones."""
    parts = ["const modules = {};\n"]
    for name in MODULES:
        text = (STATIC / f"{name}.js").read_text("utf-8")
        exported = ", ".join(_EXPORT.findall(text))
        text = _EXPORT.sub("", _IMPORT.sub(r"const \1 = modules.\2;", text))
        start = ENTRY if name == "view" else ""
        parts.append(f"{start}modules.{name} = await (async () => {{\n{text}return {{ {exported} }};\n}})();\n")
    return "".join(parts)


def _of_run(run: OpenRun, samples: int) -> dict[str, Json]:
    shown = [run.sample(place) for place in chosen(run, samples)]
    groups = dict.fromkeys(str(each["group"]) for each in shown if each["group"] is not None)
    return {
        "state": {**run.state(), "samples": len(shown)},
        "curves": run.curves.after(0, sorted(run.curves.columns))["metrics"],
        "choices": run.choices(),
        "samples": list[Json](shown),
        "lives": {group: _life(run, group) for group in groups},
    }


def _life(run: OpenRun, group: str) -> list[Json]:
    try:
        return run.life(group)
    except SlimeError:  # of a run without a ledger
        return []


def chosen(run: OpenRun, samples: int) -> list[Place]:
    """A report's samples: a kept and a dropped group from evenly spaced rollouts; then from an evaluation."""
    rollouts = list_shards(run.folder / "samples")
    evaluations = list_shards(run.folder / "samples", Kind.EVAL)[-1:]
    size = max((len(rows) for path in rollouts[-1:] for rows in _groups(path)), default=1)
    wanted = max(1, samples // (2 * size))
    places = []
    step = max(0, len(rollouts) - 1) / max(1, wanted - 1)
    for at in sorted({round(number * step) for number in range(wanted)} if rollouts else ()):
        places += [Place(rollouts[at], row) for rows in _groups(rollouts[at]) for row in rows]
    for path in evaluations:
        rows = [place.row for place in run.index.find(Query(kind="eval")).places if place.path == path]
        places += [Place(path, row) for row in rows[:PAGE]]
    return places


def _groups(path: Path) -> list[list[int]]:
    """Rows of the first kept and of the first dropped group."""
    found: dict[tuple[bool, str], list[int]] = {}
    for number, row in enumerate(read_columns(path, ["group", "drop_reason"])):
        found.setdefault((row["drop_reason"] is not None, str(row["group"])), []).append(number)
    first = {is_dropped: rows for (is_dropped, _), rows in reversed(found.items())}
    return list(first.values())[::-1]
