"""The plugin lock: which plugins a run has loaded, and what it took from each; kept in checkpoints.

Example:

    saved = lock_plugins(plan)      # {"slime-reward-math": {"version": "0.1.0", "choices": ["reward/math"], ...}}
    changed_plugins(saved, plan)    # on resume: ["slime-reward-math 0.1.0 (reward/math) is 0.2.0 now: …"]
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from slime_core.catalog import Catalog, how_to_get, is_in_project, project_source
from slime_core.config.plan import Plan
from slime_core.sample import Json


def lock_plugins(plan: Plan) -> dict[str, Json]:
    """Version and code of each loaded plugin and the choices that the plan takes from it, by plugin.

    A file of the project has no version: the beginning of its SHA-256 stands for one. An editable plugin keeps its
    version when it changes, so `code` is a digest of the files as they are now.
    """
    taken: dict[str, list[Json]] = {}
    for role, several in plan.roles.items():
        for chosen in several:
            found = chosen.registered
            name = found.qualified if is_in_project(found.qualified) else found.spec.name
            taken.setdefault(found.plugin, []).append(f"{role}/{name}")
    loaded = plan.catalog.loaded
    dists = {each.plugin: each.dist for each in loaded}
    versions = {each.plugin: each.version for each in loaded}
    modules = {
        each.plugin: [other.origin.partition(":")[0] for other in loaded if other.plugin == each.plugin]
        for each in loaded
    }
    return {
        plugin: {
            "dist": (dist := dists.get(plugin, "")),
            "version": versions[plugin] if dist else _digest(plugin, plan.catalog),
            "code": code_digest(modules[plugin]) if dist and plugin in taken else "",
            "choices": taken.get(plugin, []),
        }
        for plugin in dict.fromkeys([*versions, *taken])
    }


def changed_plugins(saved: Mapping[str, Json], plan: Plan) -> list[str]:
    """A line about each plugin that the run uses and that is another one now than in `saved`."""
    now = lock_plugins(plan)
    return [
        line
        for plugin in dict.fromkeys([*saved, *now])
        if (line := _change(plugin, _entry(saved, plugin), _entry(now, plugin)))
    ]


def missing_plugins(saved: Mapping[str, Json], catalog: Catalog) -> list[str]:
    """A line about each plugin that the run took something from and that is not loaded now."""
    loaded = {each.plugin for each in catalog.loaded}
    entries = {plugin: _entry(saved, plugin) for plugin in saved if plugin not in loaded}
    return [
        f"{_named(plugin, entry)} is not loaded now{_install(entry)}"
        for plugin, entry in entries.items()
        if any(not is_in_project(choice.partition("/")[2]) for choice in _choices(entry))
    ]


def code_digest(modules: Iterable[str]) -> str:
    """The beginning of a SHA-256 of names and contents; empty where no file is found.

    Args:
        modules: loaded ones. Of one in a package, all files of the outermost package count.
    """
    digest, found = hashlib.sha256(), False
    for root, file in sorted({place for module in modules for place in _files(module)}):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(data)}\n".encode("utf-8", "surrogatepass") + data)
        found = True
    return f"sha256:{digest.hexdigest()[:12]}" if found else ""


def _files(module: str) -> list[tuple[Path, Path]]:
    """Files of the outermost package that is no namespace, each after the folder that its name starts from."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        file = getattr(sys.modules.get(".".join(parts[:end])), "__file__", None)
        if file is not None:
            path, root = Path(file), Path(file).parent
            return [(root, each) for each in root.rglob("*.py")] if path.name == "__init__.py" else [(root, path)]
    return []


def _digest(plugin: str, catalog: Catalog) -> str:
    source = project_source(plugin, catalog.root)
    return f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}" if source is not None else ""


def _change(plugin: str, before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    gone = [choice for choice in _choices(before) if choice not in _choices(now)]
    came = [choice for choice in _choices(now) if choice not in _choices(before)]
    if not now and gone:
        return f"{_named(plugin, before)} is not loaded now{_install(before)}"
    if not before and came:
        return f"{plugin} {now.get('version')} brings {', '.join(came)}, which came from another plugin"
    if (gone or came or _choices(now)) and before.get("version") != now.get("version"):
        return f"{_named(plugin, before)} is {now.get('version')} now{_install(before)}"
    if _choices(now) and before.get("code") and before["code"] != now.get("code"):
        return f"{_named(plugin, before)} has other code now, under the same version"
    if gone:
        return f"{plugin} brought {', '.join(gone)}, which comes from another plugin now"
    return ""


def _named(plugin: str, entry: Mapping[str, Json]) -> str:
    version = entry.get("version") or ""
    return f"{plugin} {version}".rstrip() + f" ({', '.join(_choices(entry))})"


def _install(entry: Mapping[str, Json]) -> str:
    return f": {how_to_get(str(entry['dist']), str(entry['version']))}" if entry.get("dist") else ""


def _entry(lock: Mapping[str, Json], plugin: str) -> Mapping[str, Json]:
    entry = lock.get(plugin)
    return entry if isinstance(entry, dict) else {}


def _choices(entry: Mapping[str, Json]) -> list[str]:
    choices = entry.get("choices")
    return [str(each) for each in choices] if isinstance(choices, list) else []
