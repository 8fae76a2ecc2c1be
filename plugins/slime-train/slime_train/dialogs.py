"""Dialogs: rows of a file as the token ids that finetuning trains on, with a loss mask of the assistant's tokens.

Example:

    reader = DialogReader(tokenizer, RowFormat(input_key="messages", apply_chat_template=True))
    [dialog] = reader.read([Path("train.jsonl")])
    dialog.loss_mask                     # 1 where the assistant speaks, its end token included
"""

import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from slime_core.data import (
    Finder,
    HfTokenizer,
    Renderer,
    check_template_kwargs,
    with_bos,
)
from slime_core.data.rendering import MARK, join_answer
from slime_core.data.row_reader import SkippedRows, TooLong, as_messages, column, read_dialog, read_row
from slime_core.data.rows import Row, read_tools, reasoning, refuse_media, scan_rows
from slime_core.errors import DataError
from slime_core.roles import RowFormat
from slime_core.sample import Json, Message


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


@dataclass(frozen=True, slots=True)
class _Turn:
    start: int
    """Position where its generation would begin."""
    end: int
    """Position where its text ends; its end token follows."""
    message: int
    """Its place in the dialog."""


class DialogReader:
    """Reads rows of chat messages, or of a prompt and a response.

    The chat template renders the whole dialog once, and the text is encoded. Each assistant turn is trained on from the
    position where its generation would begin through its first end token. A template may change earlier turns, such as
    remove their reasoning; they are trained on as rendered. The last turn keeps its reasoning.

    The prompt is encoded alone, as in generation. If a token of the whole text crosses the beginning of a turn, the
    pieces between the beginnings are encoded separately.
    """

    def __init__(self, tokenizer: HfTokenizer, form: RowFormat, positions: int | None = None) -> None:
        """Configure the reader.

        Args:
            tokenizer: the model's.
            form: with a `label_key`, prompt and response are in two columns; else the whole dialog is in `input_key`.
                Skips dialogs of more tokens than its `max_prompt_len`.
            positions: longest text of the model in tokens; a longer dialog is a bad row.
        """
        self._tokenizer, self._form, self._positions = tokenizer, form, positions
        self._renderer = Renderer(tokenizer, form.apply_chat_template_kwargs)
        self.notes: list[str] = []
        """A sentence about each kind of row that was left out."""

    def read(self, paths: Sequence[Path]) -> list[Dialog]:
        """All rows of all files, in order.

        Raises:
            ConfigError: the chat template never reads one of the format's arguments.
            DataError: a file cannot be read, or rows are bad; names file and line.
            ModelError: the model has no chat template, but the run uses one.
        """
        form, dialogs = self._form, list[Dialog]()
        check_template_kwargs(form, self._tokenizer)
        needed = [form.input_key, *([form.label_key] if form.label_key else [])]
        for path in paths:
            skipped, count = SkippedRows(form, "dialogs"), 0
            for row in scan_rows(path, needed, [form.tool_key]):
                found, dropped_reasoning = read_row(row, self._dialog)
                count += 1
                if isinstance(found, Dialog):
                    dialogs.append(found)
                    skipped.without_reasoning += dropped_reasoning
                else:
                    skipped.count(found)
            skipped.check(str(path), count)
            self.notes += skipped.notes(path.name)
        return dialogs

    def _dialog(self, row: Row) -> tuple[Dialog | TooLong, bool]:
        dialog, dropped_reasoning = self._whole(row)
        length, longest = len(dialog.prompt) + len(dialog.response), self._form.max_prompt_len
        if longest is not None and length > longest:
            return TooLong(length), dropped_reasoning
        if self._positions is not None and length > self._positions:
            raise DataError(
                f"{length} tokens, and the model has {self._positions} positions: shorten it, or set "
                f"rollout_max_context_len = {self._positions} to leave out longer rows"
            )
        return dialog, dropped_reasoning

    def _whole(self, row: Row) -> tuple[Dialog, bool]:
        form = self._form
        given = read_dialog(row, form.input_key, "--input-key")
        response = None if form.label_key is None else column(row, form.label_key, "--label-key")
        if not isinstance(response, str | None):
            raise DataError(f"{form.label_key!r} must be a text, got {type(response).__name__}")
        if form.apply_chat_template:
            messages = as_messages(given)
            if response is not None and messages[-1]["role"] == "assistant":
                raise DataError(
                    f"{form.input_key!r} ends with an answer, and label_key adds another: leave out label_key"
                )
            answer: list[Message] = [] if response is None else [{"role": "assistant", "content": response}]
            return self._turns(row, [*messages, *answer], read_tools(row.values.get(form.tool_key), form.tool_key))
        if response is None or not isinstance(given, str):
            raise DataError(
                "without apply_chat_template a row is a prompt and a response: give label_key, the column of the "
                "response, and input_key, the column of the prompt, both texts"
            )
        if not response:
            raise DataError("its response is empty")
        prompt = with_bos(given, self._tokenizer)
        ids, begins = self._encoded(prompt + response, [len(prompt)])
        start, end = bisect_left(begins, len(prompt)), min(self._tokenizer.eos_token_ids)
        return _dialog(row, [*ids, end], [0] * start + [1] * (len(ids) + 1 - start), start), False

    def _turns(self, row: Row, messages: Sequence[Message], tools: Json) -> tuple[Dialog, bool]:
        answers = [place for place, each in enumerate(messages) if each["role"] == "assistant"]
        if not answers:
            raise DataError("none of its messages is the assistant's, so there is nothing to train on")
        refuse_media(messages)
        finder, turns = Finder(_whole_dialog(self._renderer, messages, tools)), list[_Turn]()
        for place, message in enumerate(messages):
            start = self._start(finder, messages[: place + 1], tools) if place in answers else None
            finder.at = finder.at if start is None else start
            finder.find_next(
                message, f"message {place} ({message['role']})", keeps_reasoning=place == len(messages) - 1
            )
            if place in answers:
                start = len(finder.text[: finder.begin].rstrip(" ")) if start is None else start
                turns.append(_Turn(start, max(start, finder.at), place))
        finder.check_tools(tools)
        ids, begins = self._encoded(finder.text, [turn.start for turn in turns])
        starts = [bisect_left(begins, turn.start) for turn in turns]
        mask = [0] * len(ids)
        for turn, start, limit in zip(turns, starts, [*starts[1:], len(ids)], strict=True):
            end = bisect_left(begins, turn.end, start)
            places = (place + 1 for place in range(end, limit) if ids[place] in self._tokenizer.eos_token_ids)
            stop = next(places, 0) or bisect_left(begins, self._closing(finder.text, turn, messages, tools), end)
            mask[start:stop] = [1] * (stop - start)
        return _dialog(row, ids, mask, starts[0]), finder.dropped > 0

    def _start(self, finder: Finder, messages: Sequence[Message], tools: Json) -> int | None:
        """Where generation of the last of these messages would begin; None where nothing opens its turn.

        That is the end of the prompt which generation would have. If the template writes the messages before it
        differently now that others follow, it is the end of the next text that opens a turn.
        """
        *before, answer = messages
        prompt = self._renderer.text(before, tools, open_turn=True) if before else ""
        if before and finder.text.startswith(prompt) and len(prompt) >= finder.at:
            return len(prompt)
        opened, shared = self._opening
        place = finder.text.find(shared, finder.at) if shared else -1
        start = place + len(opened if finder.text.startswith(opened, place) else shared)
        return start if place >= 0 and finder.contains(answer, start) else None

    @cached_property
    def _opening(self) -> tuple[str, str]:
        """Texts that open an assistant turn: in a prompt, and in earlier turns (without thinking).

        Both are empty if the end of the user's turn opens it.
        """
        text = self._renderer.text
        question: list[Message] = [{"role": "user", "content": "x"}]
        answer: list[Message] = [{"role": "assistant", "content": MARK}]
        try:
            closed, opened = text(question, open_turn=False), text(question, open_turn=True)
            answered = text([*question, *answer, *question], open_turn=False)
        except DataError:
            return "", ""
        shared = _common_prefix(opened, answered)
        return (opened[len(closed) :], shared[len(closed) :]) if shared.startswith(closed) else ("", "")

    def _closing(self, text: str, turn: _Turn, messages: Sequence[Message], tools: Json) -> int:
        """End of a turn that the template renders without an end token: where it ends if rendered last."""
        if turn.message == len(messages) - 1:
            return len(text)
        closed = self._renderer.text(messages[: turn.message + 1], tools, open_turn=False)
        spoken = text[turn.start : turn.end]
        if not spoken or spoken not in closed:
            return turn.end
        return turn.end + len(_common_prefix(closed.rpartition(spoken)[2], text[turn.end :]))

    def _encoded(self, text: str, starts: Sequence[int]) -> tuple[list[int], list[int]]:
        """Ids of a text, and where each begins; no token reaches over a start."""
        ids, begins, ends = self._tokens(text, 0)
        bounds = [bisect_left(begins, start) for start in starts]
        if ids[: bounds[0]] == self._tokenizer.encode(text[: starts[0]]) and all(
            ends[bound - 1] <= start for bound, start in zip(bounds, starts, strict=True) if bound
        ):
            return ids, begins
        ids, begins = [], []
        for first, last in pairwise([0, *starts, len(text)]):
            more, places, _ = self._tokens(text[first:last], first)
            ids, begins = ids + more, begins + places
        return ids, begins

    def _tokens(self, text: str, offset: int) -> tuple[list[int], list[int], list[int]]:
        ids, spans = self._tokenizer.encode_with_offsets(text)
        return ids, [offset + begin for begin, _ in spans], [offset + end for _, end in spans]


def _dialog(row: Row, ids: Sequence[int], mask: Sequence[int], start: int) -> Dialog:
    if not start:
        raise DataError("its prompt is empty; the words before the assistant's first are the prompt")
    if 1 not in mask:
        raise DataError("its response is empty")
    last = len(mask) - mask[::-1].index(1)
    return Dialog(row.where, ids[:start], ids[start:last], mask[start:last])


def _whole_dialog(renderer: Renderer, messages: Sequence[Message], tools: Json = None) -> str:
    """The whole dialog, to train on: its last answer has its reasoning, also where the template drops it.

    Such a template is given what generation would make: the prompt, the answer as the row has it, and the end that
    the template writes. Errors as of `prompt`.
    """
    text, last = renderer.text(messages, tools, open_turn=False), messages[-1]
    answer = last["content"]
    if last["role"] != "assistant" or not isinstance(answer, str) or "</think>" not in answer or len(messages) < 2:
        return text
    opened, spoken = renderer.text(messages[:-1], tools, open_turn=True), answer.rpartition("</think>")[2].strip()
    written = text[len(_common_prefix(opened, text)) :]
    if not spoken or spoken not in written or all(each.strip() in written for each in reasoning(last)):
        return text
    return join_answer(opened, answer) + written.rpartition(spoken)[2]


def _common_prefix(one: str, other: str) -> str:
    return os.path.commonprefix([one, other])  # noqa: RUF071  # by character
