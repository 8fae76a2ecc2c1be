"""OpenAI's Responses: reads the body of `POST /v1/responses`, and writes its reply.

Each block of a reply is an item, which has the same id in all events and in the body.

Example:

    request, wire = read_responses({"input": "And now?", "previous_response_id": "resp_1"}, new_id)
    request.after           # "resp_1": the history need not be sent again
    wire.begin(12)          # response.created, response.in_progress
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from slime_agent_openai.errors import ApiError, refused, unsupported
from slime_agent_openai.message import Constraint, Delta, Finish, Message, Reply, Request, Role, Tool
from slime_agent_openai.response_store import ResponseStore, Turn, messages_of, prefix
from slime_agent_openai.wires.blocks import Block, Blocks, Kind, Moment, Step
from slime_agent_openai.wires.options import (
    FORMS,
    KWARGS,
    SAMPLING,
    TEMPLATED,
    Hosted,
    choice_of,
    format_of,
    forms_of,
    function_tool,
    has_call_rules,
    hosted_tool,
    number,
    sampling_of,
    template_of,
)
from slime_agent_openai.wires.values import Fields, Only, Value
from slime_agent_openai.wires.wire import MODEL, Body, NewId, Wire, event
from slime_core.sample import Json

FIELDS = Fields(
    heeded={
        *("conversation", "include", "input", "instructions", "max_output_tokens", "metadata", "model"),
        *("parallel_tool_calls", "previous_response_id", "store", "stream", "text", "tool_choice", "tools"),
        "truncation",
        *SAMPLING,
        *FORMS,
        KWARGS,
    },
    harmless={
        *("access_programs", "background_options", "context_management", "image", "max_tool_calls", "moderation"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier"),
        *("service_tier", "stream_options", "user"),
    },
    refused={
        **TEMPLATED,
        "background": Only((False,), "a reply is made while its request waits"),
        "prompt": Only((), "no prompts are stored; send its messages"),
        "top_logprobs": Only((0,), "only chat completions tell log-probs"),
    },
)  # What a request may ask


def read_responses(
    body: Body, new_id: NewId, turn: Turn | None = None, *, hosted: Hosted = "refuse"
) -> tuple[Request, Wire]:
    """A request, and what writes its reply; `turn`: what it goes on from, as `ResponseStore.turn` finds it."""
    asked = FIELDS.read(body)
    _refuse_more(asked)
    turn = turn or ResponseStore(new_id).turn(body)
    said = messages_of([*turn.before, *turn.said])
    if not said:
        raise refused("input is empty; it has at least one message", "input")
    after, instructions = turn.after, asked.at("instructions").text("")
    if instructions and not after:
        said = [Message(Role.SYSTEM, instructions), *said]
    tools = [tool for each in asked.at("tools").each() for tool in _tools(each, hosted)]
    offered = tuple(tool for _, tool in tools)
    name, (may, forced) = new_id("resp"), choice_of(asked.at("tool_choice"))
    request = Request(
        tuple(said),
        ids=(name,),
        tools=offered if may else (),
        after=after,
        instructions=instructions if after else "",
        max_tokens=asked.at("max_output_tokens").whole(1),
        template=template_of(asked.at(KWARGS)),
        sampling=sampling_of(asked),
        constraints=(*forced, *_format(asked.at("text")), *forms_of(asked)),
        has_call_rules=may and has_call_rules(offered, one_call=asked.at("parallel_tool_calls").denies()),
    )
    echoed: Body = {
        "conversation": None if turn.conversation is None else {"id": turn.conversation.id},
        "max_output_tokens": request.max_tokens,
        "metadata": {**asked.at("metadata").object()},
        "model": asked.at("model").text(MODEL),
        "previous_response_id": after or None if turn.conversation is None else None,
        "store": turn.stores,
        "temperature": number(asked, "temperature", 2),
        "tool_choice": "auto" if may else "none",
        "top_p": number(asked, "top_p", 1),
        "truncation": "disabled",
    }
    spaces = {tool.name: (space, tool.name.removeprefix(prefix(space))) for space, tool in tools if space}
    return request, ResponsesWire(name, echoed, new_id, streams=asked.at("stream").flag(), namespaces=spaces)


def _refuse_more(asked: Value) -> None:
    for included in asked.at("include").each():
        if included.text() == "message.output_text.logprobs":
            raise unsupported(included.path, "only chat completions tell log-probs")
    if (cut := asked.at("truncation")).text("disabled") not in ("auto", "disabled"):
        raise cut.wrong('"auto" or "disabled"')


def _format(text: Value) -> tuple[Constraint, ...]:
    return format_of(text.at("format")) if text.is_given else ()


def _tools(offered: Value, hosted: Hosted) -> Iterator[tuple[str, Tool]]:
    match offered.at("type").text():
        case "function":
            yield "", function_tool(offered, "parameters")
        case "namespace":
            space = offered.at("name").text()
            for _, tool in (each for member in offered.at("tools").each() for each in _tools(member, hosted)):
                yield space, replace(tool, name=prefix(space) + tool.name)
        case _:
            hosted_tool(offered, hosted)


PREFIXES = {Kind.REASONING: "rs", Kind.TEXT: "msg", Kind.CALL: "fc"}


class ResponsesWire:
    """Writes one reply."""

    def __init__(
        self,
        name: str,
        echoed: Body,
        new_id: NewId,
        *,
        streams: bool,
        namespaces: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """`echoed` is repeated in the body; `namespaces`: by a tool's name for the model, its namespace and name."""
        self._base: Body = {
            "id": name,
            "object": "response",
            "created_at": int(time.time()),
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "tools": [],
            "usage": None,
            **echoed,
        }
        self._streams, self._namespaces = streams, namespaces or {}
        self._blocks = Blocks(new_id, PREFIXES)
        self._sent = 0

    @property
    def streams(self) -> bool:
        return self._streams

    def whole(self, reply: Reply) -> Body:
        blocks = self._blocks.of(reply.message)
        output = [self._item(block, "completed") for block in blocks[:-1]]
        output.append(self._item(blocks[-1], _status(reply)))
        more: Body = {"incomplete_details": {"reason": "max_output_tokens"}} if _status(reply) == "incomplete" else {}
        return {**self._base, **more, "status": _status(reply), "output": [*output], "usage": _usage(reply)}

    def begin(self, prompt_tokens: int) -> Iterator[bytes]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", {"response": {**self._base, "status": "in_progress", "output": []}})

    def add(self, delta: Delta) -> Iterator[bytes]:
        for step in self._blocks.add(delta):
            yield from self._told(step, "completed")

    def end(self, reply: Reply) -> Iterator[bytes]:
        steps = list(self._blocks.end())
        for step in steps:
            yield from self._told(step, _status(reply) if step.block is steps[-1].block else "completed")
        yield self._event(f"response.{_status(reply)}", {"response": self.whole(reply)})

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield self._event("error", {"code": error.code, "message": error.message, "param": error.param})
        output: list[Json] = [self._item(block, "incomplete") for block in self._blocks.told]
        told: Body = {"code": "server_error", "message": error.message}
        failed: Body = {**self._base, "status": "failed", "error": told, "output": output}
        yield self._event("response.failed", {"response": failed})

    def _told(self, step: Step, status: str) -> Iterator[bytes]:
        block = step.block
        at: Body = {"item_id": block.id, "output_index": block.index}
        within: Body = at if block.kind is Kind.CALL else {**at, "content_index": 0}
        match step.moment:
            case Moment.BEGUN:
                begun = {**self._item(block, "in_progress"), **({} if block.kind is Kind.CALL else {"content": []})}
                yield self._event("response.output_item.added", {"output_index": block.index, "item": begun})
                if block.kind is not Kind.CALL:
                    yield self._event("response.content_part.added", {**within, "part": _part(block.kind, "")})
            case Moment.MORE:
                more: Body = {"delta": step.text, **({"logprobs": []} if block.kind is Kind.TEXT else {})}
                yield self._event(f"response.{_TOLD_AS[block.kind]}.delta", {**within, **more})
            case Moment.ENDED:
                yield from self._ended(block, within, status)

    def _ended(self, block: Block, within: Body, status: str) -> Iterator[bytes]:
        item = self._item(block, status)
        kind = f"response.{_TOLD_AS[block.kind]}.done"
        match block.kind:
            case Kind.REASONING:
                yield self._event(kind, {**within, "text": block.text})
            case Kind.TEXT:
                yield self._event(kind, {**within, "text": block.text, "logprobs": []})
            case Kind.CALL:
                yield self._event(kind, {**within, "arguments": block.text, "name": item["name"]})
        if block.kind is not Kind.CALL:
            yield self._event("response.content_part.done", {**within, "part": _part(block.kind, block.text)})
        yield self._event("response.output_item.done", {"output_index": block.index, "item": item})

    def _item(self, block: Block, status: str) -> Body:
        if block.call is not None:
            space, name = self._namespaces.get(block.call.name, ("", block.call.name))
            made: Body = {"type": "function_call", "id": block.id, "call_id": block.call.id, "name": name}
            return {**made, **({"namespace": space} if space else {}), "arguments": block.text, "status": status}
        if block.kind is Kind.TEXT:
            head: Body = {"type": "message", "id": block.id, "status": status, "role": "assistant"}
            return {**head, "content": [_part(block.kind, block.text)]}
        thoughts = _part(block.kind, block.text)
        return {"type": "reasoning", "id": block.id, "status": status, "summary": [], "content": [thoughts]}

    def _event(self, kind: str, told: Body) -> bytes:
        number, self._sent = self._sent, self._sent + 1
        return event({"type": kind, "sequence_number": number, **told}, kind)


_TOLD_AS = {Kind.REASONING: "reasoning_text", Kind.TEXT: "output_text", Kind.CALL: "function_call_arguments"}


def _part(kind: Kind, text: str) -> Body:
    if kind is Kind.REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish is Finish.LENGTH else "completed"


def _usage(reply: Reply) -> Body:
    made = len(reply.tokens)
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + made,
    }
