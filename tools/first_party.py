"""What the plugins of this checkout offer, as data of the core: an error about a missing name says which brings it.

.venv/bin/python tools/first_party.py            exit 1 if slime_core/catalog/first_party.json differs
.venv/bin/python tools/first_party.py --write    write it
"""

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

from slime_core.hookspecs import NAMES_HOOK, PROVIDER_OF_ROLE
from slime_core.roles import ForeignName, Spec

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "slime_core" / "catalog" / "first_party.json"


def offered() -> dict[str, object]:
    """By distribution: its choices, the owners of flat keys, whose names it knows, its commands, what it requires."""
    found: dict[str, object] = {}
    for path in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        sys.path.insert(0, str(path.parent))
        modules = [importlib.import_module(name) for name in project["entry-points"]["slime.plugins"].values()]
        specs = [spec for module in modules for spec in _specs(module)]
        found[project["name"]] = {
            "choices": _choices(specs),
            "flat_keys": _flat_keys(specs),
            "frameworks": sorted({name.framework for module in modules for name in _names(module)} - {""}),
            "commands": _commands(project["entry-points"].get("slime.commands", {})),
            "requires": sorted(set(re.findall(r"slime-[a-z-]+", " ".join(project["dependencies"]))) - {"slime-core"}),
        }
    return found


def _commands(entries: Mapping[str, str]) -> dict[str, str]:
    """The line of `slime --help` of each."""
    loaded = {name: EntryPoint(name, value, "slime.commands").load() for name, value in sorted(entries.items())}
    return {name: command.get_short_help_str(90) for name, command in loaded.items()}


def _choices(specs: Iterable[Spec[object]]) -> dict[str, list[str]]:
    choices: dict[str, list[str]] = {}
    for spec in specs:
        choices.setdefault(spec.role, []).append(spec.name)
    return choices


def _flat_keys(specs: Iterable[Spec[object]]) -> dict[str, list[str]]:
    """A prefix stands for all keys that begin with it, as `sglang_*`."""
    keys: dict[str, list[str]] = {}
    for spec in specs:
        for key in (*spec.flat_names, *([f"{spec.flat_prefix}*"] if spec.flat_prefix else [])):
            keys.setdefault(key, []).append(f"{spec.role}/{spec.name}")
    return keys


def _specs(module: ModuleType) -> Iterator[Spec[object]]:
    for hook in PROVIDER_OF_ROLE.values():
        yield from getattr(module, hook, tuple)()


def _names(module: ModuleType) -> Iterator[ForeignName]:
    yield from getattr(module, NAMES_HOOK, tuple)()


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(DATA, json.dumps(offered(), indent=1) + "\n"))
