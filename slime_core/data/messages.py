"""Chat messages and tool definitions of a row, in the one form that training, finetuning and evaluation pass on.

Content is a text (or a list of parts, if there is media among them), arguments of tool calls are a mapping, and no
key is null that only fills an Arrow struct.

Example:

    read_messages([{"role": "user", "content": [{"type": "text", "text": "2+3?"}]}], "prompt")
    # [{"role": "user", "content": "2+3?"}]
"""

import json
import re
from collections.abc import Sequence

from slime_core.data.rows import parse_json
from slime_core.errors import DataError
from slime_core.sample import Json, Message

ROLES = {"human": "user", "gpt": "assistant"}
"""Roles of ShareGPT files, which chat templates write as they are, and what the row must say instead."""
REASONING = ("reasoning_content", "reasoning", "thinking")
"""Keys under which templates look for what the model thought."""
MEDIA = ("image", "video", "audio", "image_url", "video_url", "audio_url", "input_audio")
"""Types of parts that are no text."""
SWITCHES = re.compile("/(?:no_)?think")
"""Words of a system message that some templates obey and leave out."""
_JSON_OF_MESSAGES = re.compile(r'\s*\[\s*\{\s*"(role|content)"')
TOOL_ROLES = ("tool", "function")
"""Roles of messages that hold what a tool returned."""


class JsonText(str):
    """JSON of an Arrow column of the type Json."""

    __slots__ = ()


def arrow_value(value: Json, *, drop_nulls: bool) -> Json:
    """A value of an Arrow column, its JSON parsed; `drop_nulls` drops the keys that Arrow added to structs."""
    if isinstance(value, JsonText):
        return _parsed(value, "the column")
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if each is not None or not drop_nulls}
        return {key: arrow_value(each, drop_nulls=drop_nulls) for key, each in kept.items()}
    return [arrow_value(each, drop_nulls=drop_nulls) for each in value] if isinstance(value, list) else value


def read_messages(value: list[Json], key: str) -> list[Message]:
    """The messages of a column.

    Raises:
        DataError: names the message, counted from 0.
    """
    return [_message(each, f"message {number} of {key!r}") for number, each in enumerate(value)]


def messages_in(text: str) -> list[Json] | None:
    """The messages of which a text is the JSON; None for any other text."""
    if not _JSON_OF_MESSAGES.match(text):
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    return (
        found if isinstance(found, list) and all(isinstance(each, dict) and "role" in each for each in found) else None
    )


def read_tools(value: Json, key: str) -> list[Json] | None:
    """The tool definitions of a column: objects, or their JSON; None for none.

    Raises:
        DataError: names the tool, counted from 0.
    """
    value = _parsed(value, f"{key!r}") if isinstance(value, str) else value
    if not isinstance(value, list | None):
        raise DataError(f"{key!r} must be a list of tool definitions, got {_kind(value)}")
    return [_tool(each, f"tool {number} of {key!r}") for number, each in enumerate(value)] if value else None


def visible(message: Message) -> list[str]:
    """What a message says: the texts of its content, names and arguments of its tool calls, without its reasoning."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in parts]
    if message["role"] == "assistant" and "</think>" in texts[0]:
        texts[0] = texts[0].rpartition("</think>")[2]
    if message["role"] == "system":
        texts = [piece for text in texts for piece in SWITCHES.split(text)]
    for call in calls_of(message):
        texts += [str(call["name"]), *_leaves(call.get("arguments"))]
    return texts


def refuse_media(messages: Sequence[Message]) -> None:
    """See that no message has a part that is no text.

    Raises:
        DataError: one has, and templates would write its description as text.
    """
    for number, message in enumerate(messages):
        for part in content if isinstance(content := message.get("content"), list) else []:
            if _text(part) is None:
                kind = str(part.get("type", "media")) if isinstance(part, dict) else "media"
                raise DataError(
                    f"message {number} ({message['role']}) has a part of type {kind!r}, which this run cannot give to "
                    "the model: remove it, or name the column of such media in multimodal_keys for a generator that "
                    "reads them"
                )


def reasoning(message: Message) -> list[str]:
    """What an assistant's message thinks: under a key, or in `<think>` tags."""
    if message["role"] != "assistant":
        return []
    content, found = message.get("content"), [str(message.get(key, "")) for key in REASONING]
    if isinstance(content, str) and "</think>" in content:
        found += content.rpartition("</think>")[0].replace("</think>", "<think>").split("<think>")
    return found


def calls_of(message: Message) -> list[dict[str, Json]]:
    """Name and arguments of each tool call."""
    calls = message.get("tool_calls")
    found = [call.get("function", call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [each for each in found if isinstance(each, dict)]


def _message(value: Json, where: str) -> Message:
    shape = '{"role": ..., "content": ...}'
    message: Message = _without_nulls(_object(value, where, shape))
    if not isinstance(role := message.get("role"), str):
        got = f"{where} must be an object {shape}, got the keys {', '.join(message) or 'of an empty object'}"
        names = " and ".join(f"{theirs} by {ours}" for theirs, ours in ROLES.items())
        hint = f". For from write role, for value content, and replace {names}" if "from" in message else ""
        raise DataError(got + hint)
    where = f"{where} ({role})"
    if role in ROLES:
        raise DataError(f"{where}: chat templates know no such role; write {ROLES[role]!r}")
    if "function_call" in message:
        raise DataError(f"{where} has function_call, which chat templates do not read; write tool_calls")
    calls = message.pop("tool_calls", None)
    calls = _parsed(calls, f"tool_calls of {where}") if isinstance(calls, str) else calls
    if not isinstance(calls, list | None):
        raise DataError(f"tool_calls of {where} must be a list, got {_kind(calls)}")
    if calls:
        message["tool_calls"] = [_call(each, f"call {number} of {where}") for number, each in enumerate(calls)]
    message["content"] = _content(message, where)
    return message


def _content(message: Message, where: str) -> Json:
    content = message.get("content")
    is_tool = message["role"] in TOOL_ROLES
    if isinstance(content, str):
        return content
    if content in (None, []) and any(message.get(key) for key in ("tool_calls", *REASONING)):
        return ""
    if isinstance(content, list) and content and all(_is_part(part, is_tool) for part in content):
        if all(_text(part) is not None for part in content):
            return "".join(_text(part) or "" for part in content)
        return [_without_nulls(part) if isinstance(part, dict) else {"type": "text", "text": part} for part in content]
    if is_tool and isinstance(content, dict | list):
        return json.dumps(content, ensure_ascii=False)
    got = "nothing" if content is None else _kind(content)
    raise DataError(f"the content of {where} must be a text or a list of parts with text, got {got}")


def _is_part(part: Json, is_tool: bool) -> bool:
    """Whether it is a text or media; an array of texts that a tool returned is its result, not parts."""
    if isinstance(part, dict):
        return _text(part) is not None or part.get("type") in MEDIA or any(kind in part for kind in MEDIA)
    return isinstance(part, str) and not is_tool


def _text(part: Json) -> str | None:
    if isinstance(part, dict):
        part = part.get("text") if part.get("type") in (None, "text") else None
    return part if isinstance(part, str) else None


def _call(value: Json, where: str) -> Json:
    """A tool call with its arguments as a mapping."""
    shape = '{"name": ..., "arguments": ...}'
    call = _without_nulls(_object(value, where, shape))
    if "function" in call:
        return {**call, "function": _call(call["function"], where)}
    if not isinstance(call.get("name"), str):
        raise DataError(f"{where} must be an object {shape}, got the keys {', '.join(call)}")
    arguments = call.get("arguments")
    return {**call, "arguments": _object(arguments, f"arguments of {where}", "") if arguments not in (None, "") else {}}


def _tool(value: Json, where: str) -> Json:
    """A tool definition whose parts may be JSON, too."""
    tool = _object(value, where, "")
    parts = [key for key in ("function", "parameters") if isinstance(tool.get(key), str | dict)]
    return {**tool, **{key: _tool(tool[key], f"{key} of {where}") for key in parts}}


def _object(value: Json, where: str, shape: str) -> dict[str, Json]:
    value = _parsed(value, where) if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object {shape}".rstrip() + f", got {_kind(value)}")
    return value


def _without_nulls(value: dict[str, Json]) -> dict[str, Json]:
    return {key: each for key, each in value.items() if each is not None}


def _leaves(value: Json) -> list[str]:
    """Texts and numbers in arguments; templates write true and null in their own ways."""
    if isinstance(value, dict | list):
        return [leaf for each in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(each)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _parsed(text: str, what: str) -> Json:
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{what} is a text, but not JSON: {error}") from None


def _kind(value: Json) -> str:
    return {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}.get(type(value), "a number")
