"""Binding: what a module binds a name to, as its source says, and what is wrong with that as an agent. Runs nothing.

Example:

    found = bindings(ast.parse("solve = [1, 2]"), "solve")
    fault(found[-1], takes_task=True)                   # "is a list"
"""

import ast
from collections.abc import Iterator, Sequence
from typing import TypeAlias

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
_MAKES = {"__new__", "__await__"}
"""Methods with which making an object of a class may be running an agent."""


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
    """Whether a call with one positional argument fits."""
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
