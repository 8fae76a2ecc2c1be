"""Expands nodes of the shell's syntax tree to text or words, and evaluates tests, without running commands.

Example:

    holds(node_of('[ -z "$X" ] || [ "$X" -le 0 ]'), scope)       # True, False, or None if unknown
    evaluate("N * (M + 1)", {"N": "2", "M": "3"})    # 8
    command_output(["basename", "a/b.sh", ".sh"])      # "b"

`$(…)` is expanded for commands whose output depends only on their words: `cd … && pwd`, `cat <<EOF`, `basename`.
"""

import ast
import fnmatch
import operator
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tree_sitter import Node

from slime_compat.migrate.migration import Text, Unknown, Value, Word, concatenate

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right), ast.Mod: operator.mod,
}  # fmt: skip
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge,
}  # fmt: skip


def evaluate(formula: str, variables: Mapping[str, str]) -> int | None:
    """Value of an integer formula with variables; None if it is not one."""
    try:
        return _evaluate_node(ast.parse(re.sub(r"\$\{?(\w+)\}?", r"\1", formula).strip(), mode="eval").body, variables)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return None


def compare_numbers(left: str, sign: str, right: str) -> bool | None:
    """Result of comparing two numbers in a test; None for other texts or signs."""
    try:
        return _COMPARED[sign](int(left), int(right))
    except (KeyError, ValueError):
        return None


def _evaluate_node(node: ast.expr, variables: Mapping[str, str]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return int(variables[name])
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_evaluate_node(left, variables), _evaluate_node(right, variables))
    raise ValueError(ast.dump(node))


def command_output(words: Sequence[str]) -> str | None:
    """A command's output; None if it is unknown without running the command."""
    name, *given = [each for each in words if each != "--"]
    try:
        return _PROGRAMS[name](given)
    except (KeyError, ValueError, IndexError):
        return None


def folder(text: str, script_folder: Path) -> str:
    """The output of `cd TEXT && pwd`.

    Args:
        text: a path, relative to the script's folder, as if the script ran there.
        script_folder: the folder of the script.
    """
    return str((script_folder / text).resolve())


def _dirname(given: Sequence[str]) -> str:
    (path,) = given
    return posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def _basename(given: Sequence[str]) -> str:
    path, *suffix = given
    name = posixpath.basename(path.rstrip("/"))
    return name.removesuffix(suffix[0]) if suffix and name != suffix[0] else name


def _seq(given: Sequence[str]) -> str:
    numbers = [int(each) for each in given]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    return " ".join(map(str, range(first, numbers[-1] + (1 if step > 0 else -1), step)))


def _echo(given: Sequence[str]) -> str:
    if given and given[0].startswith("-"):
        raise ValueError("an option")
    return " ".join(given)


_PROGRAMS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "basename": _basename,
    "dirname": _dirname,
    "echo": _echo,
    "seq": _seq,
}
SUPPORTED = frozenset(_PROGRAMS)
"""Supported programs, whose output depends only on their words."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Variables and source that an expansion may use."""

    variables: Mapping[str, Value]
    source: bytes
    path: Path
    name: str
    """The file's name in messages; empty for the script itself."""

    def unknown(self, node: Node, why: str, name: str = "") -> Unknown:
        """An unknown text at a node; a user can set it by the variable `name`."""
        return Unknown(line_of(node), why, self.name, name)

    def raw(self, node: Node) -> str:
        """The source of a node."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def line_of(node: Node) -> int:
    """The line of a node, from 1."""
    return node.start_point[0] + 1


def words(node: Node, scope: Scope) -> Iterator[Word]:
    """The words of a node; may be empty, or several for an array or a text with spaces."""
    line = line_of(node)
    inner = node.named_children[0] if _is_one_expansion(node) else node
    if (name := _array_of(inner, scope)) is not None:
        value = scope.variables.get(name, ())
        if isinstance(value, Unknown):
            yield Word(replace(value, name=name), line, scope.name, several=True)
        else:
            yield from value if isinstance(value, tuple) else (Word(value, line, scope.name),)
        return
    text = text_of(node, scope)
    if isinstance(text, str) and node.type in ("simple_expansion", "expansion", "command_substitution"):
        yield from (Word(each, line, scope.name) for each in text.split())
    else:
        yield Word(text, line, scope.name)


def all_words(nodes: Sequence[Node], scope: Scope) -> Iterator[Word]:
    """The words of nodes; adjacent nodes form one word, as in `http://$HOST`, which the grammar splits."""
    at = 0
    while at < len(nodes):
        end = at + 1
        while end < len(nodes) and nodes[end].start_byte == nodes[end - 1].end_byte:
            end += 1
        if end - at == 1:
            yield from words(nodes[at], scope)
        else:
            yield Word(concatenate(text_of(each, scope) for each in nodes[at:end]), line_of(nodes[at]), scope.name)
        at = end


def text_of(node: Node, scope: Scope) -> Text:
    """A node, expanded to one text."""
    expand = _EXPANDERS.get(node.type)
    return expand(node, scope) if expand else scope.unknown(node, f"{_short(scope.raw(node))} is not supported")


def _word(node: Node, scope: Scope) -> Text:
    return re.sub(r"\\(.)", r"\1", scope.raw(node).replace("\\\n", ""))


def _raw_string(node: Node, scope: Scope) -> Text:
    return scope.raw(node)[1:-1]


def _string(node: Node, scope: Scope) -> Text:
    return _spans(node, scope, node.start_byte + 1, node.end_byte - 1)


def _spans(node: Node, scope: Scope, start: int, end: int) -> Text:
    parts: list[Text] = []
    for child in node.children:
        if child.start_byte < start or child.end_byte > end or child.type in ("string_content", "heredoc_content"):
            continue
        parts += [_plain(scope.source[start : child.start_byte]), text_of(child, scope)]
        start = child.end_byte
    return concatenate([*parts, _plain(scope.source[start:end])])


def _plain(text: bytes) -> str:
    return re.sub(r"\\([\"\\$`])", r"\1", text.decode("utf-8", "replace").replace("\\\n", ""))


def _concatenation(node: Node, scope: Scope) -> Text:
    if any(child.type == "$" for child in node.children):  # the grammar loses a name behind ']*'
        parts = re.split(r"(\$\{?\w+\}?)", scope.raw(node))
        return concatenate(_value(each.strip("${}"), node, scope) if each.startswith("$") else each for each in parts)
    return concatenate(text_of(child, scope) for child in node.children)


def _variable(node: Node, scope: Scope) -> Text:
    return _value(scope.raw(node)[1:], node, scope)


def _value(name: str, node: Node, scope: Scope, at: int = 0) -> Text:
    if name in ("BASH_SOURCE", "0"):
        return str(scope.path.absolute())
    value = scope.variables.get(name)
    if value is None:
        if not name.isidentifier():
            return scope.unknown(node, f"${name} is an argument of the script")
        return scope.unknown(node, f"${name} is not set in the script", name)
    if isinstance(value, tuple):
        return value[at].text if at < len(value) else ""
    return replace(value, name=name) if isinstance(value, Unknown) else value


def _expansion(node: Node, scope: Scope) -> Text:
    """`${NAME}`, with or without a default."""
    match = re.fullmatch(r"\$\{(\w+)(?:\[(\d+)\])?\}", scope.raw(node))
    if match:
        return _value(match[1], node, scope, int(match[2] or 0))
    parts = [child for child in node.children if child.type not in ("${", "}")]
    names = [child for child in parts if child.type in ("variable_name", "subscript")]
    operators = [child for child in parts if not child.is_named]
    if len(names) < 1 or parts[0].type not in ("variable_name", "subscript") or not operators:
        return scope.unknown(node, f"{_short(scope.raw(node))} is not supported")
    name, operator = scope.raw(names[0]), scope.raw(operators[0])
    rest = concatenate(text_of(child, scope) for child in parts[2:])
    value = scope.variables.get(name)
    if operator in (":-", "-", ":=", "="):
        is_set = value is not None and (value != "" or operator in ("-", "="))
        return _value(name, node, scope) if is_set else rest
    if operator in (":?", "?"):
        return _value(name, node, scope)
    return scope.unknown(node, f"{_short(scope.raw(node))} is not supported")


def _substitution(node: Node, scope: Scope) -> Text:
    """`$(…)`."""
    raw = scope.raw(node)
    unknown = scope.unknown(node, f"`{_short(raw[2:-1].strip())}` is not run")
    if raw.startswith("$(("):
        return _arithmetic(node, scope)
    body = node.named_children[0] if node.named_child_count == 1 else None
    if body is None:
        return unknown
    if body.type == "list":
        return _folder(body, scope) or unknown
    if body.type == "redirected_statement" and scope.raw(body.children[0]).strip() == "cat":
        bodies = [each for child in body.children for each in child.children if each.type == "heredoc_body"]
        return _here_document(bodies[0], scope) if len(bodies) == 1 else unknown
    if body.type != "command":
        return unknown
    return _command_output(body, scope) or unknown


def _command_output(command: Node, scope: Scope) -> Text | None:
    given = [each.text for each in all_words(command.named_children, scope)]
    known = [each for each in given if isinstance(each, str)]
    if len(known) < len(given):
        return next(each for each in given if isinstance(each, Unknown)) if known and known[0] in SUPPORTED else None
    return command_output(known) if known else None


def _folder(body: Node, scope: Scope) -> Text | None:
    """`cd … && pwd`."""
    first, last = body.named_children[0], body.named_children[-1]
    if first.type == "redirected_statement":
        first = first.named_children[0]
    if first.type != "command" or scope.raw(last) not in ("pwd", "pwd -P") or not scope.raw(first).startswith("cd "):
        return None
    given = [each.text for each in all_words(first.named_children[1:], scope)]
    where = [each for each in given if each != "--"]
    if len(where) != 1 or isinstance(where[0], Unknown):
        return where[0] if len(where) == 1 else None
    return folder(where[0], scope.path.absolute().parent)


def _here_document(node: Node, scope: Scope) -> Text:
    return _spans(node, scope, node.start_byte, node.end_byte)


def _arithmetic(node: Node, scope: Scope) -> Text:
    raw = scope.raw(node)
    formula = raw.strip().removeprefix("$((").removesuffix("))")
    for name in {*re.findall(r"[A-Za-z_]\w*", formula)}:
        value = _value(name, node, scope)
        if isinstance(value, Unknown):
            return value
    texts = {name: value for name, value in scope.variables.items() if isinstance(value, str)}
    result = evaluate(formula, texts)
    return scope.unknown(node, f"{_short(raw)} cannot be computed") if result is None else str(result)


def _array_of(node: Node, scope: Scope) -> str | None:
    """The array's name in `${NAME[@]}`; None for any other node."""
    match = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", scope.raw(node))
    return match[1] if match else None


def _is_one_expansion(node: Node) -> bool:
    return (
        node.type == "string"
        and node.named_child_count == 1
        and node.end_byte - node.start_byte == (node.named_children[0].end_byte - node.named_children[0].start_byte + 2)
    )


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= 60 else plain[:57] + "..."


_EXPANDERS: Mapping[str, Callable[[Node, Scope], Text]] = {
    "word": _word, "number": _word, "variable_name": _word, "regex": _word, "extglob_pattern": _word, "[": _word,
    "]": _word, "raw_string": _raw_string, "string": _string, "translated_string": _string,
    "concatenation": _concatenation, "simple_expansion": _variable, "expansion": _expansion,
    "command_substitution": _substitution, "heredoc_body": _here_document, "arithmetic_expansion": _arithmetic,
    "command_name": _concatenation,
}  # fmt: skip


def holds(node: Node, scope: Scope) -> bool | None:
    """Whether a test holds; None if unknown."""
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
    return compare_numbers(left, sign, right)
