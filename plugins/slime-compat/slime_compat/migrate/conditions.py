"""Conditions: whether a test of a script holds, where that can be told without running anything.

Example:

    holds(node_of('[ -z "$X" ] || [ "$X" -le 0 ]'), scope)       # True, False, or None: it cannot be told
"""

import fnmatch

from tree_sitter import Node

from slime_compat.migrate.arithmetic import compared
from slime_compat.migrate.expansion import Scope, text_of
from slime_compat.migrate.words import Unknown


def holds(node: Node, scope: Scope) -> bool | None:
    """Whether it holds."""
    match node.type:
        case "test_command" if node.named_child_count == 1:
            return holds(node.named_children[0], scope)
        case "parenthesized_expression" if node.named_child_count == 1:
            return holds(node.named_children[0], scope)
        case "negated_command" | "unary_expression" if scope.raw(node).lstrip().startswith("!"):
            inner = holds(node.named_children[-1], scope)
            return None if inner is None else not inner
        case "unary_expression":
            return _unary(node, scope)
        case "binary_expression" | "list" if any(child.type in ("&&", "||") for child in node.children):
            return _both(node, scope)
        case "binary_expression":
            return _binary(node, scope)
    return None


def _both(node: Node, scope: Scope) -> bool | None:
    left, right = (holds(each, scope) for each in (node.named_children[0], node.named_children[-1]))
    is_and = any(child.type == "&&" for child in node.children)
    if left is (not is_and) or right is (not is_and):
        return not is_and
    return None if left is None or right is None else is_and


def _unary(node: Node, scope: Scope) -> bool | None:
    sign, operand = scope.raw(node.children[0]), node.named_children[-1]
    if sign not in ("-z", "-n"):
        return None
    name = scope.raw(operand).strip('"').lstrip("${").rstrip("}")
    if name.isidentifier() and name not in scope.variables:
        return sign == "-z"
    text = text_of(operand, scope)
    return None if isinstance(text, Unknown) else (text == "") == (sign == "-z")


def _binary(node: Node, scope: Scope) -> bool | None:
    left, right = (text_of(each, scope) for each in (node.named_children[0], node.named_children[-1]))
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return None
    sign = scope.raw(node.children[1])
    if sign in ("=", "=="):
        return fnmatch.fnmatchcase(left, right)
    if sign == "!=":
        return not fnmatch.fnmatchcase(left, right)
    return compared(left, sign, right)
