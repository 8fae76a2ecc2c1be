"""What wires read and write, whichever protocol: messages, a request, and a reply with its deltas.

Example:

    said = Message(Role.ASSISTANT, calls=(ToolCall("call_1", "add", '{"a": 1, "b": 2}'),))
    said.means(echoed)        # whether a client that sends it back means this one, however it wrote it
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

SHORT = 1_000  # Characters of arguments up to which what they are is kept for another time


class Role(enum.Enum):
    """Whose words they are, by the names of chat templates."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Tool:
    """What an agent offers the model."""

    name: str  # Of the function
    description: str = ""  # What it does, for the model
    parameters: str = '{"type": "object", "properties": {}}'  # JSON Schema of its arguments, as JSON
    is_strict: bool = field(default=False, compare=False)
    """Whether the agent wants arguments that fit it: nothing sees to that, and no template is told."""

    @property
    def for_template(self) -> dict[str, Json]:
        function = {"name": self.name, "description": self.description, "parameters": json.loads(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model asks of a tool."""

    id: str  # Unique; the tool's answer names it
    name: str  # The tool's
    arguments: str  # JSON, as the model wrote it; what is not JSON is a mistake of the model's

    def means(self, other: "ToolCall") -> bool:
        if self.arguments == other.arguments:  # as most clients send it back: a quarter of a turn's time otherwise
            return self.name == other.name
        return self.name == other.name and canonical(self.arguments) == canonical(other.arguments)


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    role: Role  # Whose
    text: str = ""  # What it says; of a TOOL message: the tool's answer
    reasoning: str = ""  # What the model thought before it spoke
    calls: tuple[ToolCall, ...] = ()  # What the model asks of tools
    answers: str = ""  # Of a TOOL message: id of the call that it answers, if that is known
    stop: str = field(default="", compare=False)
    """Of a reply: the text of `stop` that ended it. It is in the reply's tokens and not in `text`."""

    def means(self, echoed: "Message") -> bool:
        """Whether an echo is of this message, as clients echo: some leave reasoning out, or text beside calls.

        Some put the text back that stopped it. What an agent edited is not: other words, other calls, other arguments.
        """
        if self is echoed or self == echoed:  # as most are: all else takes a while
            return True
        if self.role is not echoed.role or len(self.calls) != len(echoed.calls):
            return False
        if self.role is not Role.ASSISTANT:
            known = self.answers and echoed.answers
            return self.text == echoed.text and (not known or self.answers == echoed.answers)
        if not all(one.means(other) for one, other in zip(self.calls, echoed.calls, strict=True)):
            return False
        by_id = bool(self.calls) and all(a.id == b.id for a, b in zip(self.calls, echoed.calls, strict=True))
        thought = echoed.reasoning.strip()
        if thought and thought != self.reasoning.strip():
            return False
        return self._says(echoed.text.strip()) or (by_id and not echoed.text.strip()) or self._is_stopped_in(echoed)

    def as_echoed(self, echoed: "Message") -> "Message":
        """This message, with the text that stopped it where an echo has put that back: as a template is to write it."""
        return replace(self, text=f"{self.text}{self.stop}") if self._is_stopped_in(echoed) else self

    def _is_stopped_in(self, echoed: "Message") -> bool:
        """Whether an echo ends with the text that stopped this reply, which is not told."""
        told, stop = echoed.text.strip(), self.stop.strip()
        return bool(stop) and told.endswith(stop) and self._says(told.removesuffix(stop).rstrip())

    def _says(self, told: str) -> bool:
        text, reasoning = self.text.strip(), self.reasoning.strip()
        return told in {text, f"{reasoning}{text}", f"{reasoning}\n{text}", f"{reasoning}\n\n{text}"}

    @property
    def for_template(self) -> dict[str, Json]:
        return self._for_template(as_object)

    @property
    def with_text_arguments(self) -> dict[str, Json]:
        """The same for templates that take arguments as text: that of the model, if it is an object's."""
        return self._for_template(as_text)

    def _for_template(self, arguments: Callable[[str], Json]) -> dict[str, Json]:
        made: dict[str, Json] = {"role": self.role.value, "content": self.text}
        if self.reasoning:
            made["reasoning_content"] = self.reasoning
        if self.calls:
            made["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": arguments(call.arguments)},
                }
                for call in self.calls
            ]
        if self.answers:
            made["tool_call_id"] = self.answers
        return made


def canonical(arguments: str) -> str:
    """Arguments in one way of writing them, as an object: what some protocols make of others."""
    return json.dumps(as_object(arguments), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def as_text(arguments: str) -> str:
    """Arguments as text that is a JSON object: what was written, if it is one."""
    return arguments if _read_object(arguments) is not None else json.dumps(as_object(arguments), ensure_ascii=False)


def as_object(arguments: str) -> dict[str, Json]:
    """Arguments for a template, which wants an object: of others, what was written is its one value."""
    if not arguments:
        return {}
    made = _read_object(arguments)
    return {"value": _value(arguments)} if made is None else made


def _read_object(arguments: str) -> dict[str, Json] | None:
    value = _known_value(arguments) if len(arguments) < SHORT else _value(arguments)
    return dict(value) if isinstance(value, Mapping) else None


@lru_cache(maxsize=1024)  # a history that is written anew has the same calls again, and each bridge its marker
def _known_value(arguments: str) -> Json:
    return _value(arguments)


def _value(arguments: str) -> Json:
    try:
        value: Json = json.loads(arguments)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # Python reads NaN and halves of surrogate pairs; hardly anything else does
        return arguments
    return value


@dataclass(frozen=True, slots=True)
class Constraint:
    """A field that would keep the reply to a form, which nothing does here."""

    field: str  # Where it is, such as "tool_choice"
    why: str  # Why it is not heeded, and what to do


@dataclass(frozen=True, slots=True)
class Wanted:
    """A setting of the draw, as an agent wants it."""

    field: str  # Where it is, such as "repeat_penalty"
    value: float = 0.0  # Its value; of a flag 0 or 1
    setting: str = ""  # Which of `SamplingParams` it is, by name; empty: none, so nothing here draws that way


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a reply."""

    messages: tuple[Message, ...]  # The conversation so far; with `after`, what came since
    ids: tuple[str, ...] = ()  # Ids that the reply will be known by, on its wire: what a later `after` says
    tools: tuple[Tool, ...] = ()  # What the model may call
    after: str = ""
    """Id of an earlier reply of this session that this goes on from; empty: `messages` is the whole conversation."""
    after_field: str = "previous_response_id"  # The field of the body that says `after`, for errors
    instructions: str = ""
    """With `after`: what the conversation's SYSTEM message is to be from here on; empty: as it was."""
    template: str = ""
    """What the chat template is given beside the run's own arguments, as JSON with sorted keys; empty: nothing."""
    raw: str = ""
    """A prompt as it is, without a chat template: its reply is text alone. `messages` and `tools` are empty then."""
    max_tokens: int | None = None  # Tokens that the reply may have; None: as many as the run gives
    stop: tuple[str, ...] = ()  # Texts that end the reply
    sampling: tuple[Wanted, ...] = ()
    """What the agent wants of the draw, the run's or other than that: what is left out is as the run has it."""
    constraints: tuple[Constraint, ...] = ()
    """What would keep the reply to a form: it is refused, or left aside and counted."""
    has_call_rules: bool = False
    """Whether it wants no more than one call, or arguments that fit their schema (`strict`). Unmodified clients say so
    on their own: it is left aside and counted."""
    log_probs: bool = False  # Whether the text and the log-prob of each token are wanted
    agent: str = ""  # Which of a session's agents asks, where a client says so: the main one says nothing


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks."""

    text: str  # Never empty


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of what the model says."""

    text: str  # Never empty


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The model calls a tool: a call is told when it is complete."""

    index: int  # Number of the call in this reply, from 0
    call: ToolCall  # The call


Delta: TypeAlias = ReasoningDelta | TextDelta | CallDelta


class Finish(enum.Enum):
    """Why the reply ended."""

    STOP = "stop"  # The model ended it, or a text of `stop` did
    LENGTH = "length"  # Its tokens were used up
    CALLS = "calls"  # It waits for tools


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    message: Message  # What it says, an ASSISTANT message
    finish: Finish  # Why it ended
    prompt_tokens: int  # Tokens of the prompt
    cached_tokens: int  # How many of them were the conversation's already
    tokens: Sequence[int]  # Ids that the model made: [n]
    log_probs: Sequence[float]  # Log-prob of each: [n]
    texts: Sequence[str]  # Text of each, for a client that asks for log-probs: [n]
    reasoning_tokens: int = 0  # How many of them are reasoning
    stop: str | None = None  # The text of `stop` that ended it
