"""Messages, requests, and replies with their deltas: what the wires of all protocols read and write.

Example:

    reply = Message(Role.ASSISTANT, calls=(ToolCall("call_1", "add", '{"a": 1, "b": 2}'),))
    reply.matches(echoed)       # whether a client sent the same message back, perhaps written differently
    wire.add(TextDelta("Let me "))
    wire.add(CallDelta(0, ToolCall("call_1", "add", '{"a": 1}')))
    wire.end(reply)           # all text, reasoning and calls of the deltas, put together, are the reply's
"""

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from slime_core.sample import Json

CACHED_LENGTH = 1_000  # Longest arguments, in characters, whose parsed form is cached


class Role(enum.Enum):
    """Author of a message, by the names that chat templates use."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that an agent offers the model."""

    name: str  # Name of the function
    description: str = ""  # What it does, for the model
    parameters: str = '{"type": "object", "properties": {}}'  # JSON Schema of its arguments, as JSON
    is_strict: bool = field(default=False, compare=False)
    """Whether the agent wants arguments that fit the schema. It is not enforced, and templates do not see it."""

    @property
    def for_template(self) -> dict[str, Json]:
        function = {"name": self.name, "description": self.description, "parameters": json.loads(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's call of a tool."""

    id: str  # Unique; the tool's answer names it
    name: str  # Name of the tool
    arguments: str  # JSON, as the model wrote it; invalid JSON is the model's mistake

    def matches(self, other: "ToolCall") -> bool:
        if self.arguments == other.arguments:  # true for most echoes: parsing would cost a quarter of a turn's time
            return self.name == other.name
        return self.name == other.name and canonical(self.arguments) == canonical(other.arguments)


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    role: Role  # Its author
    text: str = ""  # Its text; of a TOOL message: the tool's answer
    reasoning: str = ""  # The model's reasoning before the text
    calls: tuple[ToolCall, ...] = ()  # The model's calls of tools
    answers: str = ""  # Of a TOOL message: id of the call that it answers, if known
    stop: str = field(default="", compare=False)
    """Of a reply: the text of `stop` that ended it. It is in the reply's tokens, but not in `text`."""

    def matches(self, echoed: "Message") -> bool:
        """Whether an echo repeats this message. Some clients omit reasoning, or the text of a message with calls.

        Some add the stop text again. An echo with other text, calls or arguments was edited and does not match.
        """
        if self is echoed or self == echoed:  # true for most echoes: the rest is slow
            return True
        if self.role is not echoed.role or len(self.calls) != len(echoed.calls):
            return False
        if self.role is not Role.ASSISTANT:
            known = self.answers and echoed.answers
            return self.text == echoed.text and (not known or self.answers == echoed.answers)
        if not all(one.matches(other) for one, other in zip(self.calls, echoed.calls, strict=True)):
            return False
        by_id = bool(self.calls) and all(a.id == b.id for a, b in zip(self.calls, echoed.calls, strict=True))
        echoed_reasoning = echoed.reasoning.strip()
        if echoed_reasoning and echoed_reasoning != self.reasoning.strip():
            return False
        return self._is_text(echoed.text.strip()) or (by_id and not echoed.text.strip()) or self._adds_stop_to(echoed)

    def as_echoed(self, echoed: "Message") -> "Message":
        """This message as a template must render it: with its stop text, if the echo has it."""
        return replace(self, text=f"{self.text}{self.stop}") if self._adds_stop_to(echoed) else self

    def _adds_stop_to(self, echoed: "Message") -> bool:
        """Whether an echo ends with this reply's stop text, which the reply's `text` leaves out."""
        text, stop = echoed.text.strip(), self.stop.strip()
        return bool(stop) and text.endswith(stop) and self._is_text(text.removesuffix(stop).rstrip())

    def _is_text(self, echoed: str) -> bool:
        text, reasoning = self.text.strip(), self.reasoning.strip()
        return echoed in {text, f"{reasoning}{text}", f"{reasoning}\n{text}", f"{reasoning}\n\n{text}"}

    @property
    def for_template(self) -> dict[str, Json]:
        return self._for_template(as_object)

    @property
    def with_text_arguments(self) -> dict[str, Json]:
        """The message for templates that take arguments as text: the model's own text if it is a JSON object."""
        return self._for_template(as_text)

    def _for_template(self, arguments: Callable[[str], Json]) -> dict[str, Json]:
        row: dict[str, Json] = {"role": self.role.value, "content": self.text}
        if self.reasoning:
            row["reasoning_content"] = self.reasoning
        if self.calls:
            row["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": arguments(call.arguments)},
                }
                for call in self.calls
            ]
        if self.answers:
            row["tool_call_id"] = self.answers
        return row


def canonical(arguments: str) -> str:
    """Arguments as a JSON object in one canonical form, to compare calls."""
    return json.dumps(as_object(arguments), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def as_text(arguments: str) -> str:
    """Arguments as the text of a JSON object; the original text if it is one."""
    return arguments if _read_object(arguments) is not None else json.dumps(as_object(arguments), ensure_ascii=False)


def as_object(arguments: str) -> dict[str, Json]:
    """Arguments as an object for a template; other JSON or text becomes the object's one value."""
    if not arguments:
        return {}
    value = _read_object(arguments)
    return {"value": _value(arguments)} if value is None else value


def _read_object(arguments: str) -> dict[str, Json] | None:
    value = _known_value(arguments) if len(arguments) < CACHED_LENGTH else _value(arguments)
    return dict(value) if isinstance(value, Mapping) else None


@lru_cache(maxsize=1024)  # a rendered history repeats its calls, and each bridge its marker
def _known_value(arguments: str) -> Json:
    return _value(arguments)


def _value(arguments: str) -> Json:
    try:
        value: Json = json.loads(arguments)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # Python alone reads NaN and halves of surrogate pairs
        return arguments
    return value


@dataclass(frozen=True, slots=True)
class Constraint:
    """A field that would constrain the reply's format; constraints have no effect here."""

    field: str  # Place in the request, such as "tool_choice"
    why: str  # Why it has no effect, and what to do


@dataclass(frozen=True, slots=True)
class RequestedSetting:
    """A sampling setting that an agent asks for."""

    field: str  # Place in the request, such as "repeat_penalty"
    value: float = 0.0  # Its value; of a flag 0 or 1
    setting: str = ""  # Name of the field of `SamplingParams`; empty: no field, so it cannot be applied


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a reply."""

    messages: tuple[Message, ...]  # The conversation so far; with `after`, the messages since then
    ids: tuple[str, ...] = ()  # Ids of the reply on its wire, for a later `after`
    tools: tuple[Tool, ...] = ()  # Tools that the model may call
    after: str = ""
    """Id of this session's earlier reply that it continues; empty: `messages` is the whole conversation."""
    after_field: str = "previous_response_id"  # The body's field that holds `after`, for errors
    instructions: str = ""
    """With `after`: the conversation's new SYSTEM message; empty: keep the old one."""
    template: str = ""
    """Arguments of the chat template in addition to the run's own, as JSON with sorted keys; empty: none."""
    raw: str = ""
    """A prompt without a chat template; the reply is text only. `messages` and `tools` are then empty."""
    max_tokens: int | None = None  # Most tokens of the reply; None: the run's limit
    stop: tuple[str, ...] = ()  # Texts that end the reply
    sampling: tuple[RequestedSetting, ...] = ()
    """Sampling settings that the agent asks for, equal to the run's or not; all others are the run's."""
    constraints: tuple[Constraint, ...] = ()
    """Format constraints; they are refused, or ignored and counted."""
    has_call_rules: bool = False
    """Whether it wants at most one call, or arguments that fit their schema (`strict`). Unmodified clients send both by
    default, so they are ignored and counted."""
    log_probs: bool = False  # Whether the text and the log-prob of each token are wanted
    agent: str = ""  # Name of the session's agent that asks, if the client sends it; the main agent sends none


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str  # Never empty


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the model's text."""

    text: str  # Never empty


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A complete call of a tool."""

    index: int  # Number of the call in this reply, from 0
    call: ToolCall  # The call


Delta: TypeAlias = ReasoningDelta | TextDelta | CallDelta


class Finish(enum.Enum):
    """Why the reply ended."""

    STOP = "stop"  # The model ended it, or a stop text did
    LENGTH = "length"  # It used up its tokens
    CALLS = "calls"  # The model waits for tools


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    message: Message  # Its ASSISTANT message
    finish: Finish  # Why it ended
    prompt_tokens: int  # Tokens of the prompt
    cached_tokens: int  # Prompt tokens that the conversation had already
    tokens: Sequence[int]  # Ids that the model generated: [n]
    log_probs: Sequence[float]  # Log-prob of each: [n]
    texts: Sequence[str]  # Text of each token, for a client that asks for log-probs: [n]
    reasoning_tokens: int = 0  # Tokens of reasoning among them
    stop: str | None = None  # The text of `stop` that ended it
