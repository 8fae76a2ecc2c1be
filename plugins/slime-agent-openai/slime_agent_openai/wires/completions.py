"""OpenAI's legacy completions, `POST /v1/completions`: the prompt goes to the model without a chat template.

Example:

    request, wire = read_completions({"model": "policy", "prompt": "Once upon"}, new_id)
    request.raw             # "Once upon"
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Delta, Finish, Reply, Request, TextDelta
from slime_agent_openai.wires.chat import usage
from slime_agent_openai.wires.options import (
    KWARGS,
    OUTPUT_OPTIONS,
    format_of,
    forms_of,
    sampling_of,
    stop_texts,
    wants_usage,
)
from slime_agent_openai.wires.values import ONE_REPLY, Only, read_fields
from slime_agent_openai.wires.wire import MODEL, Body, NewId, Wire, event, openai_error

REFUSED: Mapping[str, Only] = {
    KWARGS: Only(({},), "a raw prompt uses no chat template"),
    "echo": Only((False,), "a reply does not repeat its prompt"),
    "logprobs": Only((), "use chat completions, which return them"),
    "n": Only((1,), ONE_REPLY),
    "suffix": Only(("",), "the model continues a prompt and does not fill gaps"),
    **OUTPUT_OPTIONS,
}


def read_completions(body: Body, new_id: NewId) -> tuple[Request, Wire]:
    """A request, and the wire that writes its reply."""
    fields = read_fields(body, REFUSED)
    if not (prompt := fields.at("prompt").text()):
        raise fields.at("prompt").invalid("a non-empty text")
    name = new_id("cmpl")
    request = Request(
        (),
        ids=(name,),
        raw=prompt,
        max_tokens=fields.at("max_tokens").whole(1),
        stop=stop_texts(fields.at("stop")),
        sampling=sampling_of(fields),
        constraints=(*format_of(fields.at("response_format")), *forms_of(fields)),
    )
    wire = CompletionsWire(
        name, fields.at("model").text(MODEL), streams=fields.at("stream").flag(), reports_usage=wants_usage(fields)
    )
    return request, wire


@dataclass(frozen=True, slots=True)
class CompletionsWire:
    """Writes one reply, which is only text."""

    id: str  # Id of the completion
    model: str  # Model name from the request
    streams: bool  # Whether the request asks for a stream
    reports_usage: bool = False  # Whether a stream reports token counts
    created: int = field(default_factory=lambda: int(time.time()))  # Seconds since 1970

    def whole(self, reply: Reply) -> Body:
        return {**self._body(reply.message.text, _finish(reply)), "usage": usage(reply)}

    def begin(self, prompt_tokens: int) -> Iterator[bytes]:
        yield from ()

    def add(self, delta: Delta) -> Iterator[bytes]:
        if isinstance(delta, TextDelta):
            yield event(self._body(delta.text, None))

    def end(self, reply: Reply) -> Iterator[bytes]:
        yield event(self._body("", _finish(reply)))
        if self.reports_usage:
            yield event({**self._body("", None), "choices": [], "usage": usage(reply)})
        yield event("[DONE]")

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield event(openai_error(error))

    def _body(self, text: str, finish: str | None) -> Body:
        choice: Body = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        head: Body = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        return {**head, "choices": [choice]}


def _finish(reply: Reply) -> str:
    return "length" if reply.finish is Finish.LENGTH else "stop"
