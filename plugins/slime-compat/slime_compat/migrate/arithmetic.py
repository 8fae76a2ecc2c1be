"""Whole numbers of a shell: `$((A + 2 * B))` and `[ "$A" -le 2 ]`, of what is known.

Example:

    evaluate("N * (M + 1)", {"N": "2", "M": "3"})    # 8
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right),
    ast.Mod: operator.mod,
}
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def evaluate(formula: str, variables: Mapping[str, str]) -> int | None:
    """A formula of whole numbers and variables; None where it is anything else."""
    try:
        return _value(ast.parse(re.sub(r"\$\{?(\w+)\}?", r"\1", formula).strip(), mode="eval").body, variables)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return None


def compared(left: str, sign: str, right: str) -> bool | None:
    """Two numbers of a test; None where they are none, or the sign is another."""
    try:
        return _COMPARED[sign](int(left), int(right))
    except (KeyError, ValueError):
        return None


def _value(node: ast.expr, variables: Mapping[str, str]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return int(variables[name])
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_value(left, variables), _value(right, variables))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, variables)
    raise ValueError(ast.dump(node))
