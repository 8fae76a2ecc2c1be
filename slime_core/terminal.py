r"""Text of models, files and other machines as a terminal may show it: no character of it is a command.

Everything that a command prints or logs passes one stream (`secrets.redact_output`), which escapes control characters,
C1, bidirectional controls, line separators and halves of surrogate pairs. Colours that a command sets pass it. Text of
a model goes through `printable` or `one_line` first, which leave no colour either.

Example:

    printable("a\x1b[2Jb")           # "a\\u001b[2Jb"
    last_of(row.response, 60)        # the end of it, on one line
"""

import re

__all__ = ["drawn", "last_of", "one_line", "printable", "styled"]
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # bidirectional, separators, invisible
    "\ud800-\udfff\U000e0000-\U000e0fff"  # halves of surrogate pairs, tags
)
_ANY = re.compile(f"[{_UNSAFE}]")
_CODE = r"(?:[0-4]|2[234]|[39][0-79]|38;5;\d{1,3}|38;2(?:;\d{1,3}){3})"
_STYLED = re.compile(rf"(\x1b\[(?:{_CODE}(?:;{_CODE})*)?m)|[{_UNSAFE}]")
"""Colours of letters, bold, dim, italic, underlined, as click and rich write them; nothing that hides or moves text."""
_DRAWN = re.compile(rf"(\x1b\[[0-9;?]*[A-Za-z]|\r)|[{_UNSAFE}]")
"""What a progress bar needs besides."""


def printable(text: str) -> str:
    r"""Escape what a terminal takes for a command, as `\u001b`; newlines and tabs stay. JSON stays the same JSON."""
    return _ANY.sub(_escaped, text)


def styled(text: str) -> str:
    """The same for text of a command, whose colours stay."""
    return _STYLED.sub(_escaped, text)


def drawn(text: str) -> str:
    """The same for what draws, such as a progress bar: what moves the cursor stays."""
    return _DRAWN.sub(_escaped, text)


def one_line(text: str, instead: str = "\ufffd") -> str:
    """A text on one line, with a mark instead of what is not printable."""
    return _ANY.sub(instead, " ".join(text.split()))


def last_of(text: str, width: int) -> str:
    """The end of a text on one line, at most `width` characters."""
    line = one_line(text)
    return line if len(line) <= width else f"…{line[1 - width :]}"


def _escaped(found: re.Match[str]) -> str:
    if found.lastindex:
        return found[0]
    code = ord(found[0])
    pair = (code,) if code <= 0xFFFF else (0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))  # as JSON writes it
    return "".join(f"\\u{each:04x}" for each in pair)
