"""Dialogs: rows of a file as the token ids that finetuning trains on, the assistant's words marked.

reader = DialogReader(tokenizer, RowFormat(input_key="messages", apply_chat_template=True))
[dialog] = reader.read([Path("train.jsonl")])
dialog.loss_mask                     # 1 where the assistant speaks, its end token included
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from slime_core.data.files import read_rows
from slime_core.data.rows import Row
from slime_core.data.tokenizer import check_template_kwargs, read_batched, with_bos
from slime_core.errors import DataError
from slime_core.roles import RowFormat, Tokenizer
from slime_core.sample import Json, Message

_COUNTED_AS_PROMPT = "the words before the assistant's first are the prompt"


@dataclass(frozen=True, slots=True)
class Dialog:
    """One row."""

    where: str
    """File and line."""
    prompt: Sequence[int]
    """Ids before the assistant's first words."""
    response: Sequence[int]
    """All ids from there on."""
    loss_mask: Sequence[int]
    """1 at the assistant's, [len(response)]."""


class DialogReader:
    """Reads rows of chat messages, or of a prompt and a response.

    Each of the assistant's turns is encoded by itself after what the chat template puts before it, as when it is
    generated, and counts up to its first end token; what the template puts after that is not trained on.
    """

    def __init__(self, tokenizer: Tokenizer, form: RowFormat) -> None:
        """With a `label_key`, the prompt and the response are columns of their own; else all is in `input_key`."""
        self._tokenizer, self._form = tokenizer, form

    def read(self, paths: Sequence[Path]) -> list[Dialog]:
        """All rows of all files, in order.

        Raises:
            ConfigError: the chat template never reads one of the format's arguments.
            DataError: a row cannot be used; names its file and line.
            ModelError: the model has no chat template, and one is asked for.
        """
        check_template_kwargs(self._form, self._tokenizer)
        rows = (row for path in paths for row in read_rows(path))
        return [dialog for _, dialog in read_batched(rows, self._dialog, self._tokenizer)]

    def _dialog(self, row: Row) -> Dialog:
        form = self._form
        given = _column(row, form.input_key)
        response = None if form.label_key is None else _text(row, form.label_key)
        if not form.apply_chat_template:
            if response is None:
                raise DataError(
                    f"{row.where}: without apply_chat_template a row is a prompt and a response: give label_key, the "
                    "column of the response"
                )
            end = min(self._tokenizer.eos_token_ids)
            words = self._tokenizer.encode(response)
            prompt = self._tokenizer.encode(with_bos(_text(row, form.input_key), self._tokenizer))
            return _checked(row, prompt, [*words, end], [1] * (len(words) + 1))
        messages = _messages(row, given)
        if response is not None:
            messages = [*messages, {"role": "assistant", "content": response}]
        return self._turns(row, messages, row.values.get(form.tool_key))

    def _turns(self, row: Row, messages: Sequence[Message], tools: Json) -> Dialog:
        answers = [place for place, each in enumerate(messages) if each.get("role") == "assistant"]
        if not answers:
            raise DataError(f"{row.where}: none of its messages is the assistant's, so there is nothing to train on")
        texts = [""]
        for place in answers:
            texts.append(self._rendered(messages[:place], tools, prompt=True))
            texts.append(self._rendered(messages[: place + 1], tools, prompt=False))
        parts = []
        for turn, (before, after) in enumerate(pairwise(texts)):
            if not after.startswith(before):
                raise DataError(
                    f"{row.where}: the chat template writes message {answers[max(0, turn - 1) // 2]} otherwise when "
                    "others follow it; make a row of each of the assistant's turns, ending with it"
                )
            parts.append(self._tokenizer.encode(after[len(before) :]))
        response, mask = list[int](), list[int]()
        for number, ids in enumerate(parts[1:]):
            spoken = self._spoken(ids) if number % 2 == 0 else 0
            response += ids
            mask += [1] * spoken + [0] * (len(ids) - spoken)
        last = len(mask) - mask[::-1].index(1) if 1 in mask else 0
        return _checked(row, parts[0], response[:last], mask[:last])

    def _spoken(self, ids: Sequence[int]) -> int:
        """Ids up to the first end token."""
        return next((place + 1 for place, each in enumerate(ids) if each in self._tokenizer.eos_token_ids), len(ids))

    def _rendered(self, messages: Sequence[Message], tools: Json, *, prompt: bool) -> str:
        kwargs = {**(self._form.apply_chat_template_kwargs or {}), "add_generation_prompt": prompt}
        return self._tokenizer.apply_chat_template(messages, tools, kwargs)


def _checked(row: Row, prompt: Sequence[int], response: Sequence[int], mask: Sequence[int]) -> Dialog:
    if not prompt:
        raise DataError(f"{row.where}: its prompt is empty; {_COUNTED_AS_PROMPT}")
    if not response:
        raise DataError(f"{row.where}: its response is empty")
    return Dialog(row.where, prompt, response, mask)


def _column(row: Row, key: str) -> Json:
    if key not in row.values:
        raise DataError(f"{row.where}: no column {key!r}; the row has {', '.join(map(repr, row.values)) or 'none'}")
    return row.values[key]


def _text(row: Row, key: str) -> str:
    value = _column(row, key)
    if not isinstance(value, str):
        raise DataError(f"{row.where}: column {key!r} must be a text, got {type(value).__name__}")
    return value


def _messages(row: Row, given: Json) -> list[Message]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[Message] = []
    for each in given if isinstance(given, list) else [None]:
        if not isinstance(each, Mapping) or not isinstance(each.get("role"), str):
            raise DataError(f"{row.where}: a dialog is a text or a list of messages with role and content")
        messages.append(dict(each))
    return messages
