"""What is wrong with a plugin's hooks, found before pluggy sees them.

pluggy registers a misspelt hook without a word, never passes an argument that has a default, and runs a
wrapper around an `async def` before its body; all three are refused here.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping

import pluggy

from slime_core.errors import did_you_mean
from slime_core.hookspecs import (
    HOOK_OF_EVENT,
    HOOK_OF_RANK_EVENT,
    NAMES_HOOK,
    PROJECT,
    PROVIDER_OF_ROLE,
    ProviderHookSpecs,
    RankHookSpecs,
    RunHookSpecs,
)

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*PROVIDER_OF_ROLE.values(), NAMES_HOOK), ()),
    **dict.fromkeys(HOOK_OF_EVENT.values(), ("event",)),
    **dict.fromkeys(HOOK_OF_RANK_EVENT.values(), ("event",)),
}
"""The arguments of every hook."""


def new_manager() -> pluggy.PluginManager:
    """A pluggy manager that knows every hook and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    for specs in (ProviderHookSpecs, RunHookSpecs, RankHookSpecs):
        manager.add_hookspecs(specs)
    return manager


def hook_faults(manager: pluggy.PluginManager, plugin: object) -> Iterator[str]:
    """A sentence about each hook of the plugin that would not work as its author expects."""
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            if attribute in ARGUMENTS and inspect.isfunction(inspect.getattr_static(plugin, attribute)):
                yield f"{attribute} is not marked: put @hookimpl above it"
            continue
        name = options.get("specname") or attribute
        if name not in ARGUMENTS and _is_anothers(plugin, attribute):
            continue
        if name not in ARGUMENTS:
            yield f"there is no hook {name!r}.{did_you_mean(name, ARGUMENTS)} See slime_core.hookspecs"
        elif options.get("wrapper") or options.get("hookwrapper"):
            yield f"{name} is a wrapper, and hooks are not wrapped; to change what another makes, fill a role"
        else:
            yield from _signature_faults(name, getattr(plugin, attribute))


def _is_anothers(plugin: object, attribute: str) -> bool:
    """Whether a hook was imported from another module, which offers it already."""
    home = getattr(getattr(plugin, attribute), "__module__", None)
    return inspect.ismodule(plugin) and home != plugin.__name__


def _signature_faults(name: str, function: Callable[..., object]) -> Iterator[str]:
    known = ARGUMENTS[name]
    if not known and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
        yield f"{name} is `async def`; a provider hook is a plain function that yields specs"
    if known and (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        yield f"{name} holds a `yield`, so that its body would never run; a run hook returns nothing"
    if name in HOOK_OF_RANK_EVENT.values() and inspect.iscoroutinefunction(function):
        yield f"{name} is `async def`; ranks have no event loop, so a rank hook is a plain function"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield f"{name} takes {parameter}, which is always empty; name the arguments it wants"
        elif parameter.name not in known:
            offered = f"it may take {', '.join(known)}" if known else "it takes none"
            hint = did_you_mean(parameter.name, known)
            yield f"{name} has no argument {parameter.name!r}: {offered}.{hint}"
        elif parameter.default is not parameter.empty:
            yield f"{name}: {parameter.name!r} has a default, so it would never be passed; remove the default"
