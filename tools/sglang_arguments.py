"""The arguments of SGLang and its routers, docs/reference/sglang-arguments.md: what each takes, by release.

The page is written from what slime-engine-sglang lists of the releases that it was made with.

    .venv/bin/python tools/sglang_arguments.py            exit 1 with the difference
    .venv/bin/python tools/sglang_arguments.py --write    write it
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slime_core.sample import Json
from slime_engine_sglang import arguments
from slime_engine_sglang.arguments import NEWEST
from slime_engine_sglang.settings import ROUTER_OWN_ARGUMENTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "sglang-arguments.md"
HEAD = """\
# Arguments of SGLang

<!-- Written by tools/sglang_arguments.py from what slime-engine-sglang lists: `make reference`. -->

These are the arguments of the releases that [the engine `sglang`](../sglang.md) was made with, by kind and with their
defaults; SGLang's documentation explains them. `slime plugins show engine/sglang` lists the arguments of the installed
release, with their choices and SGLang's help. `slime plan` rejects all others.

A switch is off unless it says `true`. Where no default is shown, the software chooses it.

## SGLang {version}

The flag is `--sglang-` and the name, as in `--sglang-mem-fraction-static 0.7`. In a run file write
`mem_fraction_static` in `[engine.sglang.server]`, or the key `sglang_mem_fraction_static`.
"""
REFUSED = """\
Refused, with the reason:
"""
ROUTER = """\
## Routers

Select one with `--router-use`. The flag is `--router-` and the name, as in `--router-cache-threshold 0.5`. In a run
file write `cache_threshold` in `[engine.sglang.router]`, or the key `router_cache_threshold`.

The run sets {own}.
"""
KINDS = {
    "switch": "Switches",
    "integer": "Integers",
    "number": "Numbers",
    "text": "Strings",
    "choice": "Choices",
    "list": "Lists",
    "json": "Objects",
}
WIDTH = 56
"""Columns before a default."""
LONGEST = 60
"""Characters of a default that are shown."""


def page() -> str:
    """The whole page."""
    lines = [HEAD.format(version=NEWEST), *_server_lines(), "", *_router_lines()]
    return "\n".join(lines).rstrip() + "\n"


def _server_lines() -> Iterator[str]:
    listed = _listed(arguments.SHIPPED)
    yield from _by_kind([about for about in listed if about["name"] not in arguments.BLOCKED_ARGUMENTS])
    yield REFUSED
    reasons: dict[str, list[str]] = {}
    for about in listed:
        if blocked_because := arguments.BLOCKED_ARGUMENTS.get(str(about["name"])):
            reasons.setdefault(blocked_because, []).append(f"`{_name(about)}`")
    yield from (
        f"- {', '.join(names)}: {'each' if len(names) > 1 else 'it'} {blocked_because}."
        for blocked_because, names in reasons.items()
    )


def _router_lines() -> Iterator[str]:
    own = ROUTER_OWN_ARGUMENTS - {"policy"}
    yield ROUTER.format(own=", ".join(f"`{name.replace('_', '-')}`" for name in sorted(own)))
    releases = {}
    for path in sorted(arguments.SHIPPED.parent.glob("arguments-*-*.json"), reverse=True):
        program, _, version = path.stem.removeprefix("arguments-").rpartition("-")
        releases[f"{program} {version}"] = [about for about in _listed(path) if about["name"] not in own]
    (first, listed), *others = releases.items()
    yield f"### {first}\n"
    yield from _by_kind(listed)
    known = {str(about["name"]): about for about in listed}
    for release, theirs in others:
        same = [about for about in theirs if about["name"] in known and _same(about, known[str(about["name"])])]
        yield f"### {release}\n"
        yield f"As in {first}:\n\n```text"
        yield from map(_name, same)
        yield "```\n"
        yield from _by_kind([about for about in theirs if about not in same])


def _same(about: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    return (_kind(about), _default(about)) == (_kind(other), _default(other))


def _listed(path: Path) -> list[dict[str, Json]]:
    listed: list[dict[str, Json]] = json.loads(path.read_text("utf-8"))
    return sorted(listed, key=lambda about: str(about["name"]))


def _by_kind(listed: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    for kind, title in KINDS.items():
        if several := [about for about in listed if _kind(about) == kind]:
            yield f"{title}:\n\n```text"
            yield from (f"{_name(about):{WIDTH}} {_default(about)}".rstrip() for about in several)
            yield "```\n"


def _kind(about: Mapping[str, Json]) -> str:
    return "list" if about.get("many") else "choice" if about.get("choices") else str(about.get("kind"))


def _name(about: Mapping[str, Json]) -> str:
    return str(about["name"]).replace("_", "-")


def _default(about: Mapping[str, Json]) -> str:
    value = about.get("default")
    if value is None or value in ("", [], {}) or value is False:
        return ""
    shown = "true" if value is True else value if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(PAGE, page()))
