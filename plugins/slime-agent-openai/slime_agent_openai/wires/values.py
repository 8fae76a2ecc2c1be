"""Value: a part of a body with its path, for error messages; and the fields that a protocol refuses.

Example:

    for message in read_fields(body, {"n": Only((1,), "a request has one reply")}).at("messages").each():
        message.at("content").text()     # ApiError: messages[0].content is a number; expected a text
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slime_agent_openai.errors import ApiError, bad_request, unsupported
from slime_agent_openai.wires.wire import Body
from slime_core.sample import Json

UNREADABLE_KINDS = frozenset({"audio", "document", "file", "input_audio", "input_file", "video", "video_url"})
"""Types of parts with recordings or files, in all protocols."""


@dataclass(slots=True)  # not frozen: a body has dozens, and frozen ones take twice as long to make
class Value:
    """A JSON value. A missing value is null, because SDKs write unset fields either way."""

    json: Json  # The value
    path: str = ""  # Its place, such as "messages[2].content[0]"; empty: the body itself

    @property
    def is_given(self) -> bool:
        return self.json is not None

    def at(self, name: str) -> "Value":
        if not isinstance(self.json, dict):
            raise self.invalid("an object")
        return Value(self.json.get(name), f"{self.path}.{name}" if self.path else name)

    def present(self, names: Iterable[str]) -> Iterator["Value"]:
        if not isinstance(self.json, dict):
            raise self.invalid("an object")
        get = self.json.get
        yield from (self.at(name) for name in names if get(name) is not None)

    def each(self, since: int = 0) -> Iterator["Value"]:
        """Members of this list from index `since` on; none if it is null."""
        if self.json is None:
            return
        if not isinstance(self.json, list):
            raise self.invalid("a list")
        for index, member in enumerate(self.json[since:], since):
            yield Value(member, f"{self.path}[{index}]")

    def text(self, default: str | None = None) -> str:
        """A text; required if there is no default."""
        value = default if self.json is None else self.json
        if not isinstance(value, str):
            raise self.invalid("a text")
        return self._encodable(value)

    def flag(self) -> bool:
        if self.json is not None and not isinstance(self.json, bool):
            raise self.invalid("true or false")
        return bool(self.json)

    def denies(self) -> bool:
        return self.is_given and not self.flag()

    def whole(self, least: int) -> int | None:
        if self.json is None:
            return None
        if not isinstance(self.json, int) or isinstance(self.json, bool) or self.json < least:
            raise self.invalid(f"an integer of at least {least}")
        return self.json

    def number(self, least: float, most: float) -> float | None:
        if self.json is None:
            return None
        if not isinstance(self.json, int | float) or isinstance(self.json, bool) or not least <= self.json <= most:
            raise self.invalid(f"a number from {least:g} to {most:g}")
        return float(self.json)

    def object(self) -> dict[str, Json]:
        if self.json is not None and not isinstance(self.json, dict):
            raise self.invalid("an object")
        return dict(self.json or {})

    def as_json(self) -> str:
        try:
            return self._encodable(json.dumps(self.object(), ensure_ascii=False, allow_nan=False))
        except (ValueError, RecursionError):
            raise self.invalid("an object of plain JSON without NaN or deep nesting") from None

    def invalid(self, expected: str) -> ApiError:
        path = self.path or "the body"
        return bad_request(f"{path} is {_described(self.json)}; expected {expected}", self.path or None)

    def _encodable(self, text: str) -> str:
        try:
            text.isascii() or text.encode()
        except UnicodeEncodeError:
            raise bad_request(f"{self.path} has an unpaired surrogate; expected valid Unicode", self.path) from None
        return text


def text_of(content: Value, kinds: Mapping[str, str]) -> str:
    """Text of a content: a text, or text parts, joined; `kinds`: by type of part, the member with its text."""
    if not isinstance(content.json, list):
        return content.text("")
    return "".join(part_text(part, kinds) for part in content.each())


def part_text(part: Value, kinds: Mapping[str, str]) -> str:
    """Text of one part."""
    kind = part.at("type").text()
    if kind not in kinds:
        raise unreadable(part, kind, f"use {' or '.join(kinds)}")
    return part.at(kinds[kind]).text("")


def unreadable(part: Value, kind: str, known: str) -> ApiError:
    """Error for a part of an unsupported type: usually a picture, a recording or a file."""
    if kind in UNREADABLE_KINDS:
        return unsupported(part.path, f"parts of type {kind!r} cannot be sent to the model; send their content as text")
    return bad_request(
        f"{part.path} is of type {kind!r}, which is not supported here: {known}", part.path, "unsupported_content"
    )


def _described(value: Json) -> str:
    match value:
        case None:
            return "missing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value:g}" if abs(value) < 1e15 else "a number out of range"
        case str():
            return f"the text {value[:40]!r}"
        case list():
            return f"a list of {len(value)}"
    return "an object"


@dataclass(frozen=True, slots=True)
class Only:
    """A field that accepts only neutral values."""

    values: tuple[Json, ...]  # The accepted values; null is always accepted
    why: str  # Why other values are refused, and what to do


def read_fields(body: Body, not_supported: Mapping[str, Only]) -> Value:
    """A body, checked for fields that its protocol refuses. Unknown fields are ignored."""
    for name, only in not_supported.items():
        value = body.get(name)
        if value is not None and value not in only.values:
            raise unsupported(name, only.why)
    return Value(body)


NO_RECORDING = "the model generates only text"  # Why output other than text is refused
ONE_REPLY = "a request gets one reply; send it again for another"  # Why more replies are refused
