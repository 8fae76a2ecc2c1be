"""Finds choices in the user's project, such as `./my.py:reward`, and checks that each fits its role.

The object is a function, a class or a spec. The role's Protocol defines its signature. It passes the same
validation as a plugin's choice.

Example:

    methods_of("reward")              # `def __call__(sample, ctx)` or `async def __call__(sample, ctx)`
    methods_of("tracker")             # `async def log(step, metrics)`, `async def close()`
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args, get_origin, get_type_hints

from slime_core.catalog.discovery import import_project_module
from slime_core.catalog.loading import RegisteredChoice, with_plugin_errors
from slime_core.errors import PluginError, UnknownName, did_you_mean
from slime_core.roles import SPECS, Settings, Setup, Spec
from slime_core.roles.rewards import CALLED_AS, signature_error

# The call signature of a role, read from its Protocol. Functions and classes of the project must fit it.

NEEDS_SPEC = frozenset({"batch_transform", "engine", "trainer", "transport"})
"""Roles whose spec holds more than a function or a class can express."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a Protocol."""

    name: str
    """Its name."""
    signature: inspect.Signature
    """Without `self`."""
    is_async: bool
    """Whether it may be `async def`."""
    is_sync: bool
    """Whether it may be a plain `def`."""

    def source_form(self, name: str) -> str:
        """Its signature in source form, under the given name."""
        arguments = ", ".join(self.signature.parameters)
        return f"{'def' if self.is_sync else 'async def'} {name}({arguments})"

    def check(self, function: object, name: str, role: str) -> None:
        """Raise TypeError if the core's call does not fit a function."""
        wanted = self.source_form(name.rpartition(".")[2])
        if not callable(function):
            raise TypeError(f"there is no {name}; {_role_text(role)} has `{wanted}`")
        if role in CALLED_AS and (why := signature_error(function, name, role)) is not None:
            raise TypeError(why)
        try:
            signature = inspect.signature(function)
        except ValueError:  # a method without `self`
            raise TypeError(f"{name} cannot be called as `{wanted}`") from None
        keywords = [each for each in self.signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
        count = len(self.signature.parameters) - len(keywords)
        try:
            signature.bind(*range(count), **{each.name: None for each in keywords})
        except TypeError:
            raise TypeError(f"{name}{signature} cannot be called as `{wanted}`") from None
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{name} holds a `yield`, so that calling it runs nothing; {_role_text(role)} returns")
        is_async = inspect.iscoroutinefunction(function)
        if not (self.is_async if is_async else self.is_sync):
            raise TypeError(f"{name} is {'' if is_async else 'not '}`async def`; {_role_text(role)} is `{wanted}`")


@functools.cache
def methods_of(role: str) -> tuple[Method, ...]:
    """Methods of a role's Protocol. One that returns a value or an awaitable may be `def` or `async def`."""
    base: object = next(base for base in SPECS[role].__orig_bases__ if get_args(base))  # type: ignore[attr-defined]  # typing's own; a generic class has it
    (protocol,) = get_args(base)
    functions: dict[str, Callable[..., object]] = {}
    for owner in protocol.__mro__:
        for name, value in vars(owner).items():
            if inspect.isfunction(value) and value.__qualname__ == f"{owner.__name__}.{name}":
                functions.setdefault(name, value)
    return tuple(_method(name, function) for name, function in functions.items())


def _method(name: str, function: Callable[..., object]) -> Method:
    signature, is_async = inspect.signature(function), inspect.iscoroutinefunction(function)
    own = signature.replace(parameters=list(signature.parameters.values())[1:])
    awaitable = any(get_origin(each) is Awaitable for each in get_args(signature.return_annotation))
    return Method(name, own, is_async=is_async or awaitable, is_sync=not is_async)


def spec_of(role: str, name: str, offered: object) -> Spec[object]:
    """Wrap a function or a class in a spec; raises TypeError if it does not fit the role."""
    if role in NEEDS_SPEC:
        spec = SPECS[role].__name__
        an = "an" if spec[0] in "AEIOU" else "a"
        raise TypeError(f"{name} is not {an} {spec}; {_role_text(role)} needs a spec, which also says what it can do")
    methods, settings = methods_of(role), Settings
    if isinstance(offered, type):
        for method in methods:
            found = _own_attribute(offered, method.name)
            if isinstance(found, staticmethod):
                found = found.__func__
            elif callable(found):
                found = functools.partial(found, None)
            method.check(found, f"{name}.{method.name}", role)
        factory, settings = _class_factory(offered)
    elif inspect.isfunction(offered):
        if len(methods) > 1:
            several = ", ".join(f"`{method.source_form(method.name)}`" for method in methods)
            raise TypeError(f"{name} is a function; {_role_text(role)} is a class with {several}")
        methods[0].check(offered, name, role)
        factory = _function_factory(methods[0].name, offered)
    else:
        raise TypeError(f"{name} is a {type(offered).__name__}; expected a function, a class or a spec")
    return SPECS[role](name, functools.update_wrapper(factory, offered, updated=()), settings)


def _own_attribute(offered: type, name: str) -> object:
    # Not getattr: it would find the metaclass's `__call__` on every class.
    for owner in offered.__mro__:
        if name in vars(owner) and not getattr(owner, "_is_protocol", False):
            return vars(owner)[name]
    return None


def _class_factory(offered: type) -> tuple[Callable[[Settings, Setup], object], type[Settings]]:
    parameters = list(inspect.signature(offered).parameters)
    if not parameters:
        return lambda settings, setup: offered(), Settings
    if len(parameters) != 2:
        raise TypeError(f"{offered.__name__}({', '.join(parameters)}): expected no arguments or (settings, setup)")
    hint = get_type_hints(offered.__init__).get(parameters[0], Settings)  # type: ignore[misc]  # of a class that is at hand, not of a subclass
    return lambda settings, setup: offered(settings, setup), hint


def _function_factory(method: str, function: Callable[..., object]) -> Callable[[Settings, Setup], object]:
    if method == "__call__":
        return lambda settings, setup: function
    made = type(function.__name__, (), {method: staticmethod(function)})
    return lambda settings, setup: made()


def _role_text(role: str) -> str:
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role.replace('_', ' ')}"


# Choices outside plugins: `./my.py:reward`, `package.module:Filter`, `package.module.function`.


def is_project_code(name: str) -> bool:
    """Whether a name refers to a file or a module instead of a registered choice."""
    return ":" in name or name.endswith(".py") or ("." in name and "/" not in name)


def find_in_project(role: str, name: str, root: Path | None) -> RegisteredChoice:
    """The choice in a file or a module of the project; relative paths start at `root`.

    Raises:
        UnknownName: the file, module or attribute does not exist.
        PluginError: the code cannot be imported, or does not fit the role.
    """
    place, _, attribute = name.partition(":") if ":" in name or name.endswith(".py") else name.rpartition(".")
    if not attribute or not place:
        raise UnknownName(f"{role} {name!r} does not say which object: write {place or 'MODULE'}:NAME")
    offered = _lookup(role, name, import_project_module(place, root), place, attribute)
    try:
        spec = offered if isinstance(offered, Spec) else spec_of(role, attribute, offered)
    except (TypeError, ValueError, NameError) as error:
        raise PluginError(f"{role} {name!r}: {error}") from error
    if not isinstance(spec, SPECS[role]):
        raise PluginError(f"{role} {name!r} is a {type(spec).__name__}; expected a {SPECS[role].__name__}")
    return RegisteredChoice(with_plugin_errors(spec, place), qualified=name, plugin=place, dist="", version="")


def _lookup(role: str, name: str, module: ModuleType, place: str, attribute: str) -> object:
    try:
        return getattr(module, attribute)
    except AttributeError:
        own = [
            key
            for key, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and not key.startswith("_")
        ]
        listed = f" It has {', '.join(own)}." if own else ""
        raise UnknownName(
            f"{role} {name!r}: {place} has no {attribute!r}.{did_you_mean(attribute, own)}{listed}"
        ) from None
