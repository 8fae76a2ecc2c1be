"""Reference: an agent by file or module and function, `./agents.py:solve` or `my_package.agents:solve`.

`check` reads the source and runs nothing, so that a misspelt reference is refused before a process starts; `resolve`
imports it, in a worker.

Example:

    check("./agents.py:solve")                   # NoAgent, a ValueError: what there is instead
    agent = resolve("./agents.py:solve")
"""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from slime_core.errors import did_you_mean

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Bound: TypeAlias = ast.stmt | ast.expr
"""A definition, the value of an assignment, or an import, of which only a worker knows what it is."""
_VALUES: dict[type[ast.expr], str] = {
    ast.List: "a list",
    ast.ListComp: "a list",
    ast.Tuple: "a tuple",
    ast.Dict: "a dict",
    ast.DictComp: "a dict",
    ast.Set: "a set",
    ast.SetComp: "a set",
    ast.JoinedStr: "a str",
    ast.GeneratorExp: "a generator",
}
_MAKES = {"__new__", "__await__"}  # Methods with which making an object of a class may be running an agent


def top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs when a module is imported: what stands in it, also below if, try, with and loops."""
    for node in body:
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            inner = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.ExceptHandler)]
            for each in inner:
                yield from top(each.body if isinstance(each, ast.ExceptHandler) else [each])


def bindings(module: ast.Module, name: str) -> list[Bound]:
    """Everything that a module binds a name to, in order; also what may: `from x import *`, `__getattr__`."""
    return [bound for node in top(module.body) for known, bound in _bound(node) if known in (name, "*", "__getattr__")]


def fault(bound: Bound, *, takes_task: bool) -> str | None:
    """Why what a name is bound to is not a function, of one argument where it `takes_task`; None: it may be one."""
    match bound:
        case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]) if takes_task:
            if not _takes_one(bound.args):
                return f"({ast.unparse(bound.args)}) does not take one argument"
            return " yields, and nothing takes what it yields: an agent returns" if _yields(bound) else None
        case ast.Lambda() if takes_task and not _takes_one(bound.args):
            return f" = {ast.unparse(bound)} does not take one argument"
        case ast.ClassDef(bases=[], keywords=[], decorator_list=[]) if takes_task:
            made = {each.name for each in bound.body if isinstance(each, Function)} & _MAKES
            return None if made else " is a class"
        case ast.Constant(value=None):
            return " is None"
        case ast.Constant():
            return f" is {'an' if isinstance(bound.value, int) else 'a'} {type(bound.value).__name__}"
        case ast.expr() if type(bound) in _VALUES:
            return f" is {_VALUES[type(bound)]}"
    return None


def _bound(node: ast.stmt) -> Iterator[tuple[str, Bound]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node
        case ast.ImportFrom() | ast.Import():
            yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)
        case ast.Assign() | ast.AnnAssign(value=ast.expr()):
            assert node.value is not None
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
                else:
                    yield from ((each.id, node) for each in ast.walk(target) if isinstance(each, ast.Name))


def _takes_one(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults)
    return needed <= 1 and (positional > 0 or arguments.vararg is not None) and None not in arguments.kw_defaults


def _yields(function: Function) -> bool:
    """Whether calling it makes a generator: functions within it do not count."""
    left: list[ast.AST] = [*function.body]
    while left:
        node = left.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return False


EXAMPLE = "./agents.py:solve or my_package.agents:solve"


class NoAgent(ValueError):
    """A reference that leads to no function, or to none that can be called so."""


def check(reference: str, *, takes_task: bool = True) -> None:
    """See that there is such a function, of one argument where it `takes_task`.

    Raises:
        NoAgent: there is none, or it is something else; says what there is.
    """
    where, name = _parts(reference)
    path = _source(where)
    if path is None:  # compiled: a worker will tell
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise NoAgent(f"{path} is not Python: {error}") from None
    bound = bindings(tree, name)
    if not bound:
        functions = {node.name: node for node in top(tree.body) if isinstance(node, Function)}
        there = f"Its functions are {', '.join(functions)}" if functions else "It has no functions"
        raise NoAgent(f"{path} has no function {name!r}.{did_you_mean(name, functions)} {there}")
    faults = [fault(each, takes_task=takes_task) for each in bound]
    if faults[-1] is not None and None not in faults:  # of several, which one holds only a worker knows
        raise NoAgent(f"{path}:{bound[-1].lineno}: {name}{faults[-1]}: {_wanted(name, takes_task=takes_task)}")


def resolve(reference: str, *, takes_task: bool = False) -> Callable[..., object]:
    """Import it.

    Raises:
        NoAgent: there is none, or it is not a function, or not of one argument where it `takes_task`.
        Exception: whatever its module raises.
    """
    where, name = _parts(reference)
    module = _from_file(where) if where.endswith(".py") else importlib.import_module(where)
    found = getattr(module, name, None)
    wanted = _wanted(name, takes_task=takes_task)
    if found is None:
        raise NoAgent(f"{where} has no function {name!r}: {wanted}")
    if not callable(found):
        raise NoAgent(f"{name} of {where} is not a function but {found!r:.80}: {wanted}")
    if takes_task and not _takes_a_task(found):
        raise NoAgent(f"{name}{inspect.signature(found)} of {where} does not take one argument: {wanted}")
    return found  # type: ignore[no-any-return]  # callable, as was seen above


def _takes_a_task(found: Callable[..., object]) -> bool:
    try:
        inspect.signature(found).bind(None)
    except TypeError:
        return False
    except ValueError:  # of what is compiled nobody knows
        return True
    return True


def _wanted(name: str, *, takes_task: bool) -> str:
    if takes_task:
        return f"an agent is a function of one argument, the task: write def {name}(task) or async def {name}(task)"
    return f"a function that makes an environment is expected: write def {name}()"


def _parts(reference: str) -> tuple[str, str]:
    where, _, name = reference.rpartition(":")
    if not where or not name.isidentifier():
        path = Path(reference)
        write = f"{reference}:FUNCTION, as ./agents.py:solve" if path.suffix == ".py" and path.is_file() else EXAMPLE
        raise NoAgent(f"agent {reference!r} names no function: write {write}")
    return where, name


def _source(where: str) -> Path | None:
    if where.endswith(".py"):
        path = Path(where).expanduser().absolute()
        if not path.is_file():
            beside = sorted(each.name for each in path.parent.glob("*.py")) if path.parent.is_dir() else []
            there = f" There are {', '.join(beside[:8])}" if beside else ""
            raise NoAgent(f"there is no file {path}.{did_you_mean(path.name, beside)}{there}")
        return path
    folders: list[str] | None = None
    parts = where.split(".")
    spec: ModuleSpec | None = None
    for place, part in enumerate(parts):
        spec = _found(".".join(parts[: place + 1]), folders) if part.isidentifier() else None
        if spec is None:
            raise NoAgent(f"there is no module {where!r} here: install its package, or write {EXAMPLE}")
        if spec.origin is None:  # a folder without __init__.py; what it says of itself would import its parent
            folders = [str(Path(each) / part) for each in (_paths() if folders is None else folders)]
        else:
            folders = list(spec.submodule_search_locations or [])
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _found(name: str, folders: Sequence[str] | None) -> ModuleSpec | None:
    """A module, as `importlib.util.find_spec` finds it, but that no parent is imported; and beside the run file."""
    for finder in sys.meta_path:
        with suppress(KeyError):  # of a folder without __init__.py, whose parent is not imported
            if (spec := finder.find_spec(name, folders)) is not None:
                return spec
    return PathFinder.find_spec(name.rpartition(".")[2], _paths() if folders is None else folders)


def _paths() -> list[str]:
    return [*sys.path, str(Path.cwd())]


def _from_file(where: str) -> ModuleType:
    path = _source(where)
    assert path is not None, "it is a file"
    name = f"slime_agents_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # for pickle and dataclasses of its own
    sys.path.insert(0, str(path.parent))  # for what lies beside it
    spec.loader.exec_module(module)
    return module
