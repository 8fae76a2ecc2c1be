"""Loads plugins one by one; each is taken whole or not at all.

pluggy's own loader stops at the first broken entry point, skips a second one of the same name without a word,
and orders calls by the directory listing. This loop does none of that.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pluggy

from slime_core.catalog._candidates import Candidate
from slime_core.catalog._hooks import ARGUMENTS, hook_faults, new_manager
from slime_core.catalog._install import beside_this_core, how_to_install, is_ours
from slime_core.catalog._late import blamed
from slime_core.catalog._modules import describe, in_one_process
from slime_core.catalog._slow import watched
from slime_core.catalog.registered import Registered
from slime_core.catalog.status import PluginPhase, PluginState, PluginStatus
from slime_core.hookspecs import API_VERSION, HOOK_OF_EVENT, HOOK_OF_RANK_EVENT, NAMES_HOOK, PROVIDER_OF_ROLE
from slime_core.roles import SPECS, ForeignName, Spec


@dataclass(frozen=True, slots=True)
class Listener:
    """One implementation of a run hook or a rank hook."""

    plugin: str
    """Who watches."""
    function: Callable[..., object]
    """What is called."""
    takes_event: bool
    """Whether it wants the event; a hook may leave out arguments."""


class _Fault(Exception):
    """Why a plugin is not loaded."""

    def __init__(self, state: PluginState, phase: PluginPhase, detail: str) -> None:
        super().__init__(detail)
        self.state, self.phase = state, phase


@dataclass(slots=True)
class Loader:
    """Collects the choices, listeners and foreign names of the plugins that load."""

    manager: pluggy.PluginManager = field(default_factory=new_manager)
    choices: dict[str, dict[str, Registered]] = field(default_factory=lambda: {role: {} for role in SPECS})
    names: list[ForeignName] = field(default_factory=list)
    order: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Rank and `Candidate.plugin` of what is registered, by its name in the manager."""
    deprecated: list[str] = field(default_factory=list)
    """What plugins use that will go, a sentence each."""
    owners: dict[str, Candidate] = field(default_factory=dict)
    """Who came first with each entry point's name."""

    def load(self, candidate: Candidate) -> PluginStatus:
        """Load one plugin; whatever goes wrong, nothing of it stays and the status says what."""
        registered_as = f"{candidate.plugin}:{candidate.name}:{candidate.origin}"
        owner = self.owners.setdefault(candidate.name, candidate)
        if owner.dist != candidate.dist:
            return candidate.status(PluginState.REFUSED, PluginPhase.SELECTION, _name_taken(candidate, owner))
        try:
            with in_one_process(), _staying(), watched(candidate.plugin):
                found, names = self._load(candidate, registered_as)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"while plugin {candidate} was loaded") from None
        except BaseException as error:  # also of an object that raises when it is looked at
            fault = error if isinstance(error, _Fault) else _broken(PluginPhase.HOOKS, describe(error))
            if registered_as in self.order:
                self.manager.unregister(name=registered_as)
                del self.order[registered_as]
            return candidate.status(fault.state, fault.phase, str(fault))
        for role, registered in found:
            self.choices[role][registered.qualified] = registered
        self.names += names
        return candidate.status(PluginState.LOADED, PluginPhase.DONE)

    def listeners(self) -> dict[str, tuple[Listener, ...]]:
        """Who watches what, by hook: `tryfirst` first, `trylast` last, in between the order of loading."""
        return {hook: tuple(self._listeners(hook)) for hook in (*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values())}

    def _listeners(self, hook: str) -> Iterator[Listener]:
        impls = getattr(self.manager.hook, hook).get_hookimpls()
        for impl in sorted(impls, key=lambda impl: (impl.trylast - impl.tryfirst, self.order[impl.plugin_name])):
            yield Listener(self.order[impl.plugin_name][1], impl.function, "event" in impl.argnames)

    def _load(self, candidate: Candidate, registered_as: str) -> tuple[list[tuple[str, Registered]], list[ForeignName]]:
        try:
            # Standard output is for what the user asked: `slime plan --json` must stay JSON.
            with redirect_stdout(sys.stderr):
                plugin = candidate.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _broken(PluginPhase.IMPORT, describe(error)) from error
        _check_api(candidate, plugin)
        if faults := list(hook_faults(self.manager, plugin)):
            raise _Fault(PluginState.REFUSED, PluginPhase.HOOKS, "; ".join(faults))
        if (first := self.manager.get_name(plugin)) is not None:
            detail = f"plugin {first.partition(':')[0]} names the same module; remove one of the two entry points"
            raise _Fault(PluginState.REFUSED, PluginPhase.HOOKS, detail)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", DeprecationWarning)  # by pluggy, of a hook that will go
            self.manager.register(plugin, registered_as)
        self.deprecated += [f"plugin {candidate}: {each.message} ({each.filename}:{each.lineno})" for each in told]
        self.order[registered_as] = (len(self.order), candidate.plugin)
        choices = [(spec.role, _registered(spec, candidate)) for spec in self._specs(candidate, plugin)]
        return choices, list(self._names(plugin))

    def _names(self, plugin: object) -> Iterator[ForeignName]:
        """The names from elsewhere that a registered plugin knows, validated."""
        for impl in getattr(self.manager.hook, NAMES_HOOK).get_hookimpls():
            for offered in _yielded(NAMES_HOOK, impl.function) if impl.plugin is plugin else ():
                if not isinstance(offered, ForeignName):
                    detail = f"{NAMES_HOOK} offers a {type(offered).__name__}; expected a ForeignName"
                    raise _Fault(PluginState.REFUSED, PluginPhase.SPECS, detail)
                yield offered

    def _specs(self, candidate: Candidate, plugin: object) -> Iterator[Spec[object]]:
        """Everything a registered plugin offers, validated."""
        seen: set[tuple[str, str]] = set()
        for role, hook in PROVIDER_OF_ROLE.items():
            for impl in getattr(self.manager.hook, hook).get_hookimpls():
                if impl.plugin is not plugin:
                    continue
                for offered in _yielded(hook, impl.function):
                    spec = _checked(offered, role, hook)
                    qualified = f"{candidate.plugin}/{spec.name}"
                    if (role, spec.name) in seen or qualified in self.choices[role]:
                        raise _Fault(
                            PluginState.REFUSED,
                            PluginPhase.SPECS,
                            f"{hook} offers {spec.name!r} twice; rename one",
                        )
                    seen.add((role, spec.name))
                    yield spec


@contextmanager
def _staying() -> Iterator[None]:
    """Come back to the working directory, from which a run file names its files."""
    here = Path.cwd()
    try:
        yield
    finally:
        os.chdir(here)


def _broken(phase: PluginPhase, detail: str) -> _Fault:
    return _Fault(PluginState.BROKEN, phase, detail)


def _name_taken(candidate: Candidate, owner: Candidate) -> str:
    return (
        f"its entry point {candidate.name!r} has the name of one of {owner}. Uninstall one of the two, leave one out "
        f"(--no-plugin {owner.plugin}), or put this one first (--plugin {candidate.plugin})"
    )


def _check_api(candidate: Candidate, plugin: object) -> None:
    if not any(getattr(plugin, hook, None) for hook in ARGUMENTS) and not hasattr(plugin, "SLIME_API"):
        detail = (
            "holds neither hooks nor SLIME_API: does the entry point name the right module?"
            if candidate.dist
            else f'holds neither hooks nor SLIME_API: write SLIME_API = "{API_VERSION}" and a hook, as slime_rewards'
        )
        raise _Fault(PluginState.REFUSED, PluginPhase.API, detail)
    declared: object = getattr(plugin, "SLIME_API", None)
    if declared == API_VERSION:
        return
    if not isinstance(declared, str) or not declared.isdecimal():
        found = "declares no SLIME_API" if declared is None else f"declares SLIME_API = {declared!r}"
        detail = f'{found}; write SLIME_API = "{API_VERSION}" in its module'
        raise _Fault(PluginState.REFUSED, PluginPhase.API, detail)
    detail = f"is written for plugin API {declared}; this slime-core has plugin API {API_VERSION}"
    if is_ours(candidate.dist):
        detail += f". {how_to_install(candidate.dist)}"
    elif candidate.dist and int(declared) < int(API_VERSION):
        detail += f". Take a newer one: {beside_this_core(candidate.dist, '--upgrade ')}"
    elif candidate.dist:
        older = beside_this_core(f"'{candidate.dist}<{candidate.version}'")
        detail += f". Take a newer slime-core, or an older plugin: {older}"
    raise _Fault(PluginState.REFUSED, PluginPhase.API, detail)


def _yielded(hook: str, function: Callable[..., object]) -> list[object]:
    try:
        with redirect_stdout(sys.stderr):
            offered = function()
            if isinstance(offered, Iterable):
                return list(offered)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _broken(PluginPhase.SPECS, f"{hook} raised {describe(error)}") from error
    detail = f"{hook} returned {type(offered).__name__}; yield specs, or return a list of them"
    raise _Fault(PluginState.REFUSED, PluginPhase.SPECS, detail)


def _checked(offered: object, role: str, hook: str) -> Spec[object]:
    if isinstance(offered, SPECS[role]):
        return offered
    expected = SPECS[role].__name__
    detail = f"{hook} offers a {type(offered).__name__}; expected a {expected}"
    if isinstance(offered, Spec) and offered.role in PROVIDER_OF_ROLE:
        right = PROVIDER_OF_ROLE[offered.role]
        detail = f"{hook} offers {type(offered).__name__} {offered.name!r}; yield it from {right}"
    raise _Fault(PluginState.REFUSED, PluginPhase.SPECS, detail)


def _registered(spec: Spec[object], candidate: Candidate) -> Registered:
    qualified = f"{candidate.plugin}/{spec.name}"
    return Registered(blamed(spec, str(candidate)), qualified, candidate.plugin, candidate.dist, candidate.version)
