"""Renders messages with the chat template, checks that no text is lost, and reads media columns.

The check searches the rendered text for each message. If the template drops or cuts a message, an error names it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from slime_core.data.rows import calls_of, reasoning, visible
from slime_core.errors import DataError
from slime_core.roles import Tokenizer
from slime_core.sample import Json, Message

MARK = "qSENTINELq"
"""A text that templates leave unchanged and never produce."""
ANYWHERE = ("system", "developer")
"""Roles whose text may be in another place: some templates put it before the last user message."""


class Renderer:
    """Renders messages, in the form that one template reads."""

    def __init__(self, tokenizer: Tokenizer, kwargs: Mapping[str, Json] | None) -> None:
        """Set the tokenizer and the template's arguments, `kwargs`."""
        self._tokenizer, self._kwargs = tokenizer, dict(kwargs or {})

    def is_for(self, tokenizer: Tokenizer, kwargs: Mapping[str, Json]) -> bool:
        """Whether it renders with the given tokenizer and arguments."""
        return tokenizer is self._tokenizer and kwargs == self._kwargs

    def text(self, messages: Sequence[Message], tools: Json = None, *, open_turn: bool | None = None) -> str:
        """Return the messages as the template renders them; errors as in `prompt`.

        Args:
            messages: as `read_messages` returns them.
            tools: as `read_tools` returns them.
            open_turn: whether to open the assistant's next turn; None: as the template's arguments say.
        """
        rows = [{**each, "content": _as_parts(each["content"])} for each in messages] if self._reads_parts else messages
        if any("tool_calls" in each for each in rows) and self.reads_text_arguments:
            rows = [_with_text_arguments(each) for each in rows]
        kwargs = self._kwargs if open_turn is None else {**self._kwargs, "add_generation_prompt": open_turn}
        return self._tokenizer.apply_chat_template(rows, tools, kwargs)

    def prompt(self, messages: Sequence[Message], tools: Json = None) -> "Finder":
        """Return the checked text from which the model generates. A final assistant message is continued.

        Raises:
            DataError: the template rejects the messages, or drops some of their text.
            ModelError: the model has no chat template.
        """
        is_continued = messages[-1]["role"] == "assistant"
        finder = Finder(self._continued(messages, tools) if is_continued else self.text(messages, tools))
        if not finder.text.strip():
            raise DataError("the chat template renders its messages as an empty text")
        for number, message in enumerate(messages):
            finder.find_next(message, f"message {number} ({message['role']})")
        finder.check_tools(tools)
        return finder

    def _continued(self, messages: Sequence[Message], tools: Json = None) -> str:
        *before, last = messages
        if not isinstance(last["content"], str) or not last["content"] or "tool_calls" in last:
            raise DataError("a final assistant message can be continued only if it is a text without tool calls")
        if "<think>" in last["content"] and "</think>" not in last["content"]:  # to templates it is a finished answer
            return join_answer(self.text(before, tools, open_turn=True), last["content"])
        marked = {**last, "content": last["content"] + MARK}
        text, mark, _ = self.text([*before, marked], tools, open_turn=False).rpartition(MARK)
        if not mark:
            raise DataError("the chat template leaves out the final assistant message, so it cannot be continued")
        return text

    @cached_property
    def _reads_parts(self) -> bool:
        """Whether the template ignores a content that is a text, but renders a list of parts."""
        text = self._try_render([{"role": "user", "content": MARK}])
        parts = self._try_render([{"role": "user", "content": _as_parts(MARK)}])
        # A template that cuts off a text renders a list as its Python or JSON form.
        return MARK not in text and MARK in parts and not re.search(f"text['\"]: *['\"]{MARK}", parts)

    @cached_property
    def reads_text_arguments(self) -> bool:
        """Whether the template writes tool arguments unchanged: it fails on a dict, or writes its Python form."""
        call: Message = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {MARK: True}}}
        messages: list[Message] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]
        messages[1]["tool_calls"] = [call]
        mapping = self._try_render(messages)
        if MARK in mapping and str({MARK: True}) not in mapping:
            return False
        return MARK in self._try_render([messages[0], _with_text_arguments(messages[1])])

    def _try_render(self, messages: Sequence[Message]) -> str:
        try:
            return self._tokenizer.apply_chat_template(messages, None, self._kwargs)
        except DataError:
            return ""


class Finder:
    """Searches a rendered text for each message in turn.

    A text may be trimmed, or escaped for JSON or HTML.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        """The rendered text."""
        self.begin = self.at = 0
        """Start and end of the last message."""
        self.dropped = 0
        """Number of messages without their reasoning."""

    def find_next(self, message: Message, where: str, *, keeps_reasoning: bool = False) -> None:
        """Find the next message and move to its end.

        Args:
            message: the next message.
            where: its name in errors.
            keeps_reasoning: whether missing reasoning is an error; otherwise it is counted.

        Raises:
            DataError: the template leaves out a text of the message.
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

    def contains(self, message: Message, begin: int) -> bool:
        """Whether all texts of a message come after `begin`."""
        return all(self._find(text, begin) for each in visible(message) if (text := each.strip()))

    def check_tools(self, tools: Json) -> None:
        """Check that the name of each tool is in the text; errors as in `find_next`."""
        for function in calls_of({"tool_calls": tools}):
            if isinstance(name := function.get("name"), str) and not self._find(name, 0):
                _left_out(name, "the row's tools")

    def _find(self, text: str, begin: int) -> tuple[int, int] | None:
        place = self.text.find(text, begin)
        found = (place, place + len(text)) if place >= 0 else None
        if found and place - begin <= len(text):  # an escaped form is longer and does not fit before it
            return found
        for escaped in _escaped(text):
            place = self.text.find(escaped, begin, found[0] if found else None)
            found = (place, place + len(escaped)) if place >= 0 else found
        return found


def _escaped(text: str) -> Iterator[str]:
    from markupsafe import escape

    ways = (json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1], str(escape(text)))
    return (each for each in dict.fromkeys(ways) if each != text)


def _left_out(text: str, where: str) -> tuple[int, int]:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    raise DataError(
        f"{where}: the chat template leaves out {shown!r}. Every message must reach the model as it is written: change "
        "the row, or the model's chat_template.jinja"
    )


def join_answer(opened: str, answer: str) -> str:
    """Join a turn's opening and its answer; if both open the thinking, keep one `<think>`."""
    head = opened.rstrip()
    both = head.endswith("<think>") and answer.lstrip().startswith("<think>")
    return (head.removesuffix("<think>") if both else opened) + answer


def _as_parts(content: Json) -> Json:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_text_arguments(value: Message) -> Message:
    copied = dict(value)
    if isinstance(calls := copied.get("tool_calls"), list):
        copied["tool_calls"] = [_with_text_arguments(each) for each in calls if isinstance(each, dict)]
    elif isinstance(function := copied.get("function"), dict):
        copied["function"] = _with_text_arguments(function)
    elif "arguments" in copied:
        copied["arguments"] = json.dumps(copied["arguments"], ensure_ascii=False)
    return copied


KINDS = ("image", "video", "audio")
"""Kinds of media; each is also a key in its message part."""
_PLACEHOLDER = re.compile(f"<({'|'.join(KINDS)})>")


def place_media(messages: Sequence[Message], media: Mapping[str, Sequence[Json]]) -> list[Message]:
    """Return the messages with items for all placeholders; DataError if their numbers differ. Lists stay unchanged."""
    left = {kind: list(items) for kind, items in media.items()}
    placed: list[Message] = []
    for message in messages:
        content = message.get("content")
        placed.append({**message, "content": _parts(content, left)} if isinstance(content, str) else dict(message))
    if not any(isinstance(message.get("content"), list) for message in messages):
        for kind, items in left.items():
            if items:
                count = len(media[kind])
                raise DataError(f"{count} of {kind}, but only {count - len(items)} times <{kind}> in the prompt")
    return placed


def _parts(text: str, left: Mapping[str, list[Json]]) -> Json:
    if not _PLACEHOLDER.search(text):
        return text
    parts: list[Json] = []
    for number, piece in enumerate(_PLACEHOLDER.split(text)):
        if number % 2 == 0:
            parts += [{"type": "text", "text": piece}] if piece else []
        elif piece not in left:
            parts.append({"type": "text", "text": f"<{piece}>"})  # a kind without a column is plain text
        elif left[piece]:
            item = left[piece].pop(0)
            parts.append(item if isinstance(item, dict) else {"type": piece, piece: item})
        else:
            raise DataError(f"the prompt says <{piece}> more often than the row has one")
    return parts
