"""OpenAI's Responses: reads the body of `POST /v1/responses`, and writes its reply.

Each block of a reply is an item with one id in all events and in the body. A later request may refer to an item
by its id, or to the reply that it continues, instead of sending them.

Example:

    request, wire = read_responses({"input": "And now?", "previous_response_id": "resp_1"}, new_id)
    request.after           # "resp_1": the history need not be sent again
    wire.begin(12)          # response.created, response.in_progress
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from slime_agent_openai.errors import ApiError, bad_request, unsupported
from slime_agent_openai.message import Constraint, Delta, Finish, Message, Reply, Request, Role, Tool, ToolCall
from slime_agent_openai.wires.blocks import Block, Blocks, Kind, Stage, Step
from slime_agent_openai.wires.options import (
    KWARGS,
    PROMPT_OPTIONS,
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
from slime_agent_openai.wires.values import Only, Value, read_fields, text_of, unreadable
from slime_agent_openai.wires.wire import MODEL, Body, NewId, Wire, event
from slime_core.sample import Json

REFUSED: Mapping[str, Only] = {
    **PROMPT_OPTIONS,
    "background": Only((False,), "background requests are not supported; wait for the reply"),
    "conversation": Only((), "conversations are not stored; send previous_response_id or the history"),
    "prompt": Only((), "prompts are not stored; send the messages"),
    "top_logprobs": Only((0,), "only chat completions return log-probs"),
}
TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
THOUGHTS = {"reasoning_text": "text", "summary_text": "text", "text": "text"}
ITEMS = "use message, reasoning, function_call, function_call_output or item_reference"
ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}


@dataclass(slots=True)
class ResponseStore:
    """The replies of one session, and their items."""

    replies: dict[str, Body] = field(default_factory=dict)  # By id
    items: dict[str, Body] = field(default_factory=dict)  # By id

    def keep(self, replied: Body) -> None:
        output = replied["output"]
        assert isinstance(output, list), "it is a response"
        self.replies[str(replied["id"])] = replied
        self.items |= {str(item["id"]): item for item in output if isinstance(item, dict)}


def read_responses(
    body: Body, new_id: NewId, store: ResponseStore | None = None, *, hosted: Hosted = "refuse"
) -> tuple[Request, Wire]:
    """A request, and the wire that writes its reply; `store`: the replies that its session stored."""
    fields = read_fields(body, REFUSED)
    _check_options(fields)
    history = _messages(_items(fields.at("input"), store.items if store is not None else {}))
    if not history:
        raise bad_request("input is empty; send at least one message", "input")
    after, instructions = fields.at("previous_response_id").text(""), fields.at("instructions").text("")
    if instructions and not after:
        history = [Message(Role.SYSTEM, instructions), *history]
    tools = [tool for each in fields.at("tools").each() for tool in _tools(each, hosted)]
    offered = tuple(tool for _, tool in tools)
    name, (may, forced) = new_id("resp"), choice_of(fields.at("tool_choice"))
    request = Request(
        tuple(history),
        ids=(name,),
        tools=offered if may else (),
        after=after,
        instructions=instructions if after else "",
        max_tokens=fields.at("max_output_tokens").whole(1),
        template=template_of(fields.at(KWARGS)),
        sampling=sampling_of(fields),
        constraints=(*forced, *_format(fields.at("text")), *forms_of(fields)),
        has_call_rules=may and has_call_rules(offered, one_call=fields.at("parallel_tool_calls").denies()),
    )
    echoed: Body = {
        "max_output_tokens": request.max_tokens,
        "metadata": {**fields.at("metadata").object()},
        "model": fields.at("model").text(MODEL),
        "previous_response_id": after or None,
        "store": not fields.at("store").denies(),
        "temperature": number(fields, "temperature", 2),
        "tool_choice": "auto" if may else "none",
        "top_p": number(fields, "top_p", 1),
        "truncation": "disabled",
    }
    spaces = {tool.name: (space, tool.name.removeprefix(_prefix(space))) for space, tool in tools if space}
    return request, ResponsesWire(name, echoed, new_id, streams=fields.at("stream").flag(), namespaces=spaces)


def _items(value: Value, known: Mapping[str, Body]) -> Iterator[Value]:
    """The items of an input; references are replaced by their items."""
    if isinstance(value.json, str):
        yield Value({"type": "message", "role": "user", "content": value.text()}, value.path)
        return
    for item in value.each():
        if item.at("type").text("message" if item.at("role").is_given else "item_reference") != "item_reference":
            yield item
            continue
        name = item.at("id").text()
        if name not in known:
            problem = f"{item.path} refers to {name!r}, but this session has no item with this id; send the item itself"
            raise ApiError(404, problem, code="item_not_found", param=item.path)
        yield Value(known[name], item.path)


def _messages(items: Iterable[Value]) -> list[Message]:
    """Messages of the items; consecutive items of one reply form one message."""
    messages: list[Message] = []
    for item in items:
        new = _item_message(item)
        if messages and messages[-1].role is new.role is Role.ASSISTANT:
            old = messages.pop()
            text, reasoning = old.text + new.text, old.reasoning + new.reasoning
            new = replace(old, text=text, reasoning=reasoning, calls=(*old.calls, *new.calls))
        messages.append(new)
    return messages


def _item_message(item: Value) -> Message:
    kind = item.at("type").text("message")
    match kind:
        case "message":
            if (role := ROLES.get(item.at("role").text())) is None:
                raise item.at("role").invalid(", ".join(ROLES))
            return Message(role, text_of(item.at("content"), TEXTS))
        case "reasoning":
            thoughts = text_of(item.at("content"), THOUGHTS) or text_of(item.at("summary"), THOUGHTS)
            return Message(Role.ASSISTANT, reasoning=thoughts)
        case "function_call":
            name = _prefix(item.at("namespace").text("")) + item.at("name").text()
            call = ToolCall(item.at("call_id").text(), name, item.at("arguments").text(""))
            return Message(Role.ASSISTANT, calls=(call,))
        case "function_call_output":
            return Message(Role.TOOL, text_of(item.at("output"), TEXTS), answers=item.at("call_id").text())
    raise unreadable(item, kind, ITEMS)


def _prefix(space: str) -> str:
    """Prefix of a namespace's function names, as the model sees them."""
    return space if not space or space.endswith("__") else f"{space}__"


def _check_options(fields: Value) -> None:
    for included in fields.at("include").each():
        if included.text() == "message.output_text.logprobs":
            raise unsupported(included.path, "only chat completions return log-probs")
    if (truncation := fields.at("truncation")).text("disabled") not in ("auto", "disabled"):
        raise truncation.invalid('"auto" or "disabled"')


def _format(text: Value) -> tuple[Constraint, ...]:
    return format_of(text.at("format")) if text.is_given else ()


def _tools(offered: Value, hosted: Hosted) -> Iterator[tuple[str, Tool]]:
    match offered.at("type").text():
        case "function":
            yield "", function_tool(offered, "parameters")
        case "namespace":
            space = offered.at("name").text()
            for _, tool in (each for member in offered.at("tools").each() for each in _tools(member, hosted)):
                yield space, replace(tool, name=_prefix(space) + tool.name)
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
            yield from self._step_events(step, "completed")

    def end(self, reply: Reply) -> Iterator[bytes]:
        steps = list(self._blocks.end())
        for step in steps:
            yield from self._step_events(step, _status(reply) if step.block is steps[-1].block else "completed")
        yield self._event(f"response.{_status(reply)}", {"response": self.whole(reply)})

    def fail(self, error: ApiError) -> Iterator[bytes]:
        yield self._event("error", {"code": error.code, "message": error.message, "param": error.param})
        output: list[Json] = [self._item(block, "incomplete") for block in self._blocks.started]
        error_body: Body = {"code": "server_error", "message": error.message}
        failed: Body = {**self._base, "status": "failed", "error": error_body, "output": output}
        yield self._event("response.failed", {"response": failed})

    def _step_events(self, step: Step, status: str) -> Iterator[bytes]:
        block = step.block
        at: Body = {"item_id": block.id, "output_index": block.index}
        within: Body = at if block.kind is Kind.CALL else {**at, "content_index": 0}
        match step.stage:
            case Stage.STARTED:
                begun = {**self._item(block, "in_progress"), **({} if block.kind is Kind.CALL else {"content": []})}
                yield self._event("response.output_item.added", {"output_index": block.index, "item": begun})
                if block.kind is not Kind.CALL:
                    yield self._event("response.content_part.added", {**within, "part": _part(block.kind, "")})
            case Stage.ADDED:
                more: Body = {"delta": step.text, **({"logprobs": []} if block.kind is Kind.TEXT else {})}
                yield self._event(f"response.{_EVENT_KINDS[block.kind]}.delta", {**within, **more})
            case Stage.ENDED:
                yield from self._done_events(block, within, status)

    def _done_events(self, block: Block, within: Body, status: str) -> Iterator[bytes]:
        item = self._item(block, status)
        kind = f"response.{_EVENT_KINDS[block.kind]}.done"
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
            item: Body = {"type": "function_call", "id": block.id, "call_id": block.call.id, "name": name}
            return {**item, **({"namespace": space} if space else {}), "arguments": block.text, "status": status}
        if block.kind is Kind.TEXT:
            head: Body = {"type": "message", "id": block.id, "status": status, "role": "assistant"}
            return {**head, "content": [_part(block.kind, block.text)]}
        thoughts = _part(block.kind, block.text)
        return {"type": "reasoning", "id": block.id, "status": status, "summary": [], "content": [thoughts]}

    def _event(self, kind: str, fields: Body) -> bytes:
        number, self._sent = self._sent, self._sent + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)


_EVENT_KINDS = {Kind.REASONING: "reasoning_text", Kind.TEXT: "output_text", Kind.CALL: "function_call_arguments"}


def _part(kind: Kind, text: str) -> Body:
    if kind is Kind.REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish is Finish.LENGTH else "completed"


def _usage(reply: Reply) -> Body:
    count = len(reply.tokens)
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": count,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + count,
    }
