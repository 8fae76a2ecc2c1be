"""JsonValue: finds where a JSON value ends, while it is made.

It looks at strings and brackets alone: whether what is between them is JSON, `json.loads` says in the end.

Example:

    value = JsonValue()
    value.feed('{"a": "}')           # 8: all of it belongs to the value
    value.feed('"}</tool_call>')     # 2, and value.done
"""

import re

_IN_STRING = re.compile(r'[^"\\]*')
_BETWEEN = re.compile(r'[^"{}\[\]]*')
_SCALAR = re.compile(r"[\w.+-]*")


class JsonValue:
    """One value: an object, a list, a string, or a word such as a number."""

    def __init__(self) -> None:
        """Nothing has come; the first character is the value's."""
        self.done = False
        self.in_string = False
        """Whether a string is open: what looks like a marker there is part of it."""
        self.begun = False
        """Whether a character has come."""
        self._escaped = self._word = False
        self._depth = 0

    def feed(self, text: str, at: int = 0) -> int:
        """Where in the text the value ends, or its length. What can begin no value ends it at once."""
        self.begun = self.begun or at < len(text)
        while at < len(text) and not self.done:
            if self.in_string:
                at = self._string(text, at)
            elif self._word:
                at = _end_of(_SCALAR, text, at)
                self.done = at < len(text)
            elif self._depth:
                at = self._inside(text, at)
            else:
                at = self._first(text, at)
        return at

    def _first(self, text: str, at: int) -> int:
        self.in_string = text[at] == '"'
        self._depth = 1 if text[at] in "{[" else 0
        self._word = not self._depth and _end_of(_SCALAR, text, at) > at
        self.done = not (self.in_string or self._depth or self._word)
        return at if self.done else at + 1

    def _string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        at = _end_of(_IN_STRING, text, at)
        if at == len(text):
            return at
        if text[at] == "\\":
            self._escaped = True
        else:
            self.in_string = False
            self.done = not self._depth
        return at + 1

    def _inside(self, text: str, at: int) -> int:
        at = _end_of(_BETWEEN, text, at)
        if at == len(text):
            return at
        if text[at] == '"':
            self.in_string = True
        else:
            self._depth += 1 if text[at] in "{[" else -1
            self.done = not self._depth
        return at + 1


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
