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

What the releases take that [the engine `sglang`](../sglang.md) was made with. In a run what is installed counts:
`slime plugins show engine/sglang` lists that, with SGLang's own help, and `slime plan` refuses what it has not.
A dash is a default that the software finds by itself.
"""
SERVER = """\
## SGLang {version}

`--sglang-mem-fraction-static 0.7` is the key `sglang_mem_fraction_static`, and `mem_fraction_static` in
`[engine.sglang.server]`.

| flag | takes | default |
| --- | --- | --- |"""
ROUTER = """\
## {program} {version}

With `--router-use {program}`. `--router-cache-threshold 0.5` is the key `router_cache_threshold`, and `cache_threshold`
in `[engine.sglang.router]`.

| flag | takes | default |
| --- | --- | --- |"""
TAKES = {
    "integer": "a whole number",
    "number": "a number",
    "text": "a text",
    "switch": "true or false",
    "json": "a table or a list",
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
        yield _row(f"--sglang-{str(about['name']).replace('_', '-')}", about, why_not)


def _router_lines() -> Iterator[str]:
    folder = arguments.SHIPPED.parent
    for path in sorted(folder.glob("arguments-*-*.json"), reverse=True):
        program, _, version = path.stem.removeprefix("arguments-").rpartition("-")
        yield "\n" + ROUTER.format(program=program, version=version)
        for about in _listed(path):
            why_not = "follows from the run" if about["name"] in ROUTER_OWN_ARGUMENTS - {"policy"} else ""
            yield _row(f"--router-{str(about['name']).replace('_', '-')}", about, why_not)


def _listed(path: Path) -> list[dict[str, Json]]:
    told: list[dict[str, Json]] = json.loads(path.read_text("utf-8"))
    return sorted(told, key=lambda about: str(about["name"]))


def _row(name: str, about: Mapping[str, Json], why_not: str) -> str:
    if why_not:
        return f"| `{name}` | nothing: it {why_not} | |"
    choices = about.get("choices")
    one = TAKES[str(about["kind"])]
    takes = ", ".join(f"`{each}`" for each in choices) if isinstance(choices, list) and choices else one
    many = "several: " if about.get("many") else ""
    return f"| `{name}` | {many}{takes} | {_default(about.get('default'))} |"


def _default(value: Json) -> str:
    if value is None or value in ("", [], {}):
        return "–"
    shown = str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else json.dumps(value)
    cut = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
    return f"`{cut.replace('|', chr(92) + '|')}`"


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(PAGE, page()))
