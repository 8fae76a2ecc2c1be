"""Makes a plugin's settings model or list of keys on demand, and names the plugin if that fails."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from typing import ParamSpec, TypeVar

from slime_core.catalog._modules import describe, in_one_process
from slime_core.errors import PluginError
from slime_core.roles import Settings, Spec

MadeT = TypeVar("MadeT")
P = ParamSpec("P")


def blamed(spec: Spec[object], plugin: str) -> Spec[object]:
    """The same spec; an error of its functions names the plugin."""
    if isinstance(spec.settings, type) and not (callable(spec.flat_keys) or spec.installed or spec.prefixed):
        return spec
    settings, flat_keys, installed = spec.settings, spec.flat_keys, spec.installed
    told = f"plugin {plugin}: {spec.role} {spec.name!r}"
    if not isinstance(settings, type):
        settings = _guarded(_checked(settings), f"{told}: making its settings")
    if callable(flat_keys):
        flat_keys = _guarded(flat_keys, f"{told}: listing its keys")
    if installed is not None:
        guarded = _guarded(_checked(installed.model), f"{told}: making the settings of {installed.key}")
        installed = replace(installed, model=guarded)
    prefixed = tuple(
        replace(table, model=_guarded(_checked(table.model), f"{told}: making the settings of {table.key}"))
        for table in spec.prefixed
    )
    return replace(spec, settings=settings, flat_keys=flat_keys, installed=installed, prefixed=prefixed)


def _checked(make: Callable[P, type[Settings]]) -> Callable[P, type[Settings]]:
    def checked(*given: P.args, **named: P.kwargs) -> type[Settings]:
        made: object = make(*given, **named)
        if isinstance(made, type) and issubclass(made, Settings):
            return made
        raise TypeError(f"they are {made!r}; expected a subclass of slime_core.Settings")

    return checked


def _guarded(make: Callable[P, MadeT], told: str) -> Callable[P, MadeT]:
    def guarded(*given: P.args, **named: P.kwargs) -> MadeT:
        try:
            with in_one_process(), redirect_stdout(sys.stderr):  # standard output is for what the user asked
                return make(*given, **named)
        except (Exception, SystemExit) as error:
            raise PluginError(f"{told} raised {describe(error)}") from error

    return guarded
