"""ChatWire: a reply as OpenAI's chat completions, or their chunks.

Example:

    wire = ChatWire("chatcmpl_1", "policy", streams=False)
    wire.whole(reply)["choices"]       # [{"index": 0, "message": {"role": "assistant", ...}, ...}]
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Message
from slime_agent_openai.reply import ArgumentsDelta, CallBegun, Delta, Finish, ReasoningDelta, Reply, TextDelta
from slime_agent_openai.wires.failing import openai_error
from slime_agent_openai.wires.wire import Body, as_json, event
from slime_core.sample import Json

FINISHES = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.CALLS: "tool_calls"}
LEAST_LOG_PROB = -9999.0
"""What OpenAI writes for what has no probability: JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class ChatWire:
    """Writes one reply."""

    id: str
    """Of the completion."""
    model: str
    """As the agent calls it."""
    streams: bool
    """Whether the request asks for a stream."""
    tells_usage: bool = False
    """Whether a stream tells how many tokens it took."""
    log_probs: bool = False
    """Whether each token is told."""
    created: int = field(default_factory=lambda: int(time.time()))
    """Seconds since 1970."""
    _heads: list[str] = field(default_factory=list, repr=False)

    def whole(self, reply: Reply) -> Body:
        """The body of a reply that is not streamed."""
        choice: Body = {
            "index": 0,
            "message": _message(reply.message),
            "logprobs": self._log_probs(reply),
            "finish_reason": FINISHES[reply.finish],
        }
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(reply)}

    def begin(self, prompt_tokens: int) -> Iterator[bytes]:
        """Who speaks."""
        yield self._chunk('{"role":"assistant","content":""}')

    def add(self, delta: Delta) -> Iterator[bytes]:
        """A chunk."""
        match delta:
            case ReasoningDelta(text=text):
                yield self._chunk(f'{{"reasoning_content":{as_json(text)}}}')
            case TextDelta(text=text):
                yield self._chunk(f'{{"content":{as_json(text)}}}')
            case CallBegun(index=index, id=call, name=name):
                function: Body = {"name": name, "arguments": ""}
                made: Body = {"index": index, "id": call, "type": "function", "function": function}
                yield self._chunk(as_json({"tool_calls": [made]}))
            case ArgumentsDelta(index=index, text=text):
                part = f'{{"index":{index},"function":{{"arguments":{as_json(text)}}}}}'
                yield self._chunk(f'{{"tool_calls":[{part}]}}')

    def end(self, reply: Reply) -> Iterator[bytes]:
        """Why it ended, and what it took."""
        told = as_json({"logprobs": self._log_probs(reply), "finish_reason": FINISHES[reply.finish]})
        yield self._chunk("{}", told[1:-1])
        if self.tells_usage:
            yield event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage(reply)})
        yield event("[DONE]")

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """An error, and no end: clients take a stream that just stops for a whole answer."""
        yield event(openai_error(error))

    def _head(self, kind: str) -> Body:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: str, rest: str = '"logprobs":null,"finish_reason":null') -> bytes:
        """A chunk, of what it says as JSON: its head is the same each time, and written once."""
        if not self._heads:
            self._heads.append(as_json(self._head("chat.completion.chunk"))[:-1])
        return f'data: {self._heads[0]},"choices":[{{"index":0,"delta":{delta},{rest}}}]}}\n\n'.encode()

    def _log_probs(self, reply: Reply) -> Json:
        if not self.log_probs:
            return None
        tokens: list[Json] = [
            {
                "token": text,
                "logprob": max(log_prob, LEAST_LOG_PROB),
                "bytes": list(text.encode()),
                "top_logprobs": [],
            }
            for text, log_prob in zip(reply.texts, reply.log_probs, strict=True)
        ]
        return {"content": tokens, "refusal": None}


def usage(reply: Reply) -> Body:
    """How many tokens it took, as chat and legacy completions tell it."""
    made = len(reply.tokens)
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": made,
        "total_tokens": reply.prompt_tokens + made,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
    }


def _message(message: Message) -> Body:
    made: Body = {"role": "assistant", "content": message.text or (None if message.calls else ""), "refusal": None}
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if message.calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return made
