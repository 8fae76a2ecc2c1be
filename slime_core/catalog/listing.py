"""Lists installed plugins and what they offer, without importing them.

A cache keeps the choices of each plugin until its files, slime-core or Python change.

Example:

    for listed in list_plugins(PluginSet(), load=False):
        print(listed.order, listed.plugin, listed.facts and listed.facts.choices)  # facts: None until it was loaded
"""

import contextlib
import functools
import hashlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from slime_core.catalog.discovery import (
    Candidate,
    PluginPhase,
    PluginState,
    PluginStatus,
    allowed_by_environment,
    installed_candidates,
    project_candidates,
    select,
)
from slime_core.catalog.packages import CORE
from slime_core.roles import PluginSet
from slime_core.sample import Json
from slime_core.secrets import REDACTOR

if TYPE_CHECKING:
    from slime_core.catalog.catalog import Catalog


# Remembers what each plugin offers, so that listing plugins imports none of them.

SCHEMA_VERSION = 1
NamedT = TypeVar("NamedT", bound="Named")


@dataclass(frozen=True, slots=True)
class ListedChoice:
    """One choice, as far as a list shows it."""

    role: str
    """Its role."""
    name: str
    """Its name within the plugin."""
    summary: str
    """Its line of help."""
    origin: str
    """`file:line` of its factory."""


@dataclass(frozen=True, slots=True)
class ListedHook:
    """One run hook or rank hook that a plugin implements."""

    hook: str
    """Its name."""
    origin: str
    """`file:line` of the function."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found when a plugin was loaded."""

    state: PluginState
    """How it ended."""
    phase: PluginPhase
    """Where it ended."""
    detail: str
    """What is wrong; empty when loaded."""
    api: str
    """The SLIME_API that it declares; empty when it declares none."""
    choices: tuple[ListedChoice, ...]
    """What it offers."""
    hooks: tuple[ListedHook, ...]
    """What it watches."""


def cache_folder() -> Path:
    """Where slime-core keeps what it can find out again: `$XDG_CACHE_HOME/slime-core`, or below ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    return base / "slime-core"


class Named(Protocol):
    """The names by which an entry is found: of a `Candidate` or of a `PluginStatus`."""

    @property
    def name(self) -> str:
        """Its entry point's name."""
        ...

    @property
    def dist(self) -> str:
        """The distribution; empty for a module of the project."""
        ...

    @property
    def origin(self) -> str:
        """What its entry point names."""
        ...


class PluginCache:
    """The entries of this Python environment.

    Args:
        entries: what is in the file.
        root: where relative modules of the project lie.
    """

    def __init__(self, entries: Mapping[str, Json], root: Path) -> None:
        self._entries, self._root = entries, root

    @classmethod
    def read(cls, root: Path) -> "PluginCache":
        """The cache; empty when there is none, or none that can be read."""
        try:
            value = json.loads(_cache_file().read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return cls({}, root)
        match value:
            case {"schema_version": 1, "plugins": dict(entries)}:
                return cls(entries, root)
        return cls({}, root)

    def get(self, plugin: Named) -> Facts | None:
        """What is known about a plugin; None when nothing is, or it changed since."""
        entry = self._entries.get(_name(plugin))
        if not isinstance(entry, dict) or entry.get("made_from") != self._made_from(plugin):
            return None
        try:
            facts = _facts(cast(Mapping[str, Json], entry["facts"]))
        except (KeyError, TypeError, ValueError):  # of another writer
            return None
        if facts.state is not PluginState.LOADED and entry.get("import_path") != _import_path():
            return None
        return facts

    def write(self, found: Mapping[NamedT, Facts], installed: Iterable[Named]) -> None:
        """Add entries and forget those of what is not installed any more; where that is not possible, do nothing."""
        kept = {_name(each) for each in installed}
        entries = {name: entry for name, entry in self._entries.items() if name in kept}
        for plugin, facts in found.items():
            entries[_name(plugin)] = {
                "made_from": self._made_from(plugin),
                "import_path": _import_path(),
                "facts": {**asdict(facts), "state": facts.state.value, "phase": facts.phase.value},
            }
        text = REDACTOR.redact(json.dumps({"schema_version": SCHEMA_VERSION, "plugins": entries}))
        file = _cache_file()
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as draft:
                try:
                    draft.write(text)
                    draft.close()
                    Path(draft.name).replace(file)
                except OSError:
                    Path(draft.name).unlink(missing_ok=True)
                    raise

    def _made_from(self, plugin: Named) -> str:
        """A digest of all that decides what loading a plugin finds."""
        return _digest(_core(), *_sources(plugin.dist, plugin.origin.partition(":")[0], self._root))


def _facts(value: Mapping[str, Json]) -> Facts:
    def items(key: str) -> list[dict[str, str]]:
        return value[key]  # type: ignore[return-value]  # what is wrong raises, and the entry is forgotten

    return Facts(
        state=PluginState(value["state"]),
        phase=PluginPhase(value["phase"]),
        detail=str(value["detail"]),
        api=str(value["api"]),
        choices=tuple(ListedChoice(**each) for each in items("choices")),
        hooks=tuple(ListedHook(**each) for each in items("hooks")),
    )


def _cache_file() -> Path:
    """One file for each Python environment, which replaces its entries at every write and so never grows old ones."""
    return cache_folder() / f"plugins-{_digest(sys.prefix)[:16]}.json"


def _name(plugin: Named) -> str:
    return f"{plugin.dist}:{plugin.name}:{plugin.origin}"


@functools.cache
def _core() -> str:
    """A digest of slime-core, which judges plugins, and of Python."""
    return _digest(sys.version, *_sources(CORE, "slime_core", Path()))


def _sources(dist: str, module: str, root: Path) -> Iterator[str]:
    """What a module's code is recognised by: its distribution's RECORD, and files that are not listed there."""
    record, folder = "", Path()
    if dist:
        with contextlib.suppress(PackageNotFoundError):
            found: Distribution = distribution(dist)
            folder = Path(str(found.locate_file("")))
            record = found.read_text("RECORD") or ""
    yield str(folder)
    yield record
    file = (root / module).resolve() if module.endswith(".py") else _module_file(module)
    if file is None or (file.is_relative_to(folder) and f"{file.relative_to(folder).as_posix()}," in record):
        return
    package = _package_folder(file, module)
    for each in sorted(package.rglob("*.py")) if package else [file]:
        with contextlib.suppress(OSError):
            stat = each.stat()
            yield f"{each} {stat.st_mtime_ns} {stat.st_size}"


def _module_file(module: str) -> Path | None:
    """The source file of a module, found without importing it or a package that it is in."""
    head, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(head)
        for position in range(len(rest)):
            if spec is None:
                return None
            name = ".".join((head, *rest[: position + 1]))
            spec = importlib.machinery.PathFinder.find_spec(name, spec.submodule_search_locations)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.has_location else None


def _package_folder(file: Path, module: str) -> Path | None:
    """The top folder of the package that a module is in; None for a module by itself."""
    depth = module.count(".") + (file.name == "__init__.py")
    return file.parents[depth - 1] if depth and not module.endswith(".py") else None


def _import_path() -> str:
    """A digest that changes when something is installed into a folder of the import path, or removed."""
    return _digest(*(f"{each} {_changed(Path(each))}" for each in sys.path))


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


# Listed: one installed plugin as `slime plugins list` shows it, from metadata and the cache; nothing is imported.


@dataclass(frozen=True, slots=True)
class Listed:
    """One plugin that is installed, or a module of the project."""

    order: int
    """Its place in the order of loading and of hook calls, from 1; 0 for one that is left out."""
    plugin: str
    """What its choices are qualified by."""
    name: str
    """Its entry point's name."""
    dist: str
    """The distribution; empty for a module of the project."""
    version: str
    """The distribution's version; empty for a module of the project."""
    origin: str
    """What its entry point names."""
    facts: Facts | None
    """What loading it found; None when it was not loaded since it was installed or changed."""

    @property
    def state(self) -> str:
        """`loaded`, `broken`, `refused` or `excluded`; `unknown` when it was not loaded yet."""
        return self.facts.state.value if self.facts else "unknown"


def list_plugins(plugins: PluginSet, *, load: bool) -> tuple[Listed, ...]:
    """What is installed, in the order of loading; left-out plugins come last.

    Args:
        plugins: which, and in which order.
        load: whether to import the plugins when the cache does not know one of them. Otherwise only the core's own
            is, if it must be.

    Raises:
        UnknownName: `plugins` names one that is not installed.
        ConfigError: `plugins` contradicts itself.
    """
    if plugins.only is None:
        plugins = replace(plugins, only=allowed_by_environment())
    installed = installed_candidates()
    selected = select(installed, plugins)
    root = plugins.root or Path.cwd()
    candidates = [*selected.candidates, *project_candidates(plugins.modules, root)]
    cache = PluginCache.read(root)
    known = {_key(each): facts for each in candidates if (facts := cache.get(each)) is not None}
    cold = [each for each in candidates if _key(each) not in known]
    wanted = candidates if cold and load else [each for each in cold if each.dist == CORE]
    if wanted:
        found = _look_at(wanted, root)
        cache.write(found, installed)
        known |= {_key(status): facts for status, facts in found.items()}
    rows = [
        Listed(order, each.plugin, each.name, each.dist, each.version, each.origin, known.get(_key(each)))
        for order, each in enumerate(candidates, 1)
    ]
    return (*rows, *(_left_out(status) for status in selected.excluded))


def remember(catalog: "Catalog") -> None:
    """Note for later listings what a catalog's plugins offer, as far as the cache does not know it."""
    cache = PluginCache.read(catalog.root)
    if any(cache.get(each) is None for each in catalog.statuses if each.state is not PluginState.EXCLUDED):
        cache.write(_look_into(catalog), installed_candidates())


def _key(plugin: Candidate | PluginStatus) -> tuple[str, str, str]:
    return plugin.dist, plugin.name, plugin.origin


def _left_out(status: PluginStatus) -> Listed:
    facts = Facts(status.state, status.phase, status.detail, "", (), ())
    return Listed(0, status.plugin, status.name, status.dist, status.version, status.origin, facts)


def _look_at(candidates: Sequence[Candidate], root: Path) -> dict[PluginStatus, Facts]:
    """Load plugins, and note what is found; whatever is wrong with one is a fact about it."""
    from slime_core.catalog.catalog import Catalog
    from slime_core.catalog.loading import Loader

    loader = Loader()
    return _look_into(Catalog(loader, [loader.load(each) for each in candidates], root))


def _look_into(catalog: "Catalog") -> dict[PluginStatus, Facts]:
    """What a catalog knows about each plugin that it tried to load."""
    found: dict[PluginStatus, Facts] = {}
    seen: set[str] = set()
    for status in catalog.statuses:
        if status.state is PluginState.EXCLUDED:
            continue
        facts = _note(catalog, status)
        if status.plugin in seen:  # two entry points of one distribution share its choices
            facts = replace(facts, choices=(), hooks=())
        elif status.state is PluginState.LOADED:
            seen.add(status.plugin)
        found[status] = facts
    return found


def _note(catalog: "Catalog", status: PluginStatus) -> Facts:
    """What a catalog knows about one of its plugins."""
    loaded = status.state is PluginState.LOADED
    return Facts(
        state=status.state,
        phase=status.phase,
        detail=status.detail,
        api=_declared_api(status.origin),
        choices=tuple(_choices(catalog, status.plugin)) if loaded else (),
        hooks=tuple(_hooks(catalog, status.plugin)) if loaded else (),
    )


def _choices(catalog: "Catalog", plugin: str) -> Iterator[ListedChoice]:
    from slime_core.roles import SPECS

    for role in SPECS:
        for registered in catalog.choices(role).values():
            if registered.plugin == plugin:
                yield ListedChoice(role, registered.spec.name, registered.spec.summary, registered.origin)


def _hooks(catalog: "Catalog", plugin: str) -> Iterator[ListedHook]:
    from slime_core.catalog.loading import place_of
    from slime_core.hookspecs import HOOK_OF_EVENT, HOOK_OF_RANK_EVENT

    for hook in (*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values()):
        for listener in catalog.listeners(hook):
            if listener.plugin == plugin:
                yield ListedHook(hook, place_of(listener.function))


def _declared_api(origin: str) -> str:
    """The SLIME_API of an imported plugin; empty when it could not be imported or declares none."""
    module, _, attribute = origin.partition(":")
    plugin: object = sys.modules.get(module)
    for part in attribute.split(".") if attribute else ():
        plugin = inspect.getattr_static(plugin, part, None)
    declared: object = getattr(plugin, "SLIME_API", "")
    return declared if isinstance(declared, str) else ""
