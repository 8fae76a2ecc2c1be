"""RowReader: a row to a prompt: columns found and checked, media placed, chat template rendered, length measured.

Example:

    RowReader(RowFormat(label_key="answer"), tokenizer).read(Row("train.jsonl:3", {"input": "2+2?", "answer": "4"}))
"""

import json
from dataclasses import dataclass
from typing import NamedTuple, cast

from slime_core.data.multimodal import collect_media, place_media
from slime_core.data.rows import BadRow, Row
from slime_core.errors import DataError
from slime_core.roles import RowFormat, Tokenizer
from slime_core.sample import Json, Message

NAMING = {"rm_type": "reward", "custom_rm_path": "reward", "generate_function_path": "generator"}
"""Keys of a row's metadata that name a choice for its samples, in slime's words, and the role of each."""


class Prompt(NamedTuple):
    """One usable row."""

    prompt: str | list[Message]
    """Text, or messages that were not rendered."""
    label: Json
    """The gold answer."""
    metadata: dict[str, Json]
    """The row's metadata; tool definitions are its "tools"."""
    media: dict[str, Json] | None
    """Its media by kind, as the row gave them."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A row whose prompt is longer than `max_prompt_len`."""

    tokens: int
    """How long it is."""


class RowReader:
    """Reads rows of one format."""

    def __init__(self, row_format: RowFormat, tokenizer: Tokenizer) -> None:
        """Take the format and the tokenizer whose chat template and lengths count."""
        self._format = row_format
        self._tokenizer = tokenizer

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that every row must have."""
        return tuple(filter(None, (self._format.input_key, self._format.label_key)))

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that are read where they exist."""
        media = (self._format.multimodal_keys or {}).values()
        return (self._format.metadata_key, self._format.tool_key, *media)

    def read(self, row: Row) -> Prompt | TooLong | BadRow:
        """The row's prompt, or why there is none."""
        try:
            return self._read(row)
        except _Unusable as problem:
            return BadRow(f"{row.where}: {problem}")

    def _read(self, row: Row) -> Prompt | TooLong:
        metadata = self._metadata(row)
        label = self._label(row)
        prompt, media = self._with_media(row, self._prompt(row))
        if self._format.apply_chat_template:
            prompt = self._render(prompt, metadata)
        limit = self._format.max_prompt_len
        if limit is not None:
            text = prompt if isinstance(prompt, str) else self._render(prompt, metadata)
            if (tokens := len(self._tokenizer.encode(text))) > limit:
                return TooLong(tokens)
        return Prompt(prompt, label, metadata, media)

    def _column(self, row: Row, key: str, flag: str) -> Json:
        if key not in row.values:
            keys = ", ".join(row.values) or "no keys at all"
            raise _Unusable(f"no key {key!r}; the row has {keys}: give {flag} one of these")
        return row.values[key]

    def _label(self, row: Row) -> Json:
        if (key := self._format.label_key) is None:
            return None
        values, place = row.values, key
        while place not in values and isinstance(inner := values.get(place.partition(".")[0]), dict):
            values, place = inner, place.partition(".")[2]
        label = self._column(Row(row.where, values), place, f"--{self._format.flag_prefix}label-key")
        if label is None:
            raise _Unusable(f"{key!r} is null, so nothing can be scored against it")
        return label

    def _prompt(self, row: Row) -> str | list[Message]:
        """A prompt of one of the two accepted shapes."""
        key = self._format.input_key
        value = self._column(row, key, f"--{self._format.flag_prefix}input-key")
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            if all(isinstance(each, dict) and isinstance(each.get("role"), str) for each in value):
                return cast(list[Message], value)
            raise _Unusable(f'{key!r} is a list, but not of messages {{"role": ..., "content": ...}}')
        got = "nothing" if value in ("", [], None) else type(value).__name__
        raise _Unusable(f"{key!r} must be a text or a list of chat messages, got {got}")

    def _metadata(self, row: Row) -> dict[str, Json]:
        key = self._format.metadata_key
        given = row.values.get(key)
        if given is not None and not isinstance(given, dict):
            raise _Unusable(f"{key!r} must be an object, got {type(given).__name__}")
        metadata = dict(given or {})
        for naming in NAMING:
            if not isinstance(name := metadata.get(naming), str | None):
                raise _Unusable(f"{key}.{naming} must be a name, got {type(name).__name__}")
        if (tools := self._tools(row)) is not None:
            metadata["tools"] = tools
        return metadata

    def _tools(self, row: Row) -> Json:
        key = self._format.tool_key
        tools = row.values.get(key)
        if isinstance(tools, str):  # columns of a parquet file cannot hold objects of different shapes
            try:
                tools = json.loads(tools)
            except ValueError as error:
                raise _Unusable(f"{key!r} is a text, but not JSON: {error}") from None
        if not isinstance(tools, list | None):
            raise _Unusable(f"{key!r} must be a list of tool definitions, got {type(tools).__name__}")
        return tools

    def _with_media(self, row: Row, prompt: str | list[Message]) -> tuple[str | list[Message], dict[str, Json] | None]:
        if not self._format.multimodal_keys:
            return prompt, None
        media = collect_media(row.values, self._format.multimodal_keys)
        try:
            placed = place_media(_as_messages(prompt), media)
        except ValueError as error:
            raise _Unusable(str(error)) from None
        held: dict[str, Json] = {kind: items for kind, items in media.items() if items}
        return (placed, held) if held else (prompt, None)

    def _render(self, prompt: str | list[Message], metadata: dict[str, Json]) -> str:
        kwargs = self._format.apply_chat_template_kwargs
        try:
            text = self._tokenizer.apply_chat_template(_as_messages(prompt), metadata.get("tools"), kwargs)
        except DataError as error:
            raise _Unusable(str(error)) from None
        if not text.strip():
            raise _Unusable("the chat template makes nothing of its messages")
        return text


class _Unusable(Exception):
    """Why a row is a bad row."""


def _as_messages(prompt: str | list[Message]) -> list[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
