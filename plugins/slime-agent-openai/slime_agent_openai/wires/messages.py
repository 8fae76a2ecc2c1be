"""Anthropic's Messages: reads the body of `POST /v1/messages`, and of `/v1/messages/count_tokens`.

Example:

    request, wire = read_messages({"max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}, new_id)
    request.messages        # (Message(Role.USER, "Hi"),)
"""

from collections.abc import Iterator
from functools import partial

from slime_agent_openai.errors import refused
from slime_agent_openai.message import Message, Role, Tool, ToolCall
from slime_agent_openai.request import Request
from slime_agent_openai.wires.constraints import FORMS, format_of, forms_of, has_call_rules, typed_choice_of
from slime_agent_openai.wires.fields import Fields, Only
from slime_agent_openai.wires.known import Known
from slime_agent_openai.wires.messages_reply import MessagesWire
from slime_agent_openai.wires.models import MODEL
from slime_agent_openai.wires.offered import Hosted, function_tool, hosted_tool
from slime_agent_openai.wires.reading import Value, text_of, unreadable
from slime_agent_openai.wires.sampling import SAMPLING, sampling_of, stop_texts
from slime_agent_openai.wires.templating import KWARGS, TEMPLATED, template_of
from slime_agent_openai.wires.wire import Body, NewId, Wire

FIELDS = Fields(
    heeded={
        *("max_tokens", "messages", "model", "output_config", "output_format", "stop_sequences", "stream", "system"),
        *("thread", "tool_choice", "tools"),
        *SAMPLING,
        *FORMS,
        KWARGS,
    },
    harmless={
        *("betas", "billing_policy", "cache_control", "compaction", "context_management", "diagnostics", "fallbacks"),
        *("fallback_credit_token", "inference_geo", "metadata", "service_tier", "speed", "thinking", "user_profile_id"),
        "workspace_id",
    },
    refused={
        **TEMPLATED,
        "container": Only((), "nothing is run for the model; offer functions"),
        "mcp_servers": Only(([],), "servers of tools are the agent's to ask; offer their functions"),
    },
)
"""What a request may ask."""
TEXTS = {"text": "text"}
BLOCKS = "text, thinking, redacted_thinking, tool_use and tool_result are read"


def read_messages(
    body: Body, new_id: NewId, known: Known | None = None, *, hosted: Hosted = "refuse"
) -> tuple[Request, Wire]:
    """A request, and what writes its reply.

    Args:
        body: of the HTTP request.
        new_id: makes ids.
        known: what was read of the conversation before.
        hosted: what becomes of tools that are not functions.

    Raises:
        ApiError: it asks for what is not here, or is none of this protocol.
    """
    asked, known = FIELDS.read(body), known or Known()
    after = _continued(asked.at("thread"))
    said = known.messages.read(asked.at("messages"), _messages)
    if not said:
        raise refused("messages is empty; a conversation has at least one", "messages")
    if asked.at("max_tokens").is_given and said[-1].role is Role.ASSISTANT:  # tokens of any history can be counted
        raise refused("the last of messages is the assistant's: no reply is begun for the model", "messages")
    if (system := text_of(asked.at("system"), TEXTS)) and not after:
        said = (Message(Role.SYSTEM, system), *said)
    tools = known.tools.read(asked.at("tools"), partial(_tools, hosted=hosted))
    may_call, constraints = typed_choice_of(asked.at("tool_choice"))
    if (config := asked.at("output_config")).is_given:
        constraints += format_of(config.at("format"))
    name = new_id("msg")
    request = Request(
        said,
        ids=(name,),
        tools=tools if may_call else (),
        after=after,
        after_field="thread.previous_message_id",
        instructions=system if after else "",
        max_tokens=asked.at("max_tokens").whole(1),
        stop=stop_texts(asked.at("stop_sequences")),
        template=template_of(asked.at(KWARGS)),
        sampling=sampling_of(asked),
        constraints=(*constraints, *format_of(asked.at("output_format")), *forms_of(asked)),
        has_call_rules=may_call and has_call_rules(tools, one_call=_wants_one_call(asked.at("tool_choice"))),
    )
    return request, MessagesWire(name, asked.at("model").text(MODEL), new_id, streams=asked.at("stream").flag())


def _wants_one_call(choice: Value) -> bool:
    return choice.is_given and choice.at("disable_parallel_tool_use").flag()


def _continued(thread: Value) -> str:
    """Id of the message that a thread goes on from; empty: a new thread, or none."""
    if not thread.is_given:
        return ""
    match thread.at("type").text():
        case "create":
            return ""
        case "continue":
            if name := thread.at("previous_message_id").text():
                return name
            raise thread.at("previous_message_id").wrong("the id of a message")
    raise thread.at("type").wrong('"create" or "continue"')


def _messages(said: Value) -> Iterator[Message]:
    """One of theirs: answers of tools are messages of their own, in their place."""
    role, content = said.at("role"), said.at("content")
    match role.text():
        case "system":
            yield Message(Role.SYSTEM, text_of(content, TEXTS))
        case "assistant":
            yield _assistant(content)
        case "user":
            yield from _user(content)
        case _:
            raise role.wrong("user, assistant or system")


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
