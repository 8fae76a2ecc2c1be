"""A place in a list of tokens, with bounds on depth and steps: what both parts of the reader stand on."""

from types import TracebackType

from slime_reward_math.read.names import SILENT
from slime_reward_math.read.tokens import Token, Unread

MAX_DEPTH = 40
"""Nested brackets, braces and functions; each costs about nine Python frames."""
MAX_STEPS = 20_000
"""Tokens searched for closing brackets, so that no text makes the reader look far ahead for long."""
_AHEAD = 10
"""How far is looked ahead without a search, at most."""


class Cursor:
    """Walks over tokens; style commands are not seen. `now` is an attribute, because it is read at every turn."""

    def __init__(self, found: list[Token]) -> None:
        self.tokens = [each for each in found if each.kind != "cmd" or each.text not in SILENT]
        self.last = len(self.tokens) - 1
        """Where the end is; more ends stand behind it, so that looking ahead needs no bounds."""
        self.tokens += [self.tokens[-1]] * _AHEAD
        self.place, self.steps = 0, 0
        self.now = self.tokens[0]
        """The token at hand."""
        self.depth = 0
        """Open levels."""
        self.bars = 0
        """Open absolute values: a bar then closes one."""
        self.french = 0
        """Open brackets that a turned one closes: `]1, 2[`."""
        self.in_set = 0
        """Open set braces: a bar or a colon then opens the condition."""
        self.inside = _Level(self)
        """One level deeper: `with self.inside`."""
        self.fresh = _Brackets(self)
        """Within brackets, where bars and colons mean what they mean outside: `with self.fresh`."""

    def go(self, place: int) -> None:
        """Stand at a place."""
        if place > self.last:
            place = self.last
        self.place = place
        self.now = self.tokens[place]

    def skip(self, count: int) -> None:
        """Pass over that many tokens."""
        self.go(self.place + count)

    def ahead(self, count: int = 1) -> Token:
        """The token that many places on; `end` beyond the last."""
        return self.tokens[self.place + count]

    def take(self) -> Token:
        """The token at hand, passed over."""
        token = self.now
        place = self.place
        if place < self.last:
            self.place = place = place + 1
            self.now = self.tokens[place]
        return token

    def at(self, *texts: str) -> bool:
        """Whether a sign or command at hand is one of these."""
        token = self.now
        return token.text in texts and (token.kind == "sym" or token.kind == "cmd")

    def accept(self, *texts: str) -> bool:
        """Pass over the sign at hand if it is one of these."""
        token = self.now
        if token.text in texts and (token.kind == "sym" or token.kind == "cmd"):
            self.take()
            return True
        return False

    def expect(self, *texts: str) -> None:
        """Pass over one of these signs, or give up."""
        if not self.accept(*texts):
            raise Unread(f"no {texts[0]} where one belongs")

    def closing(self, opening: str, closing: str) -> int:
        """Where the bracket at hand is closed."""
        depth = 0
        for place in range(self.place, len(self.tokens)):
            token = self.tokens[place]
            if token.kind == "sym" or token.kind == "cmd":
                depth += (token.text == opening) - (token.text == closing)
                if depth == 0:
                    self._searched(place - self.place)
                    return place
        self._searched(len(self.tokens) - self.place)
        raise Unread("a bracket that is not closed")

    def half_open(self) -> bool:
        """Whether a round bracket closes the square one that was passed over: `[1, 2)`."""
        depth = 0
        for each in self.tokens[self.place :]:
            depth += (each.text == "(") - (each.text == ")")
            if depth < 0 or (depth == 0 and each.text in ("[", "]")):
                return depth < 0
        return False

    def _searched(self, count: int) -> None:
        self.steps += count
        if self.steps > MAX_STEPS:
            raise Unread("too many steps")


class _Level:
    """Counts a level; entered again and again, so that no object is made for it."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def __enter__(self) -> None:
        cursor = self._cursor
        cursor.depth += 1
        if cursor.depth > MAX_DEPTH:
            raise Unread("too deeply nested")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cursor.depth -= 1


class _Brackets:
    """Puts away what is open outside."""

    __slots__ = ("_cursor", "_saved")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._saved: list[tuple[int, int]] = []

    def __enter__(self) -> None:
        cursor = self._cursor
        cursor.depth += 1
        if cursor.depth > MAX_DEPTH:
            raise Unread("too deeply nested")
        self._saved.append((cursor.bars, cursor.in_set))
        cursor.bars = cursor.in_set = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cursor.depth -= 1
        self._cursor.bars, self._cursor.in_set = self._saved.pop()
