"""Loads plugins one by one, each completely or not at all, and names slow ones.

`Registered` is a spec with its plugin and the location of its code.
"""

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Generic, ParamSpec

import pluggy
from typing_extensions import TypeVar

from slime_core.catalog.discovery import PluginState, PluginStatus, describe
from slime_core.catalog.packages import beside_this_core, how_to_install, is_ours
from slime_core.errors import PluginError, UnknownName, did_you_mean
from slime_core.hookspecs import (
    API_VERSION,
    HOOK_OF_EVENT,
    HOOK_OF_RANK_EVENT,
    NAMES_HOOK,
    PROJECT,
    PROVIDER_OF_ROLE,
    ProviderHookSpecs,
    RankHookSpecs,
    RunHookSpecs,
)
from slime_core.roles import SPECS, ForeignName, Settings, Spec

SpecT = TypeVar("SpecT", bound=Spec[object], covariant=True, default=Spec[object])
MadeT = TypeVar("MadeT")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Registered(Generic[SpecT]):
    """One choice of a role, from a plugin or a file of the project."""

    spec: SpecT
    """The spec that the plugin offers."""
    qualified: str
    """A name that is unambiguous with any other plugins installed: `plugin/name`, or `./file.py:name`."""
    plugin: str
    """The plugin: its distribution's name, or the module or file of the project."""
    dist: str
    """The distribution; empty for a module or file of the project."""
    version: str
    """The distribution's version; empty for a module or file of the project."""

    @property
    def origin(self) -> str:
        """Location of its factory, `file:line`; the module's name if there is no source."""
        return place_of(self.spec.factory)


def place_of(function: Callable[..., object]) -> str:
    """Location of a function or a class, `file:line`; the module's name if there is no source."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    try:
        path = inspect.getsourcefile(function)
        # Search the source for classes only. Searching for functions, too, takes 0.1 s for the core's own choices.
        line = code.co_firstlineno if (code := _code(function)) else inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        path = None
    if path is None:
        return str(getattr(function, "__module__", type(function).__module__))
    return f"{path}:{line}"


def _code(function: Callable[..., object]) -> CodeType | None:
    code: object = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


# Errors in a plugin's hooks, found before pluggy registers them.

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*PROVIDER_OF_ROLE.values(), NAMES_HOOK), ()),
    **dict.fromkeys(HOOK_OF_EVENT.values(), ("event",)),
    **dict.fromkeys(HOOK_OF_RANK_EVENT.values(), ("event",)),
}
"""Arguments of each hook."""


def new_manager() -> pluggy.PluginManager:
    """A pluggy manager with all hook specifications and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    for specs in (ProviderHookSpecs, RunHookSpecs, RankHookSpecs):
        manager.add_hookspecs(specs)
    return manager


def hook_faults(manager: pluggy.PluginManager, plugin: object) -> Iterator[str]:
    """One sentence about each invalid hook of the plugin."""
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


def blamed(spec: Spec[object], plugin: str) -> Spec[object]:
    """A copy of the spec whose functions for settings and keys raise errors that name the plugin."""
    told = f"plugin {plugin}: {spec.role} {spec.name!r}"
    if not isinstance(spec.settings, type):
        spec = replace(spec, settings=_guarded(spec.settings, f"{told}: making its settings", makes_model=True))
    if callable(spec.flat_keys):
        spec = replace(spec, flat_keys=_guarded(spec.flat_keys, f"{told}: listing its keys"))
    if (installed := spec.installed) is not None:
        model = _guarded(installed.model, f"{told}: making the settings of {installed.key}", makes_model=True)
        spec = replace(spec, installed=replace(installed, model=model))
    return spec


def _guarded(make: Callable[P, MadeT], told: str, *, makes_model: bool = False) -> Callable[P, MadeT]:
    def guarded(*given: P.args, **named: P.kwargs) -> MadeT:
        try:
            with redirect_stdout(sys.stderr):  # standard output is for what the user asked
                made = make(*given, **named)
            if makes_model and not (isinstance(made, type) and issubclass(made, Settings)):
                raise TypeError(f"they are {made!r}; expected a subclass of slime_core.Settings")
        except (Exception, SystemExit) as error:
            raise PluginError(f"{told} raised {describe(error)}") from error
        return made

    return guarded


# Plugins that load slowly are named, because every command waits for them.

SLOW_S = 2.0
"""Seconds of loading after which a plugin counts as slow."""


@contextmanager
def _timed(plugin: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        if (seconds := time.perf_counter() - began) >= SLOW_S:
            sys.stderr.write(
                f"warning: plugin {plugin} takes {seconds:.1f} s to load and every command waits: its author imports "
                f"heavy packages inside factories; you leave it out with --no-plugin {plugin}\n"
            )


@dataclass(frozen=True, slots=True)
class Listener:
    """One implementation of a run hook or a rank hook."""

    plugin: str
    """The plugin."""
    function: Callable[..., object]
    """The function to call."""
    takes_event: bool
    """Whether it takes the event; a hook may omit arguments."""


class _Fault(Exception):
    """A fault of a plugin; its text becomes the detail of the status."""


@dataclass(slots=True)
class Loader:
    """Collects the choices, listeners and foreign names of the plugins that load."""

    manager: pluggy.PluginManager = field(default_factory=new_manager)
    choices: dict[str, dict[str, Registered]] = field(default_factory=lambda: {role: {} for role in SPECS})
    order: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Position and `PluginStatus.plugin` of each registered plugin, by its name in the manager."""
    owners: dict[str, PluginStatus] = field(default_factory=dict)
    """The first plugin with each entry point name."""

    def load(self, candidate: PluginStatus) -> PluginStatus:
        """Load one plugin. On any error, nothing of it stays registered, and the status has the reason."""
        registered_as = f"{candidate.plugin}:{candidate.name}:{candidate.origin}"
        owner = self.owners.setdefault(candidate.name, candidate)
        if owner.dist != candidate.dist:
            return candidate.ended(PluginState.FAILED, _name_taken(candidate, owner))
        try:
            with _timed(candidate.plugin):
                found = self._load(candidate, registered_as)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"while plugin {candidate.title} was loaded") from None
        except BaseException as error:  # also of an object that raises when it is looked at
            if registered_as in self.order:
                self.manager.unregister(name=registered_as)
                del self.order[registered_as]
            says_where = isinstance(error, _Fault | PluginError | UnknownName)
            return candidate.ended(PluginState.FAILED, str(error) if says_where else describe(error))
        for role, registered in found:
            self.choices[role][registered.qualified] = registered
        return candidate.ended(PluginState.LOADED)

    def listeners(self) -> dict[str, tuple[Listener, ...]]:
        """Implementations by hook: `tryfirst` first, `trylast` last, the others in loading order."""
        return {hook: tuple(self._listeners(hook)) for hook in (*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values())}

    def _listeners(self, hook: str) -> Iterator[Listener]:
        impls = getattr(self.manager.hook, hook).get_hookimpls()
        for impl in sorted(impls, key=lambda impl: (impl.trylast - impl.tryfirst, self.order[impl.plugin_name])):
            yield Listener(self.order[impl.plugin_name][1], impl.function, "event" in impl.argnames)

    def _load(self, candidate: PluginStatus, registered_as: str) -> list[tuple[str, Registered]]:
        with redirect_stdout(sys.stderr):  # standard output is for what the user asked: JSON must stay JSON
            plugin = candidate.load()
        _check_api(candidate, plugin)
        if faults := list(hook_faults(self.manager, plugin)):
            raise _Fault("; ".join(faults))
        if (first := self.manager.get_name(plugin)) is not None:
            raise _Fault(f"plugin {first.partition(':')[0]} names the same module; remove one of the two entry points")
        self.manager.register(plugin, registered_as)
        self.order[registered_as] = (len(self.order), candidate.plugin)
        return [(spec.role, _registered(spec, candidate)) for spec in self._specs(candidate, plugin)]

    def names(self) -> Iterator[ForeignName]:
        """Other frameworks' names from all plugins, in loading order.

        Raises:
            PluginError: a plugin's list of names is invalid.
        """
        impls = getattr(self.manager.hook, NAMES_HOOK).get_hookimpls()
        for impl in sorted(impls, key=lambda impl: self.order[impl.plugin_name]):
            try:
                yield from _checked_names(_yielded(NAMES_HOOK, impl.function))
            except _Fault as fault:
                raise PluginError(f"plugin {self.order[impl.plugin_name][1]}: {fault}") from fault

    def _specs(self, candidate: PluginStatus, plugin: object) -> Iterator[Spec[object]]:
        seen: set[tuple[str, str]] = set()
        for role, hook in PROVIDER_OF_ROLE.items():
            for impl in getattr(self.manager.hook, hook).get_hookimpls():
                if impl.plugin is not plugin:
                    continue
                for offered in _yielded(hook, impl.function):
                    spec = _checked(offered, role, hook)
                    qualified = f"{candidate.plugin}/{spec.name}"
                    if (role, spec.name) in seen or qualified in self.choices[role]:
                        raise _Fault(f"{hook} offers {spec.name!r} twice; rename one")
                    seen.add((role, spec.name))
                    yield spec


def _checked_names(offered: Iterable[object]) -> Iterator[ForeignName]:
    for each in offered:
        if not isinstance(each, ForeignName):
            raise _Fault(f"{NAMES_HOOK} offers a {type(each).__name__}; expected a ForeignName")
        yield each


def _name_taken(candidate: PluginStatus, owner: PluginStatus) -> str:
    return (
        f"its entry point {candidate.name!r} has the name of one of {owner.title}. Uninstall one of the two, "
        f"leave one out (--no-plugin {owner.plugin}), or put this one first (--plugin {candidate.plugin})"
    )


def _check_api(candidate: PluginStatus, plugin: object) -> None:
    if not any(getattr(plugin, hook, None) for hook in ARGUMENTS) and not hasattr(plugin, "SLIME_API"):
        detail = (
            "holds neither hooks nor SLIME_API: does the entry point name the right module?"
            if candidate.dist
            else f'holds neither hooks nor SLIME_API: write SLIME_API = "{API_VERSION}" and a hook, as slime_rewards'
        )
        raise _Fault(detail)
    declared: object = getattr(plugin, "SLIME_API", None)
    if declared == API_VERSION:
        return
    if not isinstance(declared, str) or not declared.isdecimal():
        found = "declares no SLIME_API" if declared is None else f"declares SLIME_API = {declared!r}"
        detail = f'{found}; write SLIME_API = "{API_VERSION}" in its module'
        raise _Fault(detail)
    detail = f"is written for plugin API {declared}; this slime-core has plugin API {API_VERSION}"
    if is_ours(candidate.dist):
        detail += f". {how_to_install(candidate.dist)}"
    elif candidate.dist and int(declared) < int(API_VERSION):
        detail += f". Take a newer one: {beside_this_core(candidate.dist, '--upgrade ')}"
    elif candidate.dist:
        older = beside_this_core(f"'{candidate.dist}<{candidate.version}'")
        detail += f". Take a newer slime-core, or an older plugin: {older}"
    raise _Fault(detail)


def _yielded(hook: str, function: Callable[..., object]) -> list[object]:
    try:
        with redirect_stdout(sys.stderr):
            offered = function()
            if isinstance(offered, Iterable):
                return list(offered)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _Fault(f"{hook} raised {describe(error)}") from error
    detail = f"{hook} returned {type(offered).__name__}; yield specs, or return a list of them"
    raise _Fault(detail)


def _checked(offered: object, role: str, hook: str) -> Spec[object]:
    if isinstance(offered, SPECS[role]):
        return offered
    expected = SPECS[role].__name__
    detail = f"{hook} offers a {type(offered).__name__}; expected a {expected}"
    if isinstance(offered, Spec) and offered.role in PROVIDER_OF_ROLE:
        right = PROVIDER_OF_ROLE[offered.role]
        detail = f"{hook} offers {type(offered).__name__} {offered.name!r}; yield it from {right}"
    raise _Fault(detail)


def _registered(spec: Spec[object], candidate: PluginStatus) -> Registered:
    qualified = f"{candidate.plugin}/{spec.name}"
    return Registered(blamed(spec, candidate.title), qualified, candidate.plugin, candidate.dist, candidate.version)
