"""OpenAI's chat completions: reads the body of `POST /v1/chat/completions`, and writes its reply.

Example:

    request, wire = read_chat({"model": "policy", "messages": [{"role": "user", "content": "Hi"}]}, new_id)
    request.messages                   # (Message(Role.USER, "Hi"),)
    wire.whole(reply)["choices"]       # [{"index": 0, "message": {"role": "assistant", ...}, ...}]
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slime_agent_openai.errors import ApiError, bad_request, unsupported
from slime_agent_openai.message import (
    CallDelta,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    Role,
    TextDelta,
    Tool,
    ToolCall,
)
from slime_agent_openai.wires.bodies import HistoryCache
from slime_agent_openai.wires.options import (
    KWARGS,
    PROMPT_OPTIONS,
    choice_of,
    format_of,
    forms_of,
    function_tool,
    has_call_rules,
    sampling_of,
    stop_texts,
    template_of,
    wants_usage,
)
from slime_agent_openai.wires.values import NO_RECORDING, ONE_REPLY, Only, Value, read_fields, text_of
from slime_agent_openai.wires.wire import MODEL, Body, NewId, Wire, as_json, event, openai_error
from slime_core.sample import Json

REFUSED: Mapping[str, Only] = {
    **PROMPT_OPTIONS,
    "audio": Only((), NO_RECORDING),
    "function_call": Only(("auto", "none"), "use tools and tool_choice"),
    "functions": Only(([],), "use tools"),
    "modalities": Only((["text"],), NO_RECORDING),
    "n": Only((1,), ONE_REPLY),
    "top_logprobs": Only((0,), "only log-probs of sampled tokens are available"),
    "web_search_options": Only((), "there is no web search here; offer a function that searches"),
}
TEXTS = {"text": "text", "refusal": "refusal"}


def read_chat(body: Body, new_id: NewId, known: HistoryCache | None = None) -> tuple[Request, Wire]:
    """A request, and the wire that writes its reply; `known`: cache of the conversation so far."""
    fields, known = read_fields(body, REFUSED), known or HistoryCache()
    messages = known.messages.read(fields.at("messages"), lambda message: (_read_message(message),))
    if not messages:
        raise bad_request("messages is empty; send at least one message", "messages")
    tools = known.tools.read(fields.at("tools"), lambda offered: (_tool(offered),))
    may_call, forced = choice_of(fields.at("tool_choice"))
    name, log_probs = new_id("chatcmpl"), fields.at("logprobs").flag()
    most, legacy = fields.at("max_completion_tokens").whole(1), fields.at("max_tokens").whole(1)
    request = Request(
        messages,
        ids=(name,),
        tools=tools if may_call else (),
        max_tokens=legacy if most is None else most,
        stop=stop_texts(fields.at("stop")),
        template=template_of(fields.at(KWARGS)),
        sampling=sampling_of(fields),
        constraints=(*forced, *format_of(fields.at("response_format")), *forms_of(fields)),
        has_call_rules=may_call and has_call_rules(tools, one_call=fields.at("parallel_tool_calls").denies()),
        log_probs=log_probs,
    )
    wire = ChatWire(
        name,
        fields.at("model").text(MODEL),
        streams=fields.at("stream").flag(),
        reports_usage=wants_usage(fields),
        log_probs=log_probs,
    )
    return request, wire


def _read_message(message: Value) -> Message:
    content, role = text_of(message.at("content"), TEXTS), message.at("role")
    match role.text():
        case "system" | "developer":
            return Message(Role.SYSTEM, content)
        case "user":
            return Message(Role.USER, content)
        case "assistant":
            reasoning = message.at("reasoning_content").text("") or message.at("reasoning").text("")
            return Message(Role.ASSISTANT, content, reasoning, _calls(message))
        case "tool":
            return Message(Role.TOOL, content, answers=message.at("tool_call_id").text(""))
        case "function":  # the predecessor of tools, without an id
            return Message(Role.TOOL, content)
    raise role.invalid("system, developer, user, assistant, tool or function")


def _calls(message: Value) -> tuple[ToolCall, ...]:
    if (legacy_call := message.at("function_call")).is_given:
        return (_call("", legacy_call),)
    calls = message.at("tool_calls").each()
    return tuple(_call(_function(call).at("id").text(""), call.at("function")) for call in calls)


def _call(name: str, function: Value) -> ToolCall:
    return ToolCall(name, function.at("name").text(), function.at("arguments").text(""))


def _tool(offered: Value) -> Tool:
    return function_tool(_function(offered).at("function"), "parameters")


def _function(at: Value) -> Value:
    if (kind := at.at("type").text("function")) != "function":
        raise unsupported(at.path, f"its type is {kind!r}, but only tools of type 'function' are supported")
    return at


FINISHES = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.CALLS: "tool_calls"}
LEAST_LOG_PROB = -9999.0  # OpenAI's value for a probability of 0: JSON has no infinity


@dataclass(frozen=True, slots=True)
class ChatWire:
    """Writes one reply."""

    id: str  # Id of the completion
    model: str  # Model name from the request
    streams: bool  # Whether the request asks for a stream
    reports_usage: bool = False  # Whether a stream reports token counts
    log_probs: bool = False  # Whether to report each token's log-prob
    created: int = field(default_factory=lambda: int(time.time()))  # Seconds since 1970
    _heads: list[str] = field(default_factory=list, repr=False)

    def whole(self, reply: Reply) -> Body:
        choice: Body = {
            "index": 0,
            "message": _message(reply.message),
            "logprobs": self._log_probs(reply),
            "finish_reason": FINISHES[reply.finish],
        }
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(reply)}

    def begin(self, prompt_tokens: int) -> Iterator[bytes]:
        yield self._chunk('{"role":"assistant","content":""}')

    def add(self, delta: Delta) -> Iterator[bytes]:
        match delta:
            case ReasoningDelta(text=text):
                yield self._chunk(f'{{"reasoning_content":{as_json(text)}}}')
            case TextDelta(text=text):
                yield self._chunk(f'{{"content":{as_json(text)}}}')
            case CallDelta(index=index, call=call):
                yield self._chunk(as_json({"tool_calls": [{"index": index, **_call_body(call)}]}))

    def end(self, reply: Reply) -> Iterator[bytes]:
        ending = as_json({"logprobs": self._log_probs(reply), "finish_reason": FINISHES[reply.finish]})
        yield self._chunk("{}", ending[1:-1])
        if self.reports_usage:
            yield event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage(reply)})
        yield event("[DONE]")

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """An error without a regular end: clients take a stream that just stops for a complete answer."""
        yield event(openai_error(error))

    def _head(self, kind: str) -> Body:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: str, rest: str = '"logprobs":null,"finish_reason":null') -> bytes:
        """A chunk with its delta as JSON; the constant head is encoded only once."""
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
    """Token counts, in the format of chat and legacy completions."""
    count = len(reply.tokens)
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": count,
        "total_tokens": reply.prompt_tokens + count,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
    }


def _message(message: Message) -> Body:
    body: Body = {"role": "assistant", "content": message.text or (None if message.calls else ""), "refusal": None}
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.calls:
        body["tool_calls"] = [_call_body(call) for call in message.calls]
    return body


def _call_body(call: ToolCall) -> Body:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
