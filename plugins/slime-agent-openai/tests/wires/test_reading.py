"""What is heeded, what is refused and how that is said; and that no body at all breaks a reader."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import READERS, counted_ids

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Message, RequestedSetting, Role, Tool, ToolCall
from slime_agent_openai.wires import chat, completions, messages, responses
from slime_agent_openai.wires.wire import anthropic_error, openai_error
from tests.tables import table

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
HERE = Path(__file__)
BODIES = json.loads(HERE.with_name("bodies.json").read_text("utf-8"))
NOT_SUPPORTED = {
    "chat/completions": chat.REFUSED,
    "responses": responses.REFUSED,
    "messages": messages.REFUSED,
    "completions": completions.REFUSED,
}


def changed(path: str, **fields: object) -> Callable[[], object]:
    return lambda: READERS[path]({**BODIES[path], **fields}, counted_ids())


def refusal(read: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read()
    assert caught.value.status == 400
    return caught.value


def test_protocols_parse_to_the_same_request() -> None:
    tool = Tool("add", "Adds.", json.dumps(SCHEMA))
    for path in ("chat/completions", "responses", "messages"):
        request, wire = READERS[path](BODIES[path], counted_ids())
        assert wire.streams
        assert request.tools == (tool,)
        assert request.max_tokens == 7
        assert request.sampling[:2] == (
            RequestedSetting("temperature", 0.5, "temperature"),
            RequestedSetting("top_p", 1.0, "top_p"),
        )
        assert request.messages[:2] == (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Hi"))
        assert request.messages[2].reasoning == "hm"
        assert request.messages[2].calls[0].id == "c1"
        assert Message(Role.TOOL, "3", answers="c1") in request.messages


def test_legacy_function_calls_are_read() -> None:
    request, _ = READERS["chat/completions"](BODIES["chat/completions"], counted_ids())
    called, answered = request.messages[4:]
    assert called == Message(Role.ASSISTANT, calls=(ToolCall("", "add", "{}"),))
    assert answered == Message(Role.TOOL, "4")
    assert request.stop == ("a", "b")
    assert request.log_probs


def test_tool_results_keep_their_order() -> None:
    request, _ = READERS["messages"](BODIES["messages"], counted_ids())
    assert request.messages[3:] == (
        Message(Role.USER, "Here:"),
        Message(Role.TOOL, "3", answers="c1"),
        Message(Role.USER, "Go on."),
        Message(Role.SYSTEM, "Soon."),
    )
    assert RequestedSetting("top_k", 3, "top_k") in request.sampling


@table("path, choice", [("chat/completions", "none"), ("responses", "none"), ("messages", {"type": "none"})])
def test_tool_choice_none_offers_no_tools(path: str, choice: object) -> None:
    request, _ = changed(path, tool_choice=choice)()
    assert request.tools == ()


@table(
    "path, fields, constrained",
    [
        ("chat/completions", {"tool_choice": "required"}, ["tool_choice"]),
        ("chat/completions", {"tool_choice": {"type": "function", "function": {"name": "add"}}}, ["tool_choice"]),
        ("chat/completions", {"response_format": {"type": "json_object"}}, ["response_format"]),
        ("chat/completions", {"response_format": {"type": "text"}, "tool_choice": "auto"}, []),
        ("responses", {"tool_choice": "required"}, ["tool_choice"]),
        ("responses", {"tool_choice": {"type": "function", "name": "add"}}, ["tool_choice"]),
        ("responses", {"text": {"format": {"type": "json_schema", "name": "a", "schema": {}}}}, ["text.format"]),
        ("responses", {"text": {"format": {"type": "text"}, "verbosity": "low"}, "tool_choice": "auto"}, []),
        ("messages", {"tool_choice": {"type": "any"}}, ["tool_choice"]),
        ("messages", {"tool_choice": {"type": "tool", "name": "add"}}, ["tool_choice"]),
        ("messages", {"output_config": {"format": {"type": "json_schema", "schema": {}}}}, ["output_config.format"]),
        ("messages", {"output_format": {"type": "json_schema", "schema": {}}}, ["output_format"]),
        ("messages", {"output_config": {"effort": "high"}, "tool_choice": {"type": "auto"}}, []),
    ],
)
def test_forced_output_is_a_constraint(path: str, fields: dict[str, object], constrained: list[str]) -> None:
    request, _ = changed(path, **fields)()
    assert [each.field for each in request.constraints] == constrained
    assert request.tools


@table(
    "path, field, value",
    [
        ("chat/completions", "n", 2),
        ("chat/completions", "top_logprobs", 5),
        ("chat/completions", "modalities", ["text", "audio"]),
        ("chat/completions", "functions", [FUNCTION]),
        ("responses", "background", True),
        ("responses", "conversation", "conv_1"),
        ("messages", "mcp_servers", [{"type": "url"}]),
        ("completions", "echo", True),
        ("completions", "suffix", "the end"),
    ],
)
def test_unsupported_fields_are_refused_by_name(path: str, field: str, value: object) -> None:
    error = refusal(changed(path, **{field: value}))
    assert (error.code, error.param) == ("unsupported_parameter", field)
    assert error.message.startswith(f"{field} is not supported here: ")


@table("path", BODIES)
def test_no_op_values_are_accepted(path: str) -> None:
    for name, only in NOT_SUPPORTED[path].items():
        for value in (None, *only.values):
            changed(path, **{name: value})()
    changed(path, unheard_of={"a": 1})()


@table("path, fields, param, told", json.loads(HERE.with_name("refusals.json").read_text("utf-8")))
def test_invalid_field_is_named_with_its_path(path: str, fields: dict[str, object], param: str, told: str) -> None:
    error = refusal(changed(path, **fields))
    assert (error.param, error.message) == (param, told)


@table(
    "fields, code, param",
    [
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_not_found", "input[0]"),
        ({"input": [{"id": "msg_1"}]}, "item_not_found", "input[0]"),
    ],
)
def test_unknown_item_id_is_not_found(fields: dict[str, object], code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        changed("responses", **fields)()
    assert (caught.value.status, caught.value.code, caught.value.param) == (404, code, param)


@table("read", [responses.read_responses, messages.read_messages])
def test_hosted_tools_can_be_ignored(read: Callable[..., tuple]) -> None:
    path = "responses" if read is responses.read_responses else "messages"
    tools = [{"type": "web_search", "name": "web_search"}, *BODIES[path]["tools"]]
    request, _ = read({**BODIES[path], "tools": tools}, counted_ids(), hosted="ignore")
    assert [tool.name for tool in request.tools] == ["add"]


def test_errors_have_both_protocol_shapes() -> None:
    error = ApiError(404, "no such", code="not_found", param="after")
    told = {"message": "no such", "type": "not_found_error", "param": "after", "code": "not_found"}
    assert openai_error(error) == {"error": told}
    assert anthropic_error(error) == {
        "type": "error",
        "error": {
            "type": "not_found_error",
            "message": "no such",
            "details": {"error_code": "not_found", "param": "after"},
        },
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(
        ["user", "assistant", "tool_use", "function", "namespace", "message", "reasoning", "text", "\udc00"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "name", "input"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def nodes(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, member in members for deeper in nodes(member, (*path, key)))]


def replaced(value: object, path: tuple[str | int, ...], new: object) -> object:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@settings(max_examples=400)
@given(st.data())
def test_random_bodies_never_break_a_reader(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(BODIES)))
    body = BODIES[path]
    for _ in range(data.draw(st.integers(1, 3))):
        body = replaced(body, data.draw(st.sampled_from(nodes(body)[1:])), data.draw(JSON))
    try:
        request, wire = READERS[path](body, counted_ids())
    except ApiError as error:
        json.dumps([openai_error(error), anthropic_error(error)], ensure_ascii=False).encode()
        return
    for message in request.messages:
        json.dumps(message.for_template, ensure_ascii=False).encode()
    json.dumps([tool.for_template for tool in request.tools], ensure_ascii=False).encode()
    b"".join(wire.begin(3))
