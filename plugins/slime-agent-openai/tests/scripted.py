"""Replies and their deltas: what tests of wires share."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Delta, Finish, Message, ReasoningDelta, Reply, Role, TextDelta, ToolCall
from slime_agent_openai.wires.blocks import deltas_of
from slime_agent_openai.wires.chat import read_chat
from slime_agent_openai.wires.completions import read_completions
from slime_agent_openai.wires.messages import read_messages
from slime_agent_openai.wires.responses import read_responses
from slime_agent_openai.wires.wire import NewId, Wire

READERS = {
    "chat/completions": read_chat,
    "completions": read_completions,
    "responses": read_responses,
    "messages": read_messages,
}


def counted_ids() -> NewId:
    """Ids that count."""
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}_{next(numbers)}"


def reply(text: str = "", reasoning: str = "", calls: Sequence[ToolCall] = (), finish: Finish | None = None) -> Reply:
    """A reply of five tokens."""
    return Reply(
        Message(Role.ASSISTANT, text, reasoning, tuple(calls)),
        finish or (Finish.CALLS if calls else Finish.STOP),
        prompt_tokens=20,
        cached_tokens=8,
        tokens=[11, 12, 13, 14, 15],
        log_probs=[-0.5, -0.25, -1.0, -2.0, -0.125],
        texts=["Le", "t", " me", " see", "é"],
        reasoning_tokens=2,
    )


CALLS = (ToolCall("call_a", "add", '{"a": 1,  "b":2}'), ToolCall("call_b", "add", '{"b": 4, "a": 3}'))
FULL = reply("Let me see.\n", "Two sums: é, 加", CALLS)
DONE = reply("3 and 7.", "Both are known.")
USER = {"role": "user", "content": "Add!"}


def cut(delta: Delta, draw: random.Random) -> Iterator[Delta]:
    """A delta in parts."""
    if not isinstance(delta, ReasoningDelta | TextDelta):
        yield delta
        return
    text = delta.text
    while text:
        length = draw.randint(1, len(text))
        yield replace(delta, text=text[:length])
        text = text[length:]


def parts_of(message: Message, draw: random.Random) -> list[Delta]:
    """All deltas of a message."""
    return [part for delta in deltas_of(message) for part in cut(delta, draw)]


def events_of(wire: Wire, said: Reply, error: ApiError | None = None) -> Iterator[bytes]:
    """A stream; it breaks off with an error, if there is one."""
    yield from wire.begin(said.prompt_tokens)
    for delta in parts_of(said.message, random.Random(5)):
        yield from wire.add(delta)
    yield from wire.end(said) if error is None else wire.fail(error)
