"""OpenAI's chat completions: reads the body of `POST /v1/chat/completions`.

Example:

    request, wire = read_chat({"model": "policy", "messages": [{"role": "user", "content": "Hi"}]}, new_id)
    request.messages        # (Message(Role.USER, "Hi"),)
"""

from slime_agent_openai.errors import refused, unsupported
from slime_agent_openai.message import Message, Role, Tool, ToolCall
from slime_agent_openai.request import Request
from slime_agent_openai.wires.chat_reply import ChatWire
from slime_agent_openai.wires.constraints import FORMS, choice_of, format_of, forms_of, has_call_rules
from slime_agent_openai.wires.fields import NO_RECORDING, ONE_REPLY, Fields, Only
from slime_agent_openai.wires.known import Known
from slime_agent_openai.wires.models import MODEL
from slime_agent_openai.wires.offered import function_tool
from slime_agent_openai.wires.reading import Value, text_of
from slime_agent_openai.wires.sampling import SAMPLING, sampling_of, stop_texts, wants_usage
from slime_agent_openai.wires.templating import KWARGS, TEMPLATED, template_of
from slime_agent_openai.wires.wire import Body, NewId, Wire

FIELDS = Fields(
    heeded={
        *("logprobs", "max_completion_tokens", "max_tokens", "messages", "model", "response_format", "stop", "stream"),
        *("parallel_tool_calls", "stream_options", "tool_choice", "tools"),
        *SAMPLING,
        *FORMS,
        KWARGS,
    },
    harmless={
        *("metadata", "moderation", "prediction", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed", "service_tier", "store", "user"),
        "verbosity",
    },
    refused={
        **TEMPLATED,
        "audio": Only((), NO_RECORDING),
        "function_call": Only(("auto", "none"), "use tools and tool_choice"),
        "functions": Only(([],), "use tools"),
        "modalities": Only((["text"],), NO_RECORDING),
        "n": Only((1,), ONE_REPLY),
        "top_logprobs": Only((0,), "only the log-probs of what was sampled are known"),
        "web_search_options": Only((), "nothing here searches the web; offer a function that does"),
    },
)
"""What a chat completion may ask."""
TEXTS = {"text": "text", "refusal": "refusal"}


def read_chat(body: Body, new_id: NewId, known: Known | None = None) -> tuple[Request, Wire]:
    """A request, and what writes its reply; `known`: what was read of the conversation before.

    Raises:
        ApiError: it asks for what is not here, or is none of this protocol.
    """
    asked, known = FIELDS.read(body), known or Known()
    messages = known.messages.read(asked.at("messages"), lambda said: (_message(said),))
    if not messages:
        raise refused("messages is empty; a conversation has at least one", "messages")
    tools = known.tools.read(asked.at("tools"), lambda offered: (_tool(offered),))
    may_call, forced = choice_of(asked.at("tool_choice"))
    name, log_probs = new_id("chatcmpl"), asked.at("logprobs").flag()
    most, legacy = asked.at("max_completion_tokens").whole(1), asked.at("max_tokens").whole(1)
    request = Request(
        messages,
        ids=(name,),
        tools=tools if may_call else (),
        max_tokens=legacy if most is None else most,
        stop=stop_texts(asked.at("stop")),
        template=template_of(asked.at(KWARGS)),
        sampling=sampling_of(asked),
        constraints=(*forced, *format_of(asked.at("response_format")), *forms_of(asked)),
        has_call_rules=may_call and has_call_rules(tools, one_call=asked.at("parallel_tool_calls").denies()),
        log_probs=log_probs,
    )
    wire = ChatWire(
        name,
        asked.at("model").text(MODEL),
        streams=asked.at("stream").flag(),
        tells_usage=wants_usage(asked),
        log_probs=log_probs,
    )
    return request, wire


def _message(said: Value) -> Message:
    content, role = text_of(said.at("content"), TEXTS), said.at("role")
    match role.text():
        case "system" | "developer":
            return Message(Role.SYSTEM, content)
        case "user":
            return Message(Role.USER, content)
        case "assistant":
            reasoning = said.at("reasoning_content").text("") or said.at("reasoning").text("")
            return Message(Role.ASSISTANT, content, reasoning, _calls(said))
        case "tool":
            return Message(Role.TOOL, content, answers=said.at("tool_call_id").text(""))
        case "function":  # before there were tools: it has no id
            return Message(Role.TOOL, content)
    raise role.wrong("system, developer, user, assistant, tool or function")


def _calls(said: Value) -> tuple[ToolCall, ...]:
    if (old := said.at("function_call")).is_given:
        return (_call("", old),)
    return tuple(_call(_function(each).at("id").text(""), each.at("function")) for each in said.at("tool_calls").each())


def _call(name: str, function: Value) -> ToolCall:
    return ToolCall(name, function.at("name").text(), function.at("arguments").text(""))


def _tool(offered: Value) -> Tool:
    return function_tool(_function(offered).at("function"), "parameters")


def _function(at: Value) -> Value:
    """A tool or a call, if it is a function's."""
    if (kind := at.at("type").text("function")) != "function":
        raise unsupported(at.path, f"a tool of type {kind!r} is not a function of the agent's")
    return at
