"""OpenAI's Responses: reads the body of `POST /v1/responses`.

Example:

    request, wire = read_responses({"input": "And now?", "previous_response_id": "resp_1"}, new_id)
    request.after           # "resp_1": what was said so far need not be sent again
"""

from collections.abc import Iterator
from dataclasses import replace

from slime_agent_openai.errors import refused, unsupported
from slime_agent_openai.memory import Memory, Turn
from slime_agent_openai.message import Message, Role, Tool
from slime_agent_openai.request import Constraint, Request
from slime_agent_openai.wires.constraints import FORMS, choice_of, format_of, forms_of, has_call_rules
from slime_agent_openai.wires.fields import Fields, Only
from slime_agent_openai.wires.items import messages_of, prefix
from slime_agent_openai.wires.models import MODEL
from slime_agent_openai.wires.offered import Hosted, function_tool, hosted_tool
from slime_agent_openai.wires.reading import Value
from slime_agent_openai.wires.responses_reply import ResponsesWire
from slime_agent_openai.wires.sampling import SAMPLING, number, sampling_of
from slime_agent_openai.wires.templating import KWARGS, TEMPLATED, template_of
from slime_agent_openai.wires.wire import Body, NewId, Wire

FIELDS = Fields(
    heeded={
        *("conversation", "include", "input", "instructions", "max_output_tokens", "metadata", "model"),
        *(
            "parallel_tool_calls",
            "previous_response_id",
            "store",
            "stream",
            "text",
            "tool_choice",
            "tools",
            "truncation",
        ),
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
)
"""What a request may ask."""


def read_responses(
    body: Body, new_id: NewId, turn: Turn | None = None, *, hosted: Hosted = "refuse"
) -> tuple[Request, Wire]:
    """A request, and what writes its reply.

    Args:
        body: of the HTTP request.
        new_id: makes ids.
        turn: what it goes on from, as `Memory.turn` finds it; None: nothing is stored that it could name.
        hosted: what becomes of tools that are not functions.

    Raises:
        ApiError: it asks for what is not here, or is none of this protocol.
    """
    asked = FIELDS.read(body)
    _refuse_more(asked)
    turn = turn or Memory(new_id).turn(body)
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
    """What is refused within a field."""
    for included in asked.at("include").each():
        if included.text() == "message.output_text.logprobs":
            raise unsupported(included.path, "only chat completions tell log-probs")
    if (cut := asked.at("truncation")).text("disabled") not in ("auto", "disabled"):
        raise cut.wrong('"auto" or "disabled"')


def _format(text: Value) -> tuple[Constraint, ...]:
    return format_of(text.at("format")) if text.is_given else ()


def _tools(offered: Value, hosted: Hosted) -> Iterator[tuple[str, Tool]]:
    """Functions with their namespaces, which have a part in the name that the model sees."""
    match offered.at("type").text():
        case "function":
            yield "", function_tool(offered, "parameters")
        case "namespace":
            space = offered.at("name").text()
            for _, tool in (each for member in offered.at("tools").each() for each in _tools(member, hosted)):
                yield space, replace(tool, name=prefix(space) + tool.name)
        case _:
            hosted_tool(offered, hosted)
