r"""JsonCall: reads a call that is a JSON object while it is generated. JsonValue: finds where a JSON value ends.

Example:

    call = JsonCall(draft, raw="<tool_call>")
    call.feed('\n{"name": "add", "argu')         # None: it goes on
    call.feed('ments": {"a": 1}}\n')             # "\n", what comes after it; call.whole
    value = JsonValue()
    value.feed('{"a": "}')                        # 8: all of it belongs to the value
    value.feed('"}</tool_call>')                  # 2, and value.done
"""

import enum
import json
import re

from slime_agent_openai.parsers.answer import Draft, can_name

_IN_STRING = re.compile(r'[^"\\]*')
_BETWEEN = re.compile(r'[^"{}\[\]]*')
_SCALAR = re.compile(r"[\w.+-]*")


class JsonValue:
    """One value: an object, a list, a string, or a word such as a number."""

    def __init__(self) -> None:
        self.done = False
        self.in_string = False  # Whether a string is open: what looks like a marker there is part of it
        self.begun = False  # Whether a character has come
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


_SPACE = re.compile(r"\s*")
_BEGINS_A_VALUE = re.compile(r'["{\[\w.+-]')
_ARGUMENTS = frozenset({"arguments", "parameters"})
_KEYS = _ARGUMENTS | {"name", "type", "id"}


class _Next(enum.Enum):
    """What the object goes on with."""

    BRACE = enum.auto()
    FIRST_KEY = enum.auto()
    KEY = enum.auto()
    COLON = enum.auto()
    VALUE = enum.auto()
    COMMA = enum.auto()


class JsonCall:
    """One call. It tells the draft all but the end of a call that is whole."""

    def __init__(self, draft: Draft, raw: str = "", only: frozenset[str] | None = None) -> None:
        """`raw` is what was read of the call already, such as its marker: text again if this is no call.

        Without `raw`, an object that is no call is not a failed call either. `only`: names of tools, where nothing but
        its content says that an object is a call.
        """
        self.whole = False  # Whether the object is closed, and was a call
        self._draft, self._raw, self._only = draft, [raw], only
        self._marked = bool(raw)
        self._next = _Next.BRACE
        self._reading: JsonValue | None = None
        self._key = self._read = self._name = ""
        self._early: list[str] = []
        self.begun = False  # Whether its name is told
        self._telling = self._has_arguments = False

    @property
    def in_string(self) -> bool:
        """Whether a string is open: what looks like a marker there is part of it."""
        return self._reading is not None and self._reading.in_string

    def feed(self, text: str) -> str | None:
        """Read on: None; or what is left, when the object is closed or turns out to be no call."""
        at = 0
        while at < len(text) and not self.whole:
            after = self._step(text, at) if self._reading is None else self._value(self._reading, text, at)
            if after is None:
                self._keep(text[:at])
                self.fail()
                return text[at:]
            at = after
        self._keep(text[:at])
        if not self.whole:
            return None
        if not self.begun:
            self.whole = False
            self.fail()
        elif not self._has_arguments:
            self._draft.arguments("{}")
        return text[at:]

    def fail(self) -> None:
        """It does not go on: what is told stays, what is not becomes text."""
        if self.begun:
            self._draft.end(whole=False)
        elif self._marked:
            self._draft.back("".join(self._raw))
        else:
            self._draft.text("".join(self._raw))

    def _keep(self, text: str) -> None:
        if not self.begun:
            self._raw.append(text)

    def _step(self, text: str, at: int) -> int | None:
        """Take a bracket, colon or comma, or begin a key or value; None: what is there is none of these."""
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            return at
        match self._next, text[at]:
            case _Next.BRACE, "{":
                self._next = _Next.FIRST_KEY
            case _Next.FIRST_KEY | _Next.COMMA, "}":
                self.whole = True
            case _Next.FIRST_KEY | _Next.KEY, '"':
                return self._value(JsonValue(), text, at)
            case _Next.COLON, ":":
                self._next = _Next.VALUE
            case _Next.VALUE, char if _BEGINS_A_VALUE.match(char):
                self._telling = self._key in _ARGUMENTS and not self._has_arguments
                self._has_arguments |= self._telling
                if self._telling and self._name and not self.begun:
                    self._begin()
                return self._value(JsonValue(), text, at)
            case _Next.COMMA, ",":
                self._next = _Next.KEY
            case _:
                return None
        return at + 1

    def _value(self, value: JsonValue, text: str, at: int) -> int | None:
        """Read a key or a value; None: it is not one that belongs into a call."""
        end = value.feed(text, at)
        part = text[at:end]
        if self._telling and self.begun:
            self._draft.arguments(part)
        elif self._telling:
            self._early.append(part)
        elif self._next is not _Next.VALUE or self._key == "name":
            self._read += part
        self._reading = None if value.done else value
        return end if not value.done or self._took() else None

    def _took(self) -> bool:
        read, self._read = self._read, ""
        if self._next is not _Next.VALUE:
            self._key, self._next = str(_loaded(read)), _Next.COLON
            return self._only is None or self._key in _KEYS
        self._next, self._telling = _Next.COMMA, False
        return self._key != "name" or bool(self._name) or self._took_name(_loaded(read))

    def _took_name(self, name: object) -> bool:
        if not can_name(name) or (self._only is not None and name not in self._only):
            return False
        self._name = str(name)
        if self._only is None or self._has_arguments:
            self._begin()
        return True

    def _begin(self) -> None:
        self.begun = True
        self._draft.begin(self._name)
        self._draft.arguments("".join(self._early))


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
