"""Reference: names an agent by file or module and function, `./agents.py:solve` or `my_package.agents:solve`.

`check` only reads the source, so a misspelt reference is rejected before a process starts. `resolve` imports it, in a
worker.

Example:

    check("./agents.py:solve")                   # BadReference, a ValueError that lists the existing functions
    agent = resolve("./agents.py:solve")
"""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from slime_core.errors import did_you_mean

EXAMPLE = "./agents.py:solve or my_package.agents:solve"
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class BadReference(ValueError):
    """A reference to a missing function, or to one with the wrong arguments."""


def check(reference: str, *, takes_task: bool = True) -> None:
    """Refuse a reference to a missing function. `resolve` checks in a worker what the source does not show.

    Raises:
        BadReference: the function is missing, or it `takes_task` and does not take one argument.
    """
    where, name = _parts(reference)
    path = _source(where)
    if path is None:  # compiled: no source
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise BadReference(f"{path} is not Python: {error}") from None
    bindings = list(_bindings(tree))
    bound = [node for known, node in bindings if known in (name, "*", "__getattr__")]
    if not bound:
        functions = [known for known, node in bindings if isinstance(node, Function)]
        there = f"It has {', '.join(functions)}" if functions else "It has no functions"
        raise BadReference(f"{path} has no function {name!r}.{did_you_mean(name, functions)} {there}")
    match bound:
        case [ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]) as only] if takes_task:
            if not _takes_one(only.args):
                found = f"{path}:{only.lineno}: {name}({ast.unparse(only.args)}) does not take one argument"
                raise BadReference(f"{found}. {_wanted(name, takes_task=True)}")


def resolve(reference: str, *, takes_task: bool = False) -> Callable[..., object]:
    """Import the function. Raises BadReference if it is missing, or takes other arguments than `takes_task` says."""
    where, name = _parts(reference)
    module = _from_file(where) if where.endswith(".py") else importlib.import_module(where)
    function = getattr(module, name, None)
    wanted = _wanted(name, takes_task=takes_task)
    if function is None:
        raise BadReference(f"{where} has no function {name!r}. {wanted}")
    if not callable(function):
        raise BadReference(f"{name} of {where} is not a function, but {function!r:.80}. {wanted}")
    if takes_task and not _takes_a_task(function):
        raise BadReference(f"{name}{inspect.signature(function)} of {where} does not take one argument. {wanted}")
    if takes_task and (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        raise BadReference(
            f"{name} of {where} is a generator, so a call does not run it. Use return, not yield. {wanted}"
        )
    return function  # type: ignore[no-any-return]  # callable, as checked above


def _takes_a_task(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # compiled: the signature is unknown
        return True
    return True


def _wanted(name: str, *, takes_task: bool) -> str:
    if takes_task:
        return f"An agent is a function of one argument, the task: write def {name}(task) or async def {name}(task)"
    return f"Expected a function that returns an environment: write def {name}()"


def _parts(reference: str) -> tuple[str, str]:
    where, _, name = reference.rpartition(":")
    if not where or not name.isidentifier():
        path = Path(reference)
        write = f"{reference}:FUNCTION, like ./agents.py:solve" if path.suffix == ".py" and path.is_file() else EXAMPLE
        raise BadReference(f"agent {reference!r} does not name a function. Write {write}")
    return where, name


def _bindings(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    pending = [tree]
    while pending:  # no recursion: a sum of a thousand texts is a thousand nodes deep
        match node := pending.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.Import() | ast.ImportFrom():
                yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)
            case ast.Name(ctx=ast.Store()):
                yield node.id, node
            case _:
                pending += reversed([*ast.iter_child_nodes(node)])


def _takes_one(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults)
    return needed <= 1 and (positional > 0 or arguments.vararg is not None) and None not in arguments.kw_defaults


def _source(where: str) -> Path | None:
    """Source file of a module, found without imports; None if it has no source."""
    if where.endswith(".py"):
        path = Path(where).expanduser().absolute()
        if not path.is_file():
            files = sorted(file.name for file in path.parent.glob("*.py")) if path.parent.is_dir() else []
            there = f" The folder has {', '.join(files[:8])}" if files else ""
            raise BadReference(f"there is no file {path}.{did_you_mean(path.name, files)}{there}")
        return path
    top, *parts = where.split(".")
    spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, [str(Path.cwd())]) if top else None
    for part in parts:  # one name at a time: a dotted name would import its parent
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        spec = PathFinder.find_spec(part, folders) if part and folders else None
    if spec is None:
        raise BadReference(f"there is no module {where!r}. Install its package, or write {EXAMPLE}")
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None


def _from_file(where: str) -> ModuleType:
    path = _source(where)
    assert path is not None, "_source returns None only for modules"
    name = f"slime_agents_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # for its own pickles and dataclasses
    sys.path.insert(0, str(path.parent))  # for modules in the same folder
    spec.loader.exec_module(module)
    return module
