"""Secrets: settings written as `$env:NAME` are read from the environment, and never shown or written by their value.

Example:

    [reward.judge]
    key = "$env:JUDGE_KEY"                  # the run file, the plan and every error keep these words

The process knows the values that it has read, and replaces them wherever text leaves it.
"""

import base64
import codecs
import json
import logging
import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO, cast

from slime_core.errors import drawn, printable, styled

PREFIX = "$env:"
SHORTEST = 4
"""Characters from which on a value is replaced within other text; shorter ones would be found in any word."""
SHORTEST_BASE64 = 6
"""Characters of the base64 of one."""
_URLSAFE = str.maketrans("+/", "-_")


class Redactor:
    """Knows secret values and the words that they were written by."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._forms: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str, words: str) -> None:
        """Hide a value from now on, in every form that quoting and URLs give it; `words` stand in its place."""
        if not value or self._known.get(value) == words:
            return
        self._known[value] = words
        forms: dict[str, str] = {}
        for secret, instead in self._known.items():
            if len(secret) >= SHORTEST:
                forms.update(dict.fromkeys(_forms(secret), instead))
        # The longest first: one secret may be a part of another.
        ordered = sorted(forms, key=len, reverse=True)
        self._forms, self._pattern = forms, re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __bool__(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._known)

    def knows(self, value: str) -> bool:
        """Whether a text is a secret value as a whole."""
        return value in self._known

    def redact(self, text: str) -> str:
        """The text with every secret value replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._forms[found.group()], text)

    def redact_data(self, data: object) -> object:
        """Plain data with every secret replaced: texts, masked texts (`SecretStr`), keys, and numbers read from one."""
        match data:
            case str():
                return self._known.get(data) or self.redact(data)
            case Mapping():
                return {self.redact_data(key): self.redact_data(value) for key, value in data.items()}
            case list() | tuple() | set() | frozenset():
                return [self.redact_data(each) for each in data]
            case bool() | None:
                return data
            case int() | float():
                return self._known.get(str(data), data) if len(str(data)) >= SHORTEST else data
        masked = unmask(data)
        if masked is None:
            return data
        return masked if masked.startswith(PREFIX) else self._known.get(masked, str(data))

    def within(self, data: object) -> dict[str, str]:
        """The secrets in plain data, words by value: what a process that gets the data must hide too."""
        text = json.dumps(data, default=lambda each: unmask(each) or str(each), skipkeys=True)
        found = {}
        for value, words in self._known.items():
            quoted = json.dumps(value)
            if (quoted if len(value) < SHORTEST else quoted[1:-1]) in text:
                found[value] = words
        return found


REDACTOR = Redactor()
"""What this process has read."""


def unmask(data: object) -> str | None:
    """What a masked text of pydantic holds; None for anything else."""
    read = getattr(data, "get_secret_value", None)
    held = read() if callable(read) else None
    return held if isinstance(held, str) else None


def read_variable(words: str) -> str:
    """The value that `$env:NAME` stands for; it is hidden from now on.

    Raises:
        LookupError: the variable is not set or empty, or no name follows; says so.
    """
    name = words.removeprefix(PREFIX)
    if not name:
        raise LookupError(f"no name follows {PREFIX}; write {PREFIX}NAME")
    value = os.environ.get(name)
    if not value:
        raise LookupError(f"the environment variable {name} is {'empty' if value == '' else 'not set'}: export it")
    REDACTOR.add(value, words)
    return value


class _Redacting:
    """A text stream that replaces secrets in what is written to it, and escapes what a terminal would obey."""

    def __init__(self, stream: TextIO, escape: Callable[[str], str]) -> None:
        self._stream, self._escape = stream, escape

    @property
    def drawable(self) -> TextIO:
        """The same stream for what moves the cursor; the one behind it may escape as well."""
        return cast(TextIO, _Redacting(drawable(self._stream), drawn))

    def write(self, text: str) -> int:
        self._stream.write(self._escape(REDACTOR.redact(text)))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        if name == "buffer" and codecs.lookup(self._stream.encoding or "ascii").name == "ascii":
            raise AttributeError(name)  # click writes its text there, past `write`, where the encoding is ASCII
        return getattr(self._stream, name)


def redact_output(escape: Callable[[str], str] = styled) -> None:
    """Replace secrets in everything that this process prints or logs from now on, and escape control characters.

    Args:
        escape: of `slime_core.errors`; what is printed to a log file may be `drawn`.
    """
    escape_prints(escape)
    _redact_records()


def escape_prints(escape: Callable[[str], str] = styled) -> None:
    """Escape what is printed from now on. Call it after rich's `Live.start`, whose own stream draws what is printed."""
    sys.stdout, sys.stderr = (cast(TextIO, _Redacting(stream, escape)) for stream in (sys.stdout, sys.stderr))


def drawable(stream: TextIO) -> TextIO:
    """The stream for a progress bar or a live display, which move the cursor."""
    return getattr(stream, "drawable", stream)


@contextmanager
def redacted_output() -> Iterator[None]:
    """The same for the time of a `with`; what was logged to is given back."""
    before, factory = (sys.stdout, sys.stderr), logging.getLogRecordFactory()
    redact_output()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        logging.setLogRecordFactory(factory)


def _redact_records() -> None:
    make = logging.getLogRecordFactory()
    formatter = logging.Formatter()

    def redacted(*arguments: object, **keywords: object) -> logging.LogRecord:
        record = make(*arguments, **keywords)
        record.msg, record.args = printable(REDACTOR.redact(record.getMessage())), ()
        if record.exc_info and record.exc_info[0] is not None:
            # Handlers take this text instead of formatting the exception themselves.
            record.exc_text = printable(REDACTOR.redact(formatter.formatException(record.exc_info)))
        return record

    logging.setLogRecordFactory(redacted)


def _forms(value: str) -> set[str]:
    return {
        value,
        repr(value)[1:-1],
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        urllib.parse.quote(value),
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus(value),
        *_in_base64(value.encode()),
    }


def _in_base64(value: bytes) -> Iterator[str]:
    """What of a value's base64 is the same whatever stands around it, as `user:` of Basic authentication does."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + value + bytes(-(before + len(value)) % 3)).decode()
        bits = (before + len(value)) * 8
        part = whole[-(-before * 8 // 6) : bits // 6]
        if len(part) >= SHORTEST_BASE64:
            yield from (part, part.translate(_URLSAFE))
