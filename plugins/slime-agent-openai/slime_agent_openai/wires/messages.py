"""Anthropic's Messages: reads the bodies of `POST /v1/messages` and `/v1/messages/count_tokens`, and writes replies.

Each block of a reply is one content block. A call's arguments are sent when complete, which is Anthropic's default:
clients that parse partial JSON fail if the model's JSON is wrong.

Example:

    request, wire = read_messages({"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}, new_id)
    request.messages                   # (Message(Role.USER, "Hi"),)
    wire.whole(reply)["content"]       # [{"type": "thinking", ...}, {"type": "text", "text": "Let me see."}, ...]
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial

from slime_agent_openai.errors import ApiError, bad_request
from slime_agent_openai.message import Delta, Finish, Message, Reply, Request, Role, Tool, ToolCall, as_object
from slime_agent_openai.wires.blocks import Block, Blocks, Kind, Stage, Step
from slime_agent_openai.wires.bodies import HistoryCache
from slime_agent_openai.wires.options import (
    KWARGS,
    PROMPT_OPTIONS,
    Hosted,
    format_of,
    forms_of,
    function_tool,
    has_call_rules,
    hosted_tool,
    sampling_of,
    stop_texts,
    template_of,
    typed_choice_of,
)
from slime_agent_openai.wires.values import Only, Value, read_fields, text_of, unreadable
from slime_agent_openai.wires.wire import MODEL, Body, NewId, Wire, anthropic_error, event

REFUSED: Mapping[str, Only] = {
    **PROMPT_OPTIONS,
    "container": Only((), "no code runs on the server; offer functions"),
    "mcp_servers": Only(([],), "the gateway does not connect to MCP servers; offer their tools as functions"),
}
TEXTS = {"text": "text"}
BLOCKS = "use text, thinking, redacted_thinking, tool_use or tool_result"


def read_messages(
    body: Body, new_id: NewId, known: HistoryCache | None = None, *, hosted: Hosted = "refuse"
) -> tuple[Request, Wire]:
    """A request, and the wire that writes its reply; `known`: earlier parts; `hosted`: for a provider's tools."""
    fields, known = read_fields(body, REFUSED), known or HistoryCache()
    after = _continued_id(fields.at("thread"))
    history = known.messages.read(fields.at("messages"), _messages)
    if not history:
        raise bad_request("messages is empty; send at least one message", "messages")
    if fields.at("max_tokens").is_given and history[-1].role is Role.ASSISTANT:  # any history can be counted
        raise bad_request("the last message is the assistant's, but prefilled replies are not supported", "messages")
    if (system := text_of(fields.at("system"), TEXTS)) and not after:
        history = (Message(Role.SYSTEM, system), *history)
    tools = known.tools.read(fields.at("tools"), partial(_tools, hosted=hosted))
    may_call, constraints = typed_choice_of(fields.at("tool_choice"))
    if (config := fields.at("output_config")).is_given:
        constraints += format_of(config.at("format"))
    name = new_id("msg")
    request = Request(
        history,
        ids=(name,),
        tools=tools if may_call else (),
        after=after,
        after_field="thread.previous_message_id",
        instructions=system if after else "",
        max_tokens=fields.at("max_tokens").whole(1),
        stop=stop_texts(fields.at("stop_sequences")),
        template=template_of(fields.at(KWARGS)),
        sampling=sampling_of(fields),
        constraints=(*constraints, *format_of(fields.at("output_format")), *forms_of(fields)),
        has_call_rules=may_call and has_call_rules(tools, one_call=_wants_one_call(fields.at("tool_choice"))),
    )
    return request, MessagesWire(name, fields.at("model").text(MODEL), new_id, streams=fields.at("stream").flag())


def _wants_one_call(choice: Value) -> bool:
    return choice.is_given and choice.at("disable_parallel_tool_use").flag()


def _continued_id(thread: Value) -> str:
    """Id of the message that a thread continues; empty: a new thread, or none."""
    if not thread.is_given:
        return ""
    match thread.at("type").text():
        case "create":
            return ""
        case "continue":
            if name := thread.at("previous_message_id").text():
                return name
            raise thread.at("previous_message_id").invalid("the id of a message")
    raise thread.at("type").invalid('"create" or "continue"')


def _messages(message: Value) -> Iterator[Message]:
    """Converts one message: answers of tools become separate messages, in their place."""
    role, content = message.at("role"), message.at("content")
    match role.text():
        case "system":
            yield Message(Role.SYSTEM, text_of(content, TEXTS))
        case "assistant":
            yield _assistant(content)
        case "user":
            yield from _user(content)
        case _:
            raise role.invalid("user, assistant or system")


def _assistant(content: Value) -> Message:
    if isinstance(content.json, str):
        return Message(Role.ASSISTANT, content.text())
    texts, thoughts, calls = [], [], []
    for block in content.each():
        match kind := block.at("type").text():
            case "text":
                texts.append(block.at("text").text())
            case "thinking":
                thoughts.append(block.at("thinking").text())
            case "redacted_thinking":
                pass
            case "tool_use":
                calls.append(ToolCall(block.at("id").text(), block.at("name").text(), block.at("input").as_json()))
            case _:
                raise unreadable(block, kind, BLOCKS)
    return Message(Role.ASSISTANT, "".join(texts), "".join(thoughts), tuple(calls))


def _user(content: Value) -> Iterator[Message]:
    if isinstance(content.json, str):
        yield Message(Role.USER, content.text())
        return
    texts: list[str] = []
    has_answers = False
    for block in content.each():
        match kind := block.at("type").text():
            case "text":
                texts.append(block.at("text").text())
            case "tool_result":
                if texts:
                    yield Message(Role.USER, "".join(texts))
                    texts = []
                has_answers = True
                answer = text_of(block.at("content"), TEXTS)
                yield Message(Role.TOOL, answer, answers=block.at("tool_use_id").text())
            case _:
                raise unreadable(block, kind, BLOCKS)
    if texts or not has_answers:
        yield Message(Role.USER, "".join(texts))


def _tools(offered: Value, hosted: Hosted) -> Iterator[Tool]:
    if offered.at("type").text("custom") == "custom":
        yield function_tool(offered, "input_schema")
    else:
        hosted_tool(offered, hosted)


FINISHES = {Finish.STOP: "end_turn", Finish.LENGTH: "max_tokens", Finish.CALLS: "tool_use"}
BLOCK_IDS = {Kind.REASONING: "sig", Kind.TEXT: "text", Kind.CALL: "use"}
"""Prefixes of block ids. Clients see only the ids of reasoning blocks, as signatures."""


class MessagesWire:
    """Writes one reply."""

    def __init__(self, name: str, model: str, new_id: NewId, *, streams: bool) -> None:
        self._base: Body = {"id": name, "type": "message", "role": "assistant", "model": model}
        self._streams = streams
        self._blocks = Blocks(new_id, BLOCK_IDS)

    @property
    def streams(self) -> bool:
        return self._streams

    def whole(self, reply: Reply) -> Body:
        blocks = [_block(block) for block in self._blocks.of(reply.message)]
        return {**self._base, "content": [*blocks], **_stop(reply), "usage": _usage(reply)}

    def begin(self, prompt_tokens: int) -> Iterator[bytes]:
        usage: Body = {"input_tokens": prompt_tokens, "output_tokens": 0}
        begun: Body = {**self._base, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield _event("message_start", {"message": begun})

    def add(self, delta: Delta) -> Iterator[bytes]:
        for step in self._blocks.add(delta):
            yield from _step_events(step)

    def end(self, reply: Reply) -> Iterator[bytes]:
        for step in self._blocks.end():
            yield from _step_events(step)
        yield _event("message_delta", {"delta": _stop(reply), "usage": _usage(reply)})
        yield _event("message_stop", {})

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield event(anthropic_error(error), "error")


def _step_events(step: Step) -> Iterator[bytes]:
    block, at = step.block, {"index": step.block.index}
    match step.stage, block.kind:
        case Stage.STARTED, _:
            yield _event("content_block_start", {**at, "content_block": {**_block(block), **_EMPTY_FIELDS[block.kind]}})
        case Stage.ADDED, Kind.REASONING:
            yield _event("content_block_delta", {**at, "delta": {"type": "thinking_delta", "thinking": step.text}})
        case Stage.ADDED, Kind.TEXT:
            yield _event("content_block_delta", {**at, "delta": {"type": "text_delta", "text": step.text}})
        case Stage.ENDED, kind:
            if kind is Kind.REASONING:
                signed: Body = {"type": "signature_delta", "signature": block.id}
                yield _event("content_block_delta", {**at, "delta": signed})
            if kind is Kind.CALL:
                arguments = json.dumps(as_object(block.text), ensure_ascii=False)
                delta: Body = {"type": "input_json_delta", "partial_json": arguments}
                yield _event("content_block_delta", {**at, "delta": delta})
            yield _event("content_block_stop", {**at})


_EMPTY_FIELDS: dict[Kind, Body] = {Kind.REASONING: {"thinking": "", "signature": ""}, Kind.TEXT: {}, Kind.CALL: {}}
"""Empty fields of a block at its start."""


def _block(block: Block) -> Body:
    if block.call is not None:
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": as_object(block.text)}
    if block.kind is Kind.TEXT:
        return {"type": "text", "text": block.text}
    return {"type": "thinking", "thinking": block.text, "signature": block.id}


def _stop(reply: Reply) -> Body:
    by_text = reply.finish is Finish.STOP and reply.stop is not None
    return {
        "stop_reason": "stop_sequence" if by_text else FINISHES[reply.finish],
        "stop_sequence": reply.stop if by_text else None,
    }


def _usage(reply: Reply) -> Body:
    """Token counts; as in Anthropic's API, cached prompt tokens are counted separately."""
    return {
        "input_tokens": reply.prompt_tokens - reply.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.cached_tokens,
        "output_tokens": len(reply.tokens),
    }


def _event(kind: str, fields: Body) -> bytes:
    return event({"type": kind, **fields}, kind)
