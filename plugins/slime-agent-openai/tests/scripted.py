"""A model that says what it was told to, behind real wires: what tests of wires and their clients share."""

import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from aiohttp import web

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import (
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    Role,
    TextDelta,
    ToolCall,
)
from slime_agent_openai.wires.blocks import deltas_of
from slime_agent_openai.wires.chat import read_chat
from slime_agent_openai.wires.completions import read_completions
from slime_agent_openai.wires.messages import read_messages
from slime_agent_openai.wires.responses import ResponseStore, read_responses
from slime_agent_openai.wires.wire import Body, NewId, Wire, anthropic_error, model_body, models_body, openai_error

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


@dataclass
class Script:
    """What the model says, and what it was asked."""

    says: list[Reply | ApiError]
    breaks: ApiError | None = None  # What every stream breaks off with
    asked: list[Request] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # Codes of errors
    hosted: str = "refuse"
    draw: random.Random = field(default_factory=lambda: random.Random(5))
    new_id: NewId = field(default_factory=counted_ids)
    store: ResponseStore = field(default_factory=ResponseStore)

    async def post(self, http: web.Request) -> web.StreamResponse:
        """Answer a request."""
        path = http.match_info["path"]
        described = anthropic_error if path == "messages" else openai_error
        read = READERS[path]
        if path in ("responses", "messages"):
            read = partial(read, hosted=self.hosted)
        body = await http.json()
        try:
            known = (self.store,) if path == "responses" else ()
            request, wire = read(body, self.new_id, *known)
            self.asked.append(request)
            self.bodies.append(body)
            said = self.says.pop(0)
            if isinstance(said, ApiError):
                raise said
        except ApiError as error:
            self.refused.append(error.code)
            headers = {"x-should-retry": "true" if error.retry else "false"}
            return web.json_response(described(error), status=error.status, headers=headers)
        if not wire.streams:
            return web.json_response(self.kept(path, wire.whole(said)))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        for chunk in self.events(wire, said):
            await response.write(chunk)
        self.kept(path, wire.whole(said))
        await response.write_eof()
        return response

    def kept(self, path: str, replied: Body) -> Body:
        if path == "responses":
            self.store.keep(replied)
        return replied

    def events(self, wire: Wire, said: Reply) -> Iterator[bytes]:
        """A stream."""
        yield from wire.begin(said.prompt_tokens)
        for delta in parts_of(said.message, self.draw):
            yield from wire.add(delta)
        yield from wire.end(said) if self.breaks is None else wire.fail(self.breaks)

    async def get(self, http: web.Request) -> web.Response:
        """What is there."""
        kind, _, name = http.match_info["path"].partition("/")
        if kind == "models":
            return web.json_response(model_body(name) if name else models_body())
        return web.json_response(self.store.replies[name])


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[str]:
    """Serve it; gives the URL, without /v1."""
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", script.post)
    app.router.add_get("/v1/{path:.*}", script.get)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
