"""Loads plugins one by one, each completely or not at all.

`RegisteredChoice` is a spec with its plugin and the location of its code.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Generic, ParamSpec

import pluggy
from typing_extensions import TypeVar

from slime_core.catalog.discovery import PluginState, PluginStatus, describe
from slime_core.catalog.packages import install_advice, is_first_party, pip_command
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
OfferT = TypeVar("OfferT")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class RegisteredChoice(Generic[SpecT]):
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
        return source_location(self.spec.factory)


def source_location(function: Callable[..., object]) -> str:
    """Location of a function or a class, `file:line`; the module's name if there is no source."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    try:
        path = inspect.getsourcefile(function)
        # Search the source for classes only. Searching for functions, too, takes 0.1 s for the core's own choices.
        code = getattr(function, "__code__", None)
        line: int = code.co_firstlineno if code else inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        path = None
    if path is None:
        return str(getattr(function, "__module__", type(function).__module__))
    return f"{path}:{line}"


# A plugin's hooks: functions marked with `@hookimpl`.

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*PROVIDER_OF_ROLE.values(), NAMES_HOOK), ()),
    **dict.fromkeys(HOOK_OF_EVENT.values(), ("event",)),
    **dict.fromkeys(HOOK_OF_RANK_EVENT.values(), ("event",)),
}
"""Arguments of each hook."""
_MARKS = pluggy.PluginManager(PROJECT)
"""Reads the marks of functions; no plugin is registered with it."""


def new_manager() -> pluggy.PluginManager:
    """A pluggy manager with all hook specifications and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    for specs in (ProviderHookSpecs, RunHookSpecs, RankHookSpecs):
        manager.add_hookspecs(specs)
    return manager


@dataclass(frozen=True, slots=True)
class Listener:
    """One implementation of a hook."""

    plugin: str
    """The plugin."""
    function: Callable[..., object]
    """The function to call."""
    takes_event: bool
    """Whether it takes the event; a hook may omit arguments."""


def marked_functions(plugin: object) -> Iterator[tuple[str, Callable[..., object], pluggy.HookimplOpts]]:
    """Each marked function of a plugin: the name of its hook, the function, and the arguments of `@hookimpl`."""
    for attribute in dir(plugin):
        if (options := _MARKS.parse_hookimpl_opts(plugin, attribute)) is not None:
            yield options["specname"] or attribute, getattr(plugin, attribute), options


def hook_faults(plugin: object) -> Iterator[str]:
    """One sentence about each invalid hook of the plugin."""
    for hook in ARGUMENTS:
        unmarked: object = inspect.getattr_static(plugin, hook, None)
        if inspect.isfunction(unmarked) and _MARKS.parse_hookimpl_opts(plugin, hook) is None:
            yield f"{hook} is not marked: put @hookimpl above it"
    for hook, function, options in marked_functions(plugin):
        if hook in ARGUMENTS and (options["wrapper"] or options["hookwrapper"]):
            yield f"{hook} is a wrapper, and hooks are not wrapped; to change what another makes, fill a role"
        elif hook in ARGUMENTS:
            yield from _signature_faults(hook, function)
        elif not inspect.ismodule(plugin) or function.__module__ == plugin.__name__:  # not imported from elsewhere
            yield f"there is no hook {hook!r}.{did_you_mean(hook, ARGUMENTS)} See slime_core.hookspecs"


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


def with_plugin_errors(spec: Spec[object], plugin: str) -> Spec[object]:
    """A copy of the spec whose functions for settings and keys raise errors that name the plugin."""
    where = f"plugin {plugin}: {spec.role} {spec.name!r}"
    if not isinstance(spec.settings, type):
        spec = replace(spec, settings=_guard(spec.settings, f"{where}: making its settings", makes_model=True))
    if callable(spec.flat_keys):
        spec = replace(spec, flat_keys=_guard(spec.flat_keys, f"{where}: listing its keys"))
    if (installed := spec.installed) is not None:
        model = _guard(installed.model, f"{where}: making the settings of {installed.key}", makes_model=True)
        spec = replace(spec, installed=replace(installed, model=model))
    return spec


def _guard(make: Callable[P, MadeT], where: str, *, makes_model: bool = False) -> Callable[P, MadeT]:
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> MadeT:
        try:
            with redirect_stdout(sys.stderr):  # standard output is for what the user asked
                made = make(*args, **kwargs)
            if makes_model and not (isinstance(made, type) and issubclass(made, Settings)):
                raise TypeError(f"they are {made!r}; expected a subclass of slime_core.Settings")
        except (Exception, SystemExit) as error:
            raise PluginError(f"{where} raised {describe(error)}") from error
        return made

    return wrapped


class _Fault(Exception):
    """A fault of a plugin; its text becomes the detail of the status."""


@dataclass(slots=True)
class Loader:
    """Collects the choices, hooks and foreign names of the plugins that load."""

    choices: dict[str, dict[str, RegisteredChoice]] = field(default_factory=lambda: {role: {} for role in SPECS})
    manager: pluggy.PluginManager = field(default_factory=new_manager)
    order: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Position and `PluginStatus.plugin` of each registered plugin, by its name in the manager."""
    owners: dict[str, PluginStatus] = field(default_factory=dict)
    """The first plugin with each entry point name."""

    def load(self, candidate: PluginStatus) -> PluginStatus:
        """Load one plugin. On any error, nothing of it stays registered, and the status has the reason."""
        registered_as = f"{candidate.plugin}:{candidate.name}:{candidate.origin}"
        owner = self.owners.setdefault(candidate.name, candidate)
        if owner.dist != candidate.dist:
            return candidate.with_state(PluginState.FAILED, _name_taken(candidate, owner))
        try:
            choices = self._load(candidate, registered_as)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"while plugin {candidate.title} was loaded") from None
        except BaseException as error:  # also of an object that raises when it is looked at
            if self.manager.has_plugin(registered_as):
                self.manager.unregister(name=registered_as)
            says_where = isinstance(error, _Fault | PluginError | UnknownName)
            return candidate.with_state(PluginState.FAILED, str(error) if says_where else describe(error))
        self.order[registered_as] = (len(self.order), candidate.plugin)
        for registered in choices:
            self.choices[registered.spec.role][registered.qualified] = registered
        return candidate.with_state(PluginState.LOADED)

    def listeners(self, hook: str) -> tuple[Listener, ...]:
        """Implementations of a hook: `tryfirst` first, `trylast` last, the others in loading order."""
        impls: list[pluggy.HookImpl] = getattr(self.manager.hook, hook).get_hookimpls()
        impls.sort(key=lambda impl: (impl.trylast - impl.tryfirst, self.order[impl.plugin_name]))
        return tuple(
            Listener(self.order[impl.plugin_name][1], impl.function, "event" in impl.argnames) for impl in impls
        )

    def _load(self, candidate: PluginStatus, registered_as: str) -> list[RegisteredChoice]:
        with redirect_stdout(sys.stderr):  # standard output is for what the user asked: JSON must stay JSON
            plugin = candidate.load()
        _check_api(candidate, plugin)
        if faults := list(hook_faults(plugin)):
            raise _Fault("; ".join(faults))
        if (first := self.manager.get_name(plugin)) is not None:
            raise _Fault(f"plugin {self.order[first][1]} names the same module; remove one of the two entry points")
        choices = list(self._registered(candidate, plugin))
        self.manager.register(plugin, registered_as)
        return choices

    def _registered(self, candidate: PluginStatus, plugin: object) -> Iterator[RegisteredChoice]:
        seen: set[tuple[str, str]] = set()
        hooks = list(marked_functions(plugin))
        for role, provider in PROVIDER_OF_ROLE.items():
            for function in (function for hook, function, _ in hooks if hook == provider):
                for spec in _checked_offers(provider, function, SPECS[role]):
                    qualified = f"{candidate.plugin}/{spec.name}"
                    if (role, spec.name) in seen or qualified in self.choices[role]:
                        raise _Fault(f"{provider} offers {spec.name!r} twice; rename one")
                    seen.add((role, spec.name))
                    named = with_plugin_errors(spec, candidate.title)
                    yield RegisteredChoice(named, qualified, candidate.plugin, candidate.dist, candidate.version)

    def names(self) -> Iterator[ForeignName]:
        """Other frameworks' names from all plugins, in loading order.

        Raises:
            PluginError: a plugin's list of names is invalid.
        """
        for listener in self.listeners(NAMES_HOOK):
            try:
                yield from _checked_offers(NAMES_HOOK, listener.function, ForeignName)
            except _Fault as fault:
                raise PluginError(f"plugin {listener.plugin}: {fault}") from fault


def _name_taken(candidate: PluginStatus, owner: PluginStatus) -> str:
    return (
        f"its entry point {candidate.name!r} has the name of one of {owner.title}. Uninstall one of the two, "
        f"leave one out (--no-plugin {owner.plugin}), or put this one first (--plugin {candidate.plugin})"
    )


def _check_api(candidate: PluginStatus, plugin: object) -> None:
    declared: object = getattr(plugin, "SLIME_API", None)
    if declared == API_VERSION:
        return
    if isinstance(declared, str) and declared.isdecimal():
        advice = ""
        if is_first_party(candidate.dist):
            advice = f". {install_advice(candidate.dist)}"
        elif candidate.dist and int(declared) < int(API_VERSION):
            advice = f". Take a newer version: {pip_command(candidate.dist, '--upgrade ')}"
        elif candidate.dist:
            older = pip_command(f"'{candidate.dist}<{candidate.version}'")
            advice = f". Take a newer slime-core, or an older version of the plugin: {older}"
        raise _Fault(f"is written for plugin API {declared}; this slime-core has plugin API {API_VERSION}{advice}")
    if declared is not None:
        found = f"declares SLIME_API = {declared!r}"
    elif any(getattr(plugin, hook, None) for hook in ARGUMENTS):
        found = "declares no SLIME_API"
    else:
        found = "holds neither hooks nor SLIME_API" + (" (is its entry point right?)" if candidate.dist else "")
    raise _Fault(f'{found}; write SLIME_API = "{API_VERSION}" in its module')


def _checked_offers(hook: str, function: Callable[..., object], kind: type[OfferT]) -> list[OfferT]:
    """The objects that a provider hook yields, checked."""
    try:
        with redirect_stdout(sys.stderr):
            offered = function()
            objects = list(offered) if isinstance(offered, Iterable) else None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _Fault(f"{hook} raised {describe(error)}") from error
    if objects is None:
        raise _Fault(f"{hook} returned {type(offered).__name__}; yield specs, or return a list of them")
    for each in objects:
        if isinstance(each, kind):
            continue
        if isinstance(each, Spec) and each.role in PROVIDER_OF_ROLE:
            right = PROVIDER_OF_ROLE[each.role]
            raise _Fault(f"{hook} offers {type(each).__name__} {each.name!r}; yield it from {right}")
        raise _Fault(f"{hook} offers a {type(each).__name__}; expected a {kind.__name__}")
    return objects
