"""Finds the training commands of a shell script, which is read statement by statement and never run.

Assignments, arrays, sourced files and conditions are evaluated; functions are not. An unknown text is recorded
with its line, and reported only if a flag depends on it.

Example:

    script = read_script(Path("run-qwen3-4B.sh"), {"NUM_GPUS": "8"})
    script.trainings[0].words          # (Word("--actor-num-nodes", 153), Word("1", 153), ...)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from slime_compat.migrate.expansion import Scope, all_words, holds, line_of, text_of
from slime_compat.migrate.migration import Unknown, Value, Word
from slime_core.errors import ConfigError

PROGRAMS = ("train.py", "train_async.py")
"""The programs that slime's scripts start."""
_NO_WORDS = ("variable_assignment", "file_redirect", "herestring_redirect", "comment", "(", ")", "\\", "\n")
MAX_DEPTH = 8
"""Maximum depth of files that source each other."""


@dataclass(frozen=True, slots=True)
class Training:
    """A command that starts training."""

    program: str
    """`train.py` or `train_async.py`."""
    words: tuple[Word, ...]
    before: tuple[Word, ...]
    """The words before the program: `ray job submit …`."""
    line: int
    repeated: bool
    """Whether it is in a loop."""


@dataclass(slots=True)
class Script:
    """A script's training commands, and notes."""

    path: Path
    trainings: list[Training] = field(default_factory=list)
    """The training commands, in order."""
    notes: list[Unknown] = field(default_factory=list)
    """Statements that may hide something: `eval`, and sourced files that do not exist."""
    sourced: list[Path] = field(default_factory=list)
    """The files that it sources, whether they exist or not."""


def read_script(path: Path, defined: Mapping[str, str]) -> Script:
    """Read a script.

    Args:
        path: the script.
        defined: variables that are set before it runs, by name.

    Raises:
        ConfigError: the file cannot be read, or is not a shell script.
    """
    script = Script(path)
    _Reader(script, dict(defined), frozenset(defined)).run_file(path, "")
    return script


class _Reader:
    """Evaluates statements in order and keeps the variables."""

    def __init__(self, script: Script, variables: dict[str, Value], fixed: frozenset[str]) -> None:
        self.script, self.variables, self._fixed = script, variables, fixed
        self._depth = self._loops = 0

    def run_file(self, path: Path, name: str) -> None:
        try:
            source = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the script {path}: {error.strerror}") from None
        if b"\0" in source:
            raise ConfigError(f"{path} is not a shell script: it contains null bytes. Give slime's launch script")
        tree = Parser(Language(tree_sitter_bash.language())).parse(source)
        self._read_all(tree.root_node.children, Scope(self.variables, source, path, name))

    def _read_all(self, nodes: Iterable[Node], scope: Scope) -> None:
        for node in nodes:
            self._read_one(node, scope)

    def _read_one(self, node: Node, scope: Scope) -> None:
        match node.type:
            case "variable_assignment":
                self._assign(node, scope)
            case "declaration_command" | "variable_assignments":
                self._read_all((child for child in node.children if child.type == "variable_assignment"), scope)
            case "command":
                self._command(node, scope)
            case "if_statement":
                self._if(node, scope)
            case "case_statement":
                self._branches([child.children for child in node.children if child.type == "case_item"], node, scope)
            case "for_statement" | "c_style_for_statement" | "while_statement" | "until_statement":
                self._loop(node, scope)
            case "function_definition":
                self.script.notes.append(scope.unknown(node, "shell functions are not read: inline their commands"))
            case "list":
                self._list(node, scope)
            case "heredoc_redirect" | "comment" | "file_redirect" | "negated_command" | "test_command":
                pass
            case _:
                self._read_all(node.named_children, scope)

    def _list(self, node: Node, scope: Scope) -> None:
        """`a && b`, `a || b`: reads the second command if the first command's status requires it or is unknown."""
        first, second = node.named_children[0], node.named_children[-1]
        self._read_one(first, scope)
        outcome = holds(first, scope)
        wanted = any(child.type == "&&" for child in node.children)
        if outcome is None and first.type == "test_command":
            self._branches([[second], []], node, scope)
        elif outcome is None or outcome == wanted:
            self._read_one(second, scope)

    def _assign(self, node: Node, scope: Scope) -> None:
        target = node.named_children[0]
        name = scope.raw(target)
        if target.type == "subscript":
            self._set_entry(node, target, scope)
            return
        value: Value
        given = node.named_children[1] if node.named_child_count > 1 else None
        if given is None:
            value = ""
        elif given.type == "array":
            value = tuple(all_words([child for child in given.children if child.type not in _NO_WORDS], scope))
        else:
            value = text_of(given, scope)
        if any(child.type == "+=" for child in node.children):
            value = _append(self.variables.get(name), value, line_of(node), scope.name)
        self._set(name, value)

    def _set_entry(self, node: Node, target: Node, scope: Scope) -> None:
        """`NAME[1]=value`."""
        name, at = scope.raw(target.named_children[0]), scope.raw(target.named_children[-1])
        array = self.variables.get(name)
        if isinstance(array, tuple) and at.isdecimal() and int(at) < len(array):
            word = Word(text_of(node.named_children[-1], scope), line_of(node), scope.name)
            self._set(name, (*array[: int(at)], word, *array[int(at) + 1 :]))
        else:
            self._set(name, scope.unknown(node, f"an entry of {name} is set by an unsupported index"))

    def _set(self, name: str, value: Value) -> None:
        if name not in self._fixed or not isinstance(value, Unknown):
            self.variables[name] = value

    def _command(self, node: Node, scope: Scope) -> None:
        self._read_all((child for child in node.children if child.type == "variable_assignment"), scope)
        given = tuple(all_words([child for child in node.children if child.type not in _NO_WORDS], scope))
        name = given[0].text if given else ""
        if self._add_training(given, node):
            return
        if isinstance(name, str) and name.startswith("--") and self.script.trainings:
            self.script.notes.append(scope.unknown(node, f"{name} is a separate command: is a \\ missing before it?"))
        match name:
            case "source" | ".":
                self._source(given[1:], node, scope)
            case "eval":
                self.script.notes.append(scope.unknown(node, f"`{' '.join(scope.raw(node).split())[:60]}` is not run"))
                for variable in [each for each in self.variables if each in scope.raw(node)]:
                    self._set(variable, scope.unknown(node, "eval may set it"))
            case "printf" if len(given) > 2 and given[1].text == "-v":
                self._set(str(given[2].text), scope.unknown(node, "printf sets it"))
            case "read" | "mapfile" | "readarray":
                for word in given[1:]:
                    if isinstance(word.text, str) and word.text.isidentifier():
                        self._set(word.text, scope.unknown(node, f"{name} sets it"))

    def _add_training(self, given: tuple[Word, ...], node: Node) -> bool:
        for at, each in enumerate(given):
            program = each.text.rpartition("/")[2] if isinstance(each.text, str) else ""
            if program in PROGRAMS and at and given[0].text not in ("echo", "cat", "ls", "cp"):
                self.script.trainings.append(
                    Training(program, given[at + 1 :], given[:at], line_of(node), self._loops > 0)
                )
                return True
        return False

    def _source(self, given: tuple[Word, ...], node: Node, scope: Scope) -> None:
        text = given[0].text if given else ""
        if isinstance(text, Unknown):
            self.script.notes.append(scope.unknown(node, f"the path of the sourced file is unknown: {text.message}"))
            return
        path = Path(text) if Path(text).is_absolute() else scope.path.parent / text
        self.script.sourced.append(path)
        if path.is_file() and self._depth < MAX_DEPTH:
            self._depth += 1
            self.run_file(path, path.name)
            self._depth -= 1
        else:
            self.script.notes.append(scope.unknown(node, f"there is no {path}, which it sources"))

    def _if(self, node: Node, scope: Scope) -> None:
        branches: list[tuple[bool | None, list[Node]]] = []
        condition, body = _parts(node)
        branches.append((holds(condition, scope) if condition else None, body))
        for child in node.children:
            if child.type == "elif_clause":
                condition, body = _parts(child)
                branches.append((holds(condition, scope) if condition else None, body))
            elif child.type == "else_clause":
                branches.append((True, list(child.named_children)))
        possible: list[list[Node]] = []
        for outcome, body in branches:
            if outcome is not False:
                possible.append(body)
            if outcome is True:
                break
        else:
            possible.append([])
        self._branches(possible, node, scope)

    def _branches(self, bodies: list[list[Node]], node: Node, scope: Scope) -> None:
        if len(bodies) == 1:
            self._read_all(bodies[0], scope)
            return
        before, left = dict(self.variables), list[dict[str, Value]]()
        for body in bodies:
            self._restore(before)
            self._read_all(body, scope)
            left.append(dict(self.variables))
        self._restore(before)
        for name in {name for each in left for name in each}:
            values = [each.get(name) for each in left]
            if any(value != values[0] for value in values):
                why = scope.unknown(node, "it depends on a condition that is known only when the script runs")
                self._set(name, next((value for value in values if isinstance(value, Unknown)), why))
            elif values[0] is not None:
                self.variables[name] = values[0]

    def _restore(self, variables: Mapping[str, Value]) -> None:
        self.variables.clear()
        self.variables.update(variables)

    def _loop(self, node: Node, scope: Scope) -> None:
        names = {scope.raw(each) for each in _find(node, lambda each: each.type == "variable_name" and _is_set(each))}
        for each in _find(node, lambda each: each.type == "command"):
            if scope.raw(each).startswith("printf -v "):
                names.add(scope.raw(each).split()[2])
        self._loops += 1
        before = dict(self.variables)
        self._read_all(
            (child for child in node.named_children if child.type in ("do_group", "compound_statement")), scope
        )
        self._restore(before)
        self._loops -= 1
        for name in names:
            self._set(name, scope.unknown(node, "a loop sets it"))


def _is_set(node: Node) -> bool:
    parent = node.parent
    if parent is not None and parent.type == "subscript":
        node, parent = parent, parent.parent
    return parent is not None and (
        parent.type == "for_statement" or (parent.type == "variable_assignment" and parent.named_children[0] == node)
    )


def _find(node: Node, wanted: Callable[[Node], bool]) -> Iterable[Node]:
    if wanted(node):
        yield node
    for child in node.named_children:
        yield from _find(child, wanted)


def _parts(node: Node) -> tuple[Node | None, list[Node]]:
    """The condition and the body of an `if` or `elif`."""
    then = next((at for at, child in enumerate(node.children) if child.type == "then"), 1)
    conditions = [child for child in node.children[1:then] if child.is_named]
    body = [child for child in node.children[then + 1 :] if child.is_named and not child.type.endswith("_clause")]
    return conditions[-1] if conditions else None, body


def _append(value: Value | None, more: Value, line: int, file: str) -> Value:
    """`NAME+=more`."""
    if isinstance(more, tuple):
        if isinstance(value, Unknown):
            return (Word(value, line, file, several=True), *more)
        return (*(value if isinstance(value, tuple) else (Word(value, line, file),) if value else ()), *more)
    if isinstance(value, str) and isinstance(more, str):
        return value + more
    return value if isinstance(value, Unknown) else more
