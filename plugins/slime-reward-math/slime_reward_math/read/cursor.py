"""A place in a list of tokens, with bounds on depth and steps: what both parts of the reader stand on."""

from collections.abc import Iterator
from contextlib import contextmanager

from slime_reward_math.read.names import SILENT
from slime_reward_math.read.tokens import Token, Unread

MAX_DEPTH = 40
"""Nested brackets, braces and functions; each costs about nine Python frames."""
MAX_STEPS = 20_000
"""Tokens looked at, so that no text makes the reader go back and forth for long."""


class Cursor:
    """Walks over tokens; style commands are not seen."""

    def __init__(self, found: list[Token]) -> None:
        self.tokens = [each for each in found if not (each.kind == "cmd" and each.text in SILENT)]
        self.place, self.depth, self.steps = 0, 0, 0
        self.bars = 0
        """Open absolute values: a bar then closes one."""
        self.french = 0
        """Open brackets that a turned one closes: `]1, 2[`."""
        self.in_set = 0
        """Open set braces: a bar or a colon then opens the condition."""

    @property
    def now(self) -> Token:
        """The token at hand."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Unread("too many steps")
        return self.tokens[self.place]

    def ahead(self, count: int = 1) -> Token:
        """The token that many places on; `end` beyond the last."""
        return self.tokens[min(self.place + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        """The token at hand, passed over."""
        token = self.now
        if token.kind != "end":
            self.place += 1
        return token

    def at(self, *texts: str) -> bool:
        """Whether a sign or command at hand is one of these."""
        token = self.now
        return token.text in texts and token.kind in ("sym", "cmd")

    def accept(self, *texts: str) -> bool:
        """Pass over the sign at hand if it is one of these."""
        if self.at(*texts):
            self.place += 1
            return True
        return False

    def expect(self, *texts: str) -> None:
        """Pass over one of these signs, or give up."""
        if not self.accept(*texts):
            raise Unread(f"no {texts[0]} where one belongs")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """One level deeper."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unread("too deeply nested")
        try:
            yield
        finally:
            self.depth -= 1

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Within brackets: bars and colons mean what they mean outside."""
        bars, in_set = self.bars, self.in_set
        self.bars = self.in_set = 0
        try:
            with self.inside():
                yield
        finally:
            self.bars, self.in_set = bars, in_set

    def closing(self, opening: str, closing: str) -> int:
        """Where the bracket at hand is closed."""
        depth = 0
        for place in range(self.place, len(self.tokens)):
            text = self.tokens[place].text
            if self.tokens[place].kind in ("sym", "cmd"):
                depth += (text == opening) - (text == closing)
                if depth == 0:
                    return place
        raise Unread("a bracket that is not closed")
