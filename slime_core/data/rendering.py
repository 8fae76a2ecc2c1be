"""Renders messages by the chat template, checks that no text is lost, and reads media columns.

The check searches the rendered text for each message. A message that the template drops or cuts is an error that
names it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from slime_core.data.rows import calls_of, reasoning, visible
from slime_core.errors import DataError
from slime_core.roles import MediaKeys, Tokenizer
from slime_core.sample import Json, Message

MARK = "qSENTINELq"
"""A text that no template trims, escapes or writes."""
ANYWHERE = ("system", "developer")
"""Roles whose text may stand elsewhere: some templates write it before the last of the user's messages."""


class Renderer:
    """Renders messages in the form that one template reads."""

    def __init__(self, tokenizer: Tokenizer, kwargs: Mapping[str, Json] | None) -> None:
        """Render nothing yet; `kwargs` are the template's arguments."""
        self._tokenizer, self._kwargs = tokenizer, dict(kwargs or {})

    def is_of(self, tokenizer: Tokenizer, kwargs: Mapping[str, Json]) -> bool:
        """Whether it renders with this tokenizer and these arguments."""
        return tokenizer is self._tokenizer and kwargs == self._kwargs

    def text(self, messages: Sequence[Message], tools: Json = None, *, opens: bool | None = None) -> str:
        """The messages as the template writes them; errors as of `prompt`.

        Args:
            messages: as `read_messages` returns them.
            tools: as `read_tools` returns them.
            opens: whether the assistant's next turn is opened; None leaves it to the template's arguments.
        """
        rows = [{**each, "content": _as_parts(each["content"])} for each in messages] if self._reads_parts else messages
        if any("tool_calls" in each for each in rows) and self.reads_text_arguments:
            rows = [_with_text_arguments(each) for each in rows]
        kwargs = self._kwargs if opens is None else {**self._kwargs, "add_generation_prompt": opens}
        return self._tokenizer.apply_chat_template(rows, tools, kwargs)

    def prompt(self, messages: Sequence[Message], tools: Json = None) -> "Finder":
        """The text from which the model generates, checked; the last message, if the assistant's, is continued.

        Raises:
            DataError: the template refuses the messages, or leaves out something that they say.
            ModelError: the model has no chat template.
        """
        is_begun = messages[-1]["role"] == "assistant"
        finder = Finder(self._begun(messages, tools) if is_begun else self.text(messages, tools))
        if not finder.text.strip():
            raise DataError("the chat template makes nothing of its messages")
        for number, message in enumerate(messages):
            finder.take(message, f"message {number} ({message['role']})")
        finder.take_tools(tools)
        return finder

    def _begun(self, messages: Sequence[Message], tools: Json = None) -> str:
        *before, last = messages
        if not isinstance(last["content"], str) or not last["content"] or "tool_calls" in last:
            raise DataError("a final assistant message that is to be continued must be a text without tool calls")
        if "<think>" in last["content"] and "</think>" not in last["content"]:  # which templates take for an answer
            return joined(self.text(before, tools, opens=True), last["content"])
        marked = {**last, "content": last["content"] + MARK}
        text, mark, _ = self.text([*before, marked], tools, opens=False).rpartition(MARK)
        if not mark:
            raise DataError("the chat template leaves out the final assistant message, which is to be continued")
        return text

    @cached_property
    def _reads_parts(self) -> bool:
        """Whether the template makes nothing of a content that is a text, and something of a list of parts."""
        text = self._written([{"role": "user", "content": MARK}])
        parts = self._written([{"role": "user", "content": _as_parts(MARK)}])
        # A template that cuts a text short writes a list whole, in Python's way or as JSON.
        return MARK not in text and MARK in parts and not re.search(f"text['\"]: *['\"]{MARK}", parts)

    @cached_property
    def reads_text_arguments(self) -> bool:
        """Whether the template writes arguments as they are given: a mapping fails, or is written in Python's way."""
        call: Message = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {MARK: True}}}
        messages: list[Message] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]
        messages[1]["tool_calls"] = [call]
        mapping = self._written(messages)
        if MARK in mapping and str({MARK: True}) not in mapping:
            return False
        return MARK in self._written([messages[0], _with_text_arguments(messages[1])])

    def _written(self, messages: Sequence[Message]) -> str:
        try:
            return self._tokenizer.apply_chat_template(messages, None, self._kwargs)
        except DataError:
            return ""


class Finder:
    """Finds what messages say in a rendered text, one message after the other.

    A text counts as found trimmed, and escaped as JSON or HTML has it.
    """

    def __init__(self, text: str) -> None:
        """At the beginning of the text."""
        self.text = text
        """The rendered text."""
        self.at = 0
        """Where the last message ends."""
        self.begin = 0
        """Where the last message begins."""
        self.dropped = 0
        """Messages whose reasoning is left out."""

    def take(self, message: Message, where: str, *, keeps_reasoning: bool = False) -> None:
        """Go on to the end of the next message.

        Args:
            message: the next.
            where: names it in errors.
            keeps_reasoning: whether reasoning that is left out is an error; otherwise it is counted.

        Raises:
            DataError: the template leaves out something that it says.
        """
        begin = 0 if message["role"] in ANYWHERE else self.at
        found = [
            self._find(text, begin) or _left_out(text, where) for each in visible(message) if (text := each.strip())
        ]
        thoughts = [text for each in reasoning(message) if (text := each.strip())]
        if not all(self._find(text, begin) for text in thoughts):
            if keeps_reasoning:
                _left_out(thoughts[0], where)
            self.dropped += 1
        if message["role"] not in ANYWHERE:
            self.begin = min((each[0] for each in found), default=begin)
            self.at = max((each[1] for each in found), default=begin)

    def holds(self, message: Message, begin: int) -> bool:
        """Whether all that a message says follows."""
        return all(self._find(text, begin) for each in visible(message) if (text := each.strip()))

    def take_tools(self, tools: Json) -> None:
        """See that the name of each tool is in the text; errors as of `take`."""
        for function in calls_of({"tool_calls": tools}):
            if isinstance(name := function.get("name"), str) and not self._find(name, 0):
                _left_out(name, "the row's tools")

    def _find(self, text: str, begin: int) -> tuple[int, int] | None:
        place = self.text.find(text, begin)
        found = (place, place + len(text)) if place >= 0 else None
        if found and place - begin <= len(text):  # no room for a longer way of writing it before that
            return found
        for escaped in _escaped(text):
            place = self.text.find(escaped, begin, found[0] if found else None)
            found = (place, place + len(escaped)) if place >= 0 else found
        return found


def shared_beginning(one: str, other: str) -> str:
    """The longest text with which both begin."""
    return os.path.commonprefix([one, other])  # noqa: RUF071  # by character


def _escaped(text: str) -> Iterator[str]:
    from markupsafe import escape

    ways = (json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1], str(escape(text)))
    return (each for each in dict.fromkeys(ways) if each != text)


def _left_out(text: str, where: str) -> tuple[int, int]:
    said = text if len(text) <= 60 else f"{text[:57]}..."
    raise DataError(
        f"{where}: the chat template leaves out {said!r}. Every message must reach the model as it is written: change "
        "the row, or the model's chat_template.jinja"
    )


def joined(opened: str, answer: str) -> str:
    """A turn's opening and its answer; if both open the thinking, once."""
    head = opened.rstrip()
    both = head.endswith("<think>") and answer.lstrip().startswith("<think>")
    return (head.removesuffix("<think>") if both else opened) + answer


def _as_parts(content: Json) -> Json:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_text_arguments(value: Message) -> Message:
    made = dict(value)
    if isinstance(calls := made.get("tool_calls"), list):
        made["tool_calls"] = [_with_text_arguments(each) for each in calls if isinstance(each, dict)]
    elif isinstance(function := made.get("function"), dict):
        made["function"] = _with_text_arguments(function)
    elif "arguments" in made:
        made["arguments"] = json.dumps(made["arguments"], ensure_ascii=False)
    return made


KINDS = ("image", "video", "audio")
"""Kinds of media; each is also the key of its part of a message."""
_PLACEHOLDER = re.compile(f"<({'|'.join(KINDS)})>")


def collect_media(values: Mapping[str, Json], keys: MediaKeys) -> dict[str, list[Json]]:
    """The items of each kind in a row; a single one counts as a list of one, an absent column as none.

    Args:
        values: the row.
        keys: column by kind.
    """
    return {kind: _as_list(values.get(key)) for kind, key in keys.items()}


def _as_list(items: Json) -> list[Json]:
    if items is None:
        return []
    return list(items) if isinstance(items, list) else [items]


def place_media(messages: Sequence[Message], media: Mapping[str, Sequence[Json]]) -> list[Message]:
    """The messages with every placeholder replaced; messages whose content is already a list stay as they are.

    Raises:
        ValueError: more placeholders than items, or fewer.
    """
    left = {kind: list(items) for kind, items in media.items()}
    placed: list[Message] = []
    for message in messages:
        content = message.get("content")
        placed.append({**message, "content": _parts(content, left)} if isinstance(content, str) else dict(message))
    if not _has_parts(messages):
        for kind, items in left.items():
            if items:
                count = len(media[kind])
                raise ValueError(f"{count} of {kind}, but only {count - len(items)} times <{kind}> in the prompt")
    return placed


def _parts(text: str, left: Mapping[str, list[Json]]) -> Json:
    if not _PLACEHOLDER.search(text):
        return text
    parts: list[Json] = []
    for number, piece in enumerate(_PLACEHOLDER.split(text)):
        if number % 2 == 0:
            parts += [{"type": "text", "text": piece}] if piece else []
        elif piece not in left:
            parts.append({"type": "text", "text": f"<{piece}>"})  # a kind that has no column is plain text
        elif left[piece]:
            item = left[piece].pop(0)
            parts.append(item if isinstance(item, dict) else {"type": piece, piece: item})
        else:
            raise ValueError(f"the prompt says <{piece}> more often than the row has one")
    return parts


def _has_parts(messages: Sequence[Message]) -> bool:
    return any(isinstance(message.get("content"), list) for message in messages)
