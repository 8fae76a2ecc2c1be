"""Bridge: extends a conversation by one turn without rendering its history again; the model's tokens stay as they are.

After an answer, a chat template writes the end of the assistant's turn, the next messages and the start of the next
turn. Only this suffix is encoded. A marker in place of the answer shows where the suffix begins. Each kind of turn is
proved first: on a separate test dialog, the suffix must equal what the template writes for the whole dialog.

Example:

    bridge = Bridge(tokenizer)
    text = bridge.suffix(anchor, tail, tools)     # None: this template changes earlier text: render all of it
    prompt = [*everything_so_far, *without_overlap(answer, tokenizer.encode(text))]
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from slime_agent_openai.message import Message, Role, Tool, ToolCall
from slime_core.data import Renderer
from slime_core.errors import DataError, ModelError
from slime_core.roles import Tokenizer
from slime_core.sample import Json

MARK = "qSENTINELq"  # Stands in for the model's answer; no template quotes or trims it
OVERLAP = 8  # Last tokens of a turn that the model may have generated itself
MAX_VARIANTS = 64  # Most sets of request arguments whose proofs are cached
NEEDS_TEMPLATE = "agents are trained on conversations, which a template writes"
_HEAD = (Message(Role.USER, "x"),)


@dataclass(frozen=True, slots=True)
class Kind:
    """Properties of a turn that decide whether and how it is bridged."""

    calls: int  # Tool calls in the answer; 2 means two or more
    has_text: bool  # Whether the answer also has text
    tail: tuple[Role, ...]  # Roles of the messages after the answer, in order
    tools: bool  # Whether tools are offered


class Strategy(Protocol):
    """What a template writes after an answer; None if this strategy cannot find it."""

    def __call__(self, bridge: "Bridge", anchor: Message, tail: Sequence[Message]) -> str | None: ...


class Bridge:
    """Bridges the turns of one chat template."""

    def __init__(self, tokenizer: Tokenizer, kwargs: Mapping[str, Json] | None = None) -> None:
        self._tokenizer, self._kwargs = tokenizer, dict(kwargs or {})
        self._renderer = Renderer(tokenizer, kwargs)
        self._proved: dict[Kind, Strategy | None] = {}
        self._call_ends: dict[tuple[int, bool], str | None] = {}
        self._variants: dict[str, Bridge] = {}

    def with_arguments(self, template: str) -> "Bridge":
        """The bridge for the same template with more arguments, a JSON object; empty: this bridge."""
        if not template:
            return self
        if template not in self._variants:
            if len(self._variants) >= MAX_VARIANTS:
                del self._variants[next(iter(self._variants))]
            self._variants[template] = Bridge(self._tokenizer, {**self._kwargs, **json.loads(template)})
        return self._variants[template]

    def whole(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, open_turn: bool = True) -> str:
        """All messages as the template renders them, and the start of the model's turn."""
        offered: Json = [tool.for_template for tool in tools] if tools else None
        rows = [message.for_template for message in messages]
        if any(message.calls for message in messages) and self._renderer.reads_text_arguments:
            rows = [message.with_text_arguments for message in messages]
        return self._tokenizer.apply_chat_template(rows, offered, self._kwargs, add_generation_prompt=open_turn)

    def suffix(self, anchor: Message, tail: Sequence[Message], tools: Sequence[Tool]) -> str | None:
        """What the template writes after an answer, up to the start of the next one; None if no strategy is proved."""
        kind = kind_of(anchor, tail, tools)
        strategy = self.proved(kind)
        try:
            return strategy(self, anchor, tail) if strategy is not None else None
        except DataError:  # the template refuses the marker in place of the answer
            return None

    def proved(self, kind: Kind) -> Strategy | None:
        """The strategy that is proved for this kind of turn; None if there is none."""
        if kind not in self._proved:
            strategies: tuple[Strategy, ...] = (_after_calls,) if kind.calls else (_after_text, _after_thought)
            self._proved[kind] = next((strategy for strategy in strategies if self._is_proved(strategy, kind)), None)
        return self._proved[kind]

    def _is_proved(self, strategy: Strategy, kind: Kind) -> bool:
        """Whether a strategy's suffixes match the template on whole test dialogs, with and without a system message."""
        answer, tail, tools = _dialog(kind)
        head = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "How many?"))
        try:
            return all(self._matches(strategy, begin, answer, tail, tools) for begin in (head, head[1:]))
        except (DataError, ModelError):
            return False

    def _matches(
        self,
        strategy: Strategy,
        head: Sequence[Message],
        answer: Message,
        tail: Sequence[Message],
        tools: Sequence[Tool],
    ) -> bool:
        suffix = strategy(self, answer, tail)
        whole = self.whole([*head, answer, *tail], tools)
        if not suffix or not whole.startswith(self.whole(head, tools, open_turn=False)) or not whole.endswith(suffix):
            return False
        if answer.text in suffix and answer.text:  # the template moves the answer's text behind its calls
            return False
        return self._ends_with(whole[: -len(suffix)], answer)

    def _ends_with(self, text: str, answer: Message) -> bool:
        if not answer.calls:
            return text.endswith(answer.text)
        alone = self.whole([*_HEAD, answer], open_turn=False)
        last = self._without_turn_end(alone[alone.rindex("Rhone") :]) if "Rhone" in alone else None
        return last is not None and text.endswith(last)

    @cached_property
    def turn_end(self) -> str:
        return _after_mark(self.whole([*_HEAD, Message(Role.ASSISTANT, MARK)], open_turn=False)) or ""

    def call_end(self, marked: Message, kind: tuple[int, bool]) -> str | None:
        """What closes the last argument and its call. The proofs show that all answers of a kind share it."""
        if kind not in self._call_ends:
            alone = _after_mark(self.whole([*_HEAD, marked], open_turn=False))
            self._call_ends[kind] = self._without_turn_end(alone) if alone is not None else None
        return self._call_ends[kind]

    def _without_turn_end(self, text: str) -> str | None:
        """The text of a turn without its end token, which may differ after calls and after text."""
        if text.endswith(self.turn_end):
            return text[: len(text) - len(self.turn_end)]
        ids = self._tokenizer.encode(text)
        end = next((place for place, token in enumerate(ids) if token in self._tokenizer.eos_token_ids), None)
        return None if end is None else self._tokenizer.decode(ids[:end], skip_special_tokens=False)


def kind_of(anchor: Message, tail: Sequence[Message], tools: Sequence[Tool]) -> Kind:
    """The kind of a turn."""
    roles = tuple(message.role for message in tail)
    return Kind(min(2, len(anchor.calls)), bool(anchor.text.strip()), roles, bool(tools))


def without_overlap(answer: Sequence[int], suffix: Sequence[int]) -> list[int]:
    """The suffix without the tokens that the model generated already, usually its end-of-turn token."""
    for size in range(min(OVERLAP, len(answer), len(suffix)), 0, -1):
        if list(answer[-size:]) == list(suffix[:size]):
            return list(suffix[size:])
    return list(suffix)


def _after_text(bridge: Bridge, anchor: Message, tail: Sequence[Message]) -> str | None:
    return _after_mark(bridge.whole([*_HEAD, Message(Role.ASSISTANT, MARK), *tail]))


def _after_thought(bridge: Bridge, anchor: Message, tail: Sequence[Message]) -> str | None:
    """The same, for templates that write an answer with reasoning differently."""
    return _after_mark(bridge.whole([*_HEAD, Message(Role.ASSISTANT, MARK, reasoning="r"), *tail]))


def _after_calls(bridge: Bridge, anchor: Message, tail: Sequence[Message]) -> str | None:
    """After tool calls: the text behind the marked argument, less what closes the argument and the call."""
    calls = tuple(ToolCall(call.id, call.name, f'{{"k": "{MARK}"}}') for call in anchor.calls)
    answer = Message(Role.ASSISTANT, anchor.text.strip(), calls=calls)
    call_end = bridge.call_end(answer, (min(2, len(calls)), bool(answer.text)))
    after = _after_mark(bridge.whole([*_HEAD, answer, *tail]))
    if after is None or call_end is None or not after.startswith(call_end):
        return None
    return after[len(call_end) :]


def _after_mark(text: str) -> str | None:
    return text[text.rindex(MARK) + len(MARK) :] if MARK in text else None


def _dialog(kind: Kind) -> tuple[Message, list[Message], tuple[Tool, ...]]:
    names = ("call_7f3a", "call_91bc")[: kind.calls]
    calls = tuple(
        ToolCall(name, "find_river", f'{{"city": "Lyon", "name": "{river}"}}')
        for name, river in zip(names, ("Saone", "Rhone")[-len(names) :] if names else (), strict=True)
    )
    answer = Message(Role.ASSISTANT, "Let me look it up." if kind.has_text or not calls else "", calls=calls)
    answer_ids = iter([*names, *names])
    tail = [_tail_message(role, answer_ids) for role in kind.tail]
    return answer, tail, (Tool("find_river", "Finds a river."),) if kind.tools else ()


def _tail_message(role: Role, answer_ids: Iterator[str]) -> Message:
    if role is Role.TOOL:
        return Message(role, "It is 813 km long.", answers=next(answer_ids, ""))
    return Message(role, {Role.USER: "And now?", Role.SYSTEM: "Two left.", Role.ASSISTANT: "I see."}[role])
