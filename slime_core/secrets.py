"""Secrets: settings written as `$env:NAME` are read from the environment; their values are never shown or written.

Example:

    [reward.judge]
    key = "$env:JUDGE_KEY"                  # the run file, the plan and every error keep these words

The process records the values that it has read, and redacts them in all its output.
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
"""Shortest value, in characters, that is replaced within other text. Shorter ones would match inside ordinary words."""
SHORTEST_BASE64 = 6
"""Shortest base64 fragment of a value, in characters, that is replaced."""
_URLSAFE = str.maketrans("+/", "-_")


class Redactor:
    """Replaces secret values in text by the words that stand for them in the run file."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._forms: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str, placeholder: str) -> None:
        """Redact a value from now on, also in its quoted, URL and base64 forms, with `placeholder` in its place."""
        if not value or self._known.get(value) == placeholder:
            return
        self._known[value] = placeholder
        forms: dict[str, str] = {}
        for secret, instead in self._known.items():
            if len(secret) >= SHORTEST:
                forms.update(dict.fromkeys(_forms(secret), instead))
        # Longest first, because one secret may be part of another.
        ordered = sorted(forms, key=len, reverse=True)
        self._forms, self._pattern = forms, re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __bool__(self) -> bool:
        """Whether any secrets are known."""
        return bool(self._known)

    def knows(self, value: str) -> bool:
        """Whether the whole text is a secret value."""
        return value in self._known

    def redact(self, text: str) -> str:
        """The text with every secret value replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._forms[found.group()], text)

    def redact_data(self, data: object) -> object:
        """Plain data with every secret replaced, in strings, `SecretStr`, keys, and numbers read from a secret."""
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
        """The secrets in plain data, value -> words. A process that receives the data must redact them, too."""
        text = json.dumps(data, default=lambda each: unmask(each) or str(each), skipkeys=True)
        found = {}
        for value, words in self._known.items():
            quoted = json.dumps(value)
            if (quoted if len(value) < SHORTEST else quoted[1:-1]) in text:
                found[value] = words
        return found


REDACTOR = Redactor()
"""The secrets that this process has read."""


def unmask(data: object) -> str | None:
    """The value of a pydantic `SecretStr`; None for anything else."""
    read = getattr(data, "get_secret_value", None)
    held = read() if callable(read) else None
    return held if isinstance(held, str) else None


def read_variable(words: str) -> str:
    """The value of `$env:NAME`, which is redacted from now on.

    Raises:
        LookupError: the variable is not set or empty, or the name is missing.
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
    """A text stream that redacts secrets and escapes terminal control characters."""

    def __init__(self, stream: TextIO, escape: Callable[[str], str]) -> None:
        self._stream, self._escape = stream, escape

    @property
    def drawable(self) -> TextIO:
        """The same stream, but it passes cursor movements; an underlying stream may still escape them."""
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
    """Redact secrets and escape control characters in all that this process prints or logs from now on.

    Args:
        escape: a function of `slime_core.errors`; `drawn` is suitable for a log file.
    """
    escape_prints(escape)
    _redact_records()


def escape_prints(escape: Callable[[str], str] = styled) -> None:
    """Escape printed text from now on. Call it after rich's `Live.start`, which replaces the streams."""
    sys.stdout, sys.stderr = (cast(TextIO, _Redacting(stream, escape)) for stream in (sys.stdout, sys.stderr))


def drawable(stream: TextIO) -> TextIO:
    """The stream for a progress bar or a live display, which moves the cursor."""
    return getattr(stream, "drawable", stream)


@contextmanager
def redacted_output() -> Iterator[None]:
    """Redact output within a `with` block; restores streams and logging afterwards."""
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
    """Parts of a value's base64 that do not depend on surrounding text, such as `user:` in Basic authentication."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + value + bytes(-(before + len(value)) % 3)).decode()
        bits = (before + len(value)) * 8
        part = whole[-(-before * 8 // 6) : bits // 6]
        if len(part) >= SHORTEST_BASE64:
            yield from (part, part.translate(_URLSAFE))
