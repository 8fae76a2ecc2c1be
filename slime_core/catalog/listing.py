"""Listed: one installed plugin as `slime plugins list` shows it, from metadata and the cache; nothing is imported.

Example:

    for listed in list_plugins(PluginSet(), load=False):
        print(listed.order, listed.plugin, listed.facts and listed.facts.choices)      # facts: None until it was loaded
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.catalog._cache import Facts, ListedChoice, ListedHook, PluginCache
from slime_core.catalog._candidates import CORE, Candidate, installed_candidates, project_candidates
from slime_core.catalog._selection import allowed_by_environment, select
from slime_core.catalog.status import PluginState, PluginStatus
from slime_core.roles import PluginSet

if TYPE_CHECKING:
    from slime_core.catalog.catalog import Catalog


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
    from slime_core.catalog._loading import Loader
    from slime_core.catalog.catalog import Catalog

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
    from slime_core.catalog.registered import place_of
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
