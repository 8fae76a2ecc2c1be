"""Loads functions written for slime, checks them before the run starts, and provides their `args` and current call.

slime reports a wrong path or signature only during the first rollout. It keeps the current generation in a process-wide
singleton (`GenerateState`) that the first caller sets; here each task has its own in a context variable.

Example:

    load("my_package.rewards.custom_rm", ("args", "sample"), is_async=True)
    Arguments({"reward_key": "score"}, section="reward.rm").reward_key
"""

import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

from slime_compat.slime_api import offer_slime
from slime_core.errors import PluginError
from slime_core.roles import GenerateContext, GenerateOutput, SamplingParams


class Arguments(SimpleNamespace):
    """A namespace like slime's `args`; functions may set attributes on it."""

    def __init__(self, values: Mapping[str, object], section: str) -> None:
        """Take the values of `[section.args]`."""
        super().__init__(**values)
        self._section = section

    def __getattr__(self, name: str) -> object:
        """Handle a missing attribute.

        Raises:
            AttributeError: names the line to write in the run file; `getattr(args, name, default)` still works.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"the function reads args.{name}, which is not set: args has only the values of [{self._section}.args]. "
            f"Write {name} = ... there"
        )


@dataclass(slots=True)
class Call:
    """One sample's generation."""

    ctx: GenerateContext
    """The core's context for it."""
    versions: set[str] = field(default_factory=set)
    """Weight versions of its engine calls so far."""

    async def generate(self, prompt: Sequence[int], sampling: SamplingParams) -> GenerateOutput:
        """One engine call."""
        output = await self.ctx.generate(prompt, sampling)
        self.versions.add(str(output.weight_version))
        return output


_current: ContextVar[Call | None] = ContextVar("slime_compat_call", default=None)


def current_call() -> Call | None:
    """The generation in progress in this task, if any."""
    return _current.get()


@contextlib.contextmanager
def generating(ctx: GenerateContext) -> Iterator[Call]:
    """Context manager: `current_call` returns this sample's generation in its body and in tasks that it starts."""
    call = Call(ctx)
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


Function = Callable[..., object]


def load(path: str, call: tuple[str, ...], *, is_async: bool | None, optional: tuple[str, ...] = ()) -> Function:
    """Load and check the function at `path`.

    Args:
        path: `package.module.name` or `./file.py:name`.
        call: names of the arguments that slime passes by position.
        is_async: whether slime awaits it; None for classes.
        optional: arguments that slime passes by keyword to functions that name them.

    Raises:
        PluginError: the function does not exist, or cannot be called as slime calls it.
    """
    offer_slime()
    found = _find(path)
    if not callable(found):
        raise PluginError(f"{path} is a {type(found).__name__}; expected a function {_signature(call, optional)}")
    try:
        inspect.signature(found).bind(*call)
    except TypeError:
        signature = inspect.signature(found)
        raise PluginError(f"{path}{signature} cannot be called as slime does: {_signature(call, optional)}") from None
    if is_async is not None and inspect.iscoroutinefunction(found) != is_async:
        wanted = "`async def`: slime awaits it" if is_async else "a plain `def`: slime does not await it"
        raise PluginError(f"{path} must be {wanted}")
    return found


def accepts(function: Function, name: str) -> bool:
    """Whether a function has a parameter of this name; slime passes `evaluation` only to functions that do."""
    return name in inspect.signature(function).parameters


def _find(path: str) -> object:
    place, colon, name = path.rpartition(":") if ".py:" in path else path.rpartition(".")
    if not place or not name:
        raise PluginError(f"path {path!r}: expected package.module.name, or ./file.py:name")
    module = _from_file(Path(place)) if colon == ":" else _by_name(place, path)
    try:
        found: object = getattr(module, name)
    except AttributeError:
        near = difflib.get_close_matches(name, [key for key in vars(module) if not key.startswith("_")], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise PluginError(f"path {path!r}: {place} has no {name!r}.{hint}") from None
    return found


def _by_name(place: str, path: str) -> ModuleType:
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise PluginError(f"path {path!r}: {error}. It is neither installed nor in {here}") from error
    finally:
        sys.path.remove(here)


@functools.cache
def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PluginError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"slime_compat_file_{path.stem}", path.resolve())
    assert spec is not None, "a path that ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _signature(call: tuple[str, ...], optional: tuple[str, ...]) -> str:
    return f"f({', '.join((*call, *(f'{name}=...' for name in optional)))})"
