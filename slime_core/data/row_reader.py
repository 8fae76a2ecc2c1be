"""Turns rows of prompt files into prompts, and counts the rows that are left out.

Example:

    RowReader(RowFormat(label_key="answer"), tokenizer).read(Row("train.jsonl:3", {"input": "2+2?", "answer": "4"}))
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from slime_core.data.rendering import Renderer, place_media
from slime_core.data.rows import BadRow, Row, messages_in, read_messages, read_tools, refuse_media
from slime_core.data.tokenizer import HfTokenizer, with_bos
from slime_core.errors import DataError
from slime_core.roles import RowFormat, Tokenizer
from slime_core.sample import Json, Message

ReadT = TypeVar("ReadT")
CHOICE_KEYS = {"rm_type": "reward", "custom_rm_path": "reward", "generate_function_path": "generator"}
"""Metadata keys that choose a part for a row's samples, with slime's names, and the role of each."""


class Prompt(NamedTuple):
    """One usable row."""

    prompt: str | list[Message]
    """Text, or messages that are not rendered."""
    label: Json
    """The gold answer."""
    metadata: dict[str, Json]
    """The row's metadata; tool definitions are its "tools"."""
    media: dict[str, Json] | None
    """Media by kind, as in the row."""


class TooLong(NamedTuple):
    """A row whose prompt is longer than `max_prompt_len`."""

    tokens: int


Read = tuple[Prompt | TooLong | BadRow, bool]
"""A row's prompt, or why it has none; and whether the chat template left out reasoning of earlier turns."""


class RowReader:
    """Reads rows of one format."""

    def __init__(self, row_format: RowFormat, tokenizer: Tokenizer) -> None:
        """Set the format, and the tokenizer whose chat template and lengths apply."""
        self._format, self._tokenizer = row_format, tokenizer
        self._renderer = Renderer(tokenizer, row_format.apply_chat_template_kwargs)
        self.needed = tuple(filter(None, (row_format.input_key, row_format.label_key)))
        """Columns that every row must have."""
        self.optional = row_format.metadata_key, row_format.tool_key, *(row_format.multimodal_keys or {}).values()
        """Columns that are read where they exist."""

    def read(self, row: Row | BadRow) -> Read:
        """Return the row's prompt, or why it has none."""
        return read_row(row, self._prompt_of)

    def read_all(self, rows: Iterable[Row | BadRow]) -> Iterator[tuple[Row | BadRow, Read]]:
        """Yield each row with its `read` result, in order."""
        if isinstance(self._tokenizer, HfTokenizer) and self._tokenizer.template:
            return self._tokenizer.template.read_rows(rows, self.read)
        return ((row, self.read(row)) for row in rows)

    def _prompt_of(self, row: Row) -> tuple[Prompt | TooLong, bool]:
        metadata, dropped = self._metadata(row), False
        label = self._label(row)
        prompt, media = self._with_media(row, self._prompt(row))
        if isinstance(prompt, str) and not self._format.apply_chat_template:
            prompt = with_bos(prompt, self._tokenizer)
        limit = self._format.max_prompt_len
        text = prompt if isinstance(prompt, str) else ""
        if self._format.apply_chat_template and media is None:
            refuse_media(as_messages(prompt))
        if self._format.apply_chat_template or (limit is not None and not text):
            found = self._renderer.prompt(as_messages(prompt), metadata.get("tools"))
            text, dropped = found.text, found.dropped > 0
        if limit is not None and (tokens := len(self._tokenizer.encode(text))) > limit:
            return TooLong(tokens), dropped
        return Prompt(text if self._format.apply_chat_template else prompt, label, metadata, media), dropped

    def _label(self, row: Row) -> Json:
        if (key := self._format.label_key) is None:
            return None
        values, place = row.values, key
        while place not in values and isinstance(inner := values.get(place.partition(".")[0]), dict):
            values, place = inner, place.partition(".")[2]
        label = column(row._replace(values=values), place, f"--{self._format.flag_prefix}label-key")
        if label is None:
            raise DataError(f"{key!r} is null, so nothing can be scored against it")
        return label

    def _prompt(self, row: Row) -> str | list[Message]:
        key, final = self._format.input_key, self._format.final_assistant_message
        prompt = read_dialog(row, key, f"--{self._format.flag_prefix}input-key")
        if isinstance(prompt, str) or prompt[-1]["role"] != "assistant":
            return prompt
        if final == "refuse":
            raise DataError(
                f"{key!r} ends with an assistant message. Remove it, or set final_assistant_message: "
                '"cut" leaves it out (it is the answer), "continue" has the model continue it'
            )
        if final == "continue" and not self._format.apply_chat_template:
            raise DataError('final_assistant_message = "continue" needs apply_chat_template = true')
        while final == "cut" and prompt and prompt[-1]["role"] == "assistant":
            prompt = prompt[:-1]
        if not prompt:
            raise DataError(f"{key!r} has only assistant messages, so nothing is left after cutting them")
        return prompt

    def _metadata(self, row: Row) -> dict[str, Json]:
        key = self._format.metadata_key
        given = row.values.get(key)
        if given is not None and not isinstance(given, dict):
            raise DataError(f"{key!r} must be an object, got {type(given).__name__}")
        metadata = dict(given or {})
        for naming in CHOICE_KEYS:
            if not isinstance(name := metadata.get(naming), str | None):
                raise DataError(f"{key}.{naming} must be a name, got {type(name).__name__}")
        if (tools := read_tools(row.values.get(self._format.tool_key), self._format.tool_key)) is not None:
            metadata["tools"] = tools
        elif self._format.apply_chat_template and metadata.get("tools") is not None:
            metadata["tools"] = read_tools(metadata["tools"], f"{key}.tools")
        return metadata

    def _with_media(self, row: Row, prompt: str | list[Message]) -> tuple[str | list[Message], dict[str, Json] | None]:
        if not self._format.multimodal_keys:
            return prompt, None
        media = dict[str, list[Json]]()
        for kind, key in self._format.multimodal_keys.items():
            items = row.values.get(key)
            media[kind] = items if isinstance(items, list) else [] if items is None else [items]
        placed = place_media(as_messages(prompt), media)
        found: dict[str, Json] = {kind: items for kind, items in media.items() if items}
        return (placed, found) if found else (prompt, None)


def read_row(
    row: Row | BadRow, read: Callable[[Row], tuple[ReadT | TooLong | BadRow, bool]]
) -> tuple[ReadT | TooLong | BadRow, bool]:
    """Return the result of `read` on a row, or a bad row if it raises."""
    if isinstance(row, BadRow):
        return row, False
    try:
        return read(row)
    except DataError as problem:
        return BadRow(f"{row.where}: {problem}"), False
    except RecursionError:
        return BadRow(f"{row.where}: nested too deeply"), False


def column(row: Row, key: str, flag: str) -> Json:
    """Return the value of a required column; if it is missing, the DataError lists the row's columns."""
    if key not in row.values:
        keys = ", ".join(row.values) or "no keys at all"
        inside = [f"{each}.{key}" for each, held in row.values.items() if isinstance(held, dict) and key in held]
        if inside and flag.endswith("label-key"):  # only this key may be dotted
            raise DataError(f"no key {key!r}; the row has it in a column: give {flag} {' or '.join(inside)}")
        raise DataError(f"no key {key!r}; the row has {keys}: give {flag} one of these")
    return row.values[key]


def read_dialog(row: Row, key: str, flag: str) -> str | list[Message]:
    """Return a column with a text, a list of messages, or such a list as JSON; DataError for other values."""
    value = column(row, key, flag)
    if isinstance(value, str) and value:
        return value if (found := messages_in(value)) is None else read_messages(found, key)
    if isinstance(value, list) and value:
        return read_messages(value, key)
    got = "nothing" if value in ("", [], None) else type(value).__name__
    raise DataError(f"{key!r} must be a text or a list of chat messages, got {got}")


def as_messages(prompt: str | list[Message]) -> list[Message]:
    """Return a text as a user message; messages stay unchanged."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


SHOWN = 3
"""Most bad rows that an error or a note quotes."""


class SkippedRows:
    """Counts of the rows of a data set that were left out."""

    def __init__(self, row_format: RowFormat, kind: str = "prompts") -> None:
        """Start at zero; `kind` names what `max_prompt_len` limits."""
        self._format, self._kind = row_format, kind
        self.bad, self.too_long = 0, 0
        self.shortest: int | None = None
        """Tokens of the shortest row that is too long."""
        self.without_reasoning = 0
        """Usable rows without the reasoning of earlier turns, which the chat template left out."""
        self._first = list[str]()

    def count(self, row: BadRow | TooLong) -> None:
        """Count a row that is left out."""
        if isinstance(row, TooLong):
            self.too_long += 1
            self.shortest = row.tokens if self.shortest is None else min(self.shortest, row.tokens)
            return
        self.bad += 1
        self._first = [*self._first, row.why][:SHOWN]

    def check(self, name: str, rows: int) -> None:
        """Check that there are not too many bad rows.

        Args:
            name: name of the data set.
            rows: number of rows read, including left-out ones.

        Raises:
            DataError: there are more bad rows than `max_bad_row_rate` allows.
        """
        limit = self._format.max_bad_row_rate
        if self.bad > limit * rows:
            listed = "\n  ".join(self._first)
            other = "label_key, reward or file" if self._format.label_key else "file"
            raise DataError(
                f"{name}: {self.bad} of {rows} rows are bad, more than max_bad_row_rate = {limit:g} allows; the first:"
                f"\n  {listed}\nCorrect or shorten them, or use another {other}."
            )

    def none_usable(self, name: str, rows: int) -> str:
        """Return why not one of `rows` rows of a data set can be used."""
        if not rows:
            return "it has no rows"
        if self.shortest is None:
            return f"not one of {rows} rows can be used; {self.notes(name)[0]}"
        return (
            f"all {self.too_long} prompts are longer than {self._format.max_prompt_len} tokens, the shortest has "
            f"{self.shortest}: raise --rollout-max-prompt-len"
        )

    def notes(self, name: str) -> list[str]:
        """Return a sentence about the rows that were left out, and one about the reasoning."""
        parts = []
        if self.too_long:
            parts.append(f"{self.too_long} {self._kind} longer than {self._format.max_prompt_len} tokens")
        if self.bad:
            parts.append(f"{self.bad} bad row{'s' if self.bad > 1 else ''}, the first: {self._first[0]}")
        found = [f"{name}: left out {'; '.join(parts)}"] if parts else []
        if count := self.without_reasoning:
            rows = f"{count} row{'s' if count > 1 else ''}"
            found.append(f"{name}: the chat template leaves the reasoning of earlier turns out of {rows}")
        return found
