"""The arguments of SGLang and its routers, docs/reference/sglang-arguments.md: what each takes, by release.

The page is written from what slime-engine-sglang lists of the releases that it was made with.

    .venv/bin/python tools/sglang_arguments.py            exit 1 with the difference
    .venv/bin/python tools/sglang_arguments.py --write    write it
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from slime_core.sample import Json
from slime_engine_sglang import arguments
from slime_engine_sglang.arguments import NEWEST
from slime_engine_sglang.settings import ROUTER_OWN_ARGUMENTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "sglang-arguments.md"
HEAD = """\
# Arguments of SGLang

<!-- Written by tools/sglang_arguments.py from what slime-engine-sglang lists: `make reference`. -->

These are the arguments of the releases that [the engine `sglang`](../sglang.md) was made with; SGLang's documentation
explains them. `slime plugins show engine/sglang` lists the arguments of the installed release, with their choices and
SGLang's help. `slime plan` rejects all others.

A switch is off unless its default is `true`. Where no default is shown, the software chooses it.
"""
SERVER = """\
## SGLang {version}

The flag is `--sglang-` and the name, as in `--sglang-mem-fraction-static 0.7`. In a run file write
`mem_fraction_static` in `[engine.sglang.server]`, or the key `sglang_mem_fraction_static`.

| name | value | default |
| --- | --- | --- |"""
ROUTER = """
## Routers

Select one with `--router-use`. The flag is `--router-` and the name, as in `--router-cache-threshold 0.5`. In a run
file write `cache_threshold` in `[engine.sglang.router]`, or the key `router_cache_threshold`. A release with an empty
cell lacks the argument.

"""
TAKES = {
    "integer": "integer",
    "number": "number",
    "text": "string",
    "switch": "switch",
    "json": "object",
}
LONGEST = 60
"""Characters of a default that are shown."""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_server_lines(), *_router_lines()]) + "\n"


def _server_lines() -> Iterator[str]:
    yield SERVER.format(version=NEWEST)
    for about in _listed(arguments.SHIPPED):
        why_not = arguments.OWN_ARGUMENTS.get(str(about["name"]), "")
        value, default = (f"refused: it {why_not}", "") if why_not else (_value(about), _default(about))
        yield f"| {_name(about)} | {value} | {default} |"


def _router_lines() -> Iterator[str]:
    releases = {}
    for path in sorted(arguments.SHIPPED.parent.glob("arguments-*-*.json"), reverse=True):
        program, _, version = path.stem.removeprefix("arguments-").rpartition("-")
        releases[f"{program} {version}"] = {str(about["name"]): about for about in _listed(path)}
    yield ROUTER + f"| name | {' | '.join(releases)} |\n|{' --- |' * (1 + len(releases))}"
    for name in sorted(set().union(*releases.values())):
        cells = [_router_cell(release.get(name)) for release in releases.values()]
        later = ["same" if cell == cells[0] else cell for cell in cells[1:]]
        yield f"| {_name({'name': name})} | {' | '.join([cells[0], *later])} |"


def _router_cell(about: Mapping[str, Json] | None) -> str:
    if about is None:
        return ""
    if about["name"] in ROUTER_OWN_ARGUMENTS - {"policy"}:
        return "set by the run"
    default = _default(about)
    return _value(about) + (f"; default {default}" if default else "")


def _listed(path: Path) -> list[dict[str, Json]]:
    listed: list[dict[str, Json]] = json.loads(path.read_text("utf-8"))
    return sorted(listed, key=lambda about: str(about["name"]))


def _name(about: Mapping[str, Json]) -> str:
    return f"`{str(about['name']).replace('_', '-')}`"


def _value(about: Mapping[str, Json]) -> str:
    one = "choice" if about.get("choices") else TAKES[str(about["kind"])]
    return f"list: {one}" if about.get("many") else one


def _default(about: Mapping[str, Json]) -> str:
    value = about.get("default")
    if value is None or value in ("", [], {}) or value is False:
        return ""
    shown = "true" if value is True else value if isinstance(value, str) else json.dumps(value)
    cut = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
    return f"`{cut.replace('|', chr(92) + '|')}`"


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(PAGE, page()))
