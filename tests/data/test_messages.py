"""Messages and tools of a row: one form for every way in which data sets write them; anything else is a bad row."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slime_core.data import ChatTemplate, HfTokenizer, PromptSource
from slime_core.data.rows import arrow_values, read_messages, read_tools
from slime_core.errors import DataError
from slime_core.sample import Json
from tests.tables import table

MakeSource = Callable[..., PromptSource]
CALL: Json = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
AS_TEXT: Json = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"default": None}}}}}
TEXT_PART: Json = {"type": "text", "text": "b"}
IMAGE: Json = {"type": "image", "image": "a.png"}


def user(content: Json) -> Json:
    return {"role": "user", "content": content}


def assistant(**fields: Json) -> Json:
    return {"role": "assistant", **fields}


def tool(content: Json) -> Json:
    return {"role": "tool", "content": content}


READ: list[tuple[Json, Json]] = [
    (user([TEXT_PART, {"type": "text", "text": "c"}]), user("bc")),
    (user(["a", TEXT_PART]), user("ab")),
    (user([{"text": "a"}]), user("a")),
    (user([IMAGE, "a"]), user([IMAGE, {"type": "text", "text": "a"}])),
    (user([{**TEXT_PART, "image": None}, IMAGE]), user([TEXT_PART, IMAGE])),  # type: ignore[dict-item]
    (json.dumps(user("a")), user("a")),
    ({**user("a"), "name": None, "tool_calls": None}, user("a")),  # type: ignore[dict-item]
    (assistant(content=None, tool_calls=[CALL]), assistant(content="", tool_calls=[CALL])),
    (assistant(tool_calls=[AS_TEXT]), assistant(content="", tool_calls=[CALL])),
    (assistant(content="", tool_calls=json.dumps([AS_TEXT])), assistant(content="", tool_calls=[CALL])),
    (assistant(content="", tool_calls=[json.dumps(AS_TEXT)]), assistant(content="", tool_calls=[CALL])),
    (
        assistant(content="", tool_calls=[{"name": "f", "arguments": ""}]),
        assistant(content="", tool_calls=[{"name": "f", "arguments": {}}]),
    ),
    (assistant(content="a", tool_calls=[]), assistant(content="a")),
    (assistant(content=None, reasoning_content="r"), assistant(content="", reasoning_content="r")),
    (tool({"degrees": 20}), tool('{"degrees": 20}')),
    (tool(["a", "b"]), tool('["a", "b"]')),
    (tool([TEXT_PART]), tool("b")),
    (tool([]), tool("[]")),
]

REFUSED: list[tuple[Json, str]] = [
    (5, "message 0 of 'm' must be an object .*, got a number"),
    ("hi", "message 0 of 'm' is a text, but not JSON"),
    ({"from": "human", "value": "a"}, "got the keys from, value. For from write role, for value content"),
    ({"role": "human", "content": "a"}, r"message 0 of 'm' \(human\): .*; write 'user'"),
    ({"role": "gpt", "content": "a"}, "write 'assistant'"),
    (user(5), r"the content of message 0 of 'm' \(user\) must be a text or a list of parts with text, got a number"),
    (user(True), "got a boolean"),
    (user({"text": "a"}), "got an object"),
    (user([]), "got a list"),
    (user([5]), "got a list"),
    (user([{"type": "tool_use", "name": "f"}]), "got a list"),
    (user(None), "got nothing"),
    ({"role": "user"}, "got nothing"),
    (assistant(content=None), "got nothing"),
    (assistant(content=None, tool_calls=[]), "got nothing"),
    (tool(None), "got nothing"),
    (tool(20), "got a number"),
    (assistant(content="", tool_calls="{"), "tool_calls of message 0 .* is a text, but not JSON"),
    (assistant(content="", tool_calls={"name": "f"}), "tool_calls of message 0 .* must be a list, got an object"),
    (assistant(content="", tool_calls=[5]), "call 0 of message 0 .* must be an object"),
    (assistant(content="", tool_calls=[{"arguments": {}}]), "call 0 .* got the keys arguments"),
    (assistant(content="", tool_calls=[{"name": "f", "arguments": "city=Paris"}]), "arguments of call 0 .* not JSON"),
    (assistant(content="", tool_calls=[{"name": "f", "arguments": "[1]"}]), "arguments of call 0 .*, got a list"),
    (assistant(content="", function_call={"name": "f"}), "function_call, .*; write tool_calls"),
]


def test_every_way_of_writing_a_message_is_read_as_one() -> None:
    wrong = {json.dumps(row): found for row, want in READ if (found := read_messages([row], "m")) != [want]}
    assert not wrong


@table("given, says", REFUSED)
def test_any_other_message_is_refused_by_its_number(given: Json, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_messages([given], "m")
    with pytest.raises(DataError, match=says.replace("message 0", "message 1")):
        read_messages([user("fine"), given], "m")


def test_tools_are_objects_or_their_json() -> None:
    text = json.dumps(TOOL)
    for form in ([TOOL], [text], f"[{text}]"):
        assert read_tools(form, "tools") == [TOOL], form
    flat: Json = {"name": "f", "parameters": '{"type": "object"}'}
    assert read_tools([flat], "tools") == [{"name": "f", "parameters": {"type": "object"}}]
    assert read_tools([], "tools") is read_tools(None, "tools") is None
    for wrong, says in ((TOOL, "must be a list"), ([5], "tool 0 .* got a number"), (["{"], "tool 0 .* not JSON")):
        with pytest.raises(DataError, match=says):
            read_tools(wrong, "tools")


def test_nulls_of_arrow_go_and_those_of_an_author_stay() -> None:
    assert arrow_values({"a": None, "b": [None, {"c": None}]}) == {"a": None, "b": [None, {}]}
    assert read_tools([TOOL], "tools") == [TOOL]


TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %};{% endfor %}"
)
"""As GLM-4.5's and Cohere's templates write content, and Qwen2.5's write calls and tools."""
ROW: dict[str, Json] = {
    "input": [
        {"role": "user", "content": "w?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "now", "arguments": {"zone": "x"}}}],
        },
        {"role": "tool", "content": "20", "tool_calls": None},
    ],
    "tools": [
        {"function": {"name": "weather", "parameters": {"city": {"type": "string"}}}},
        {"function": {"name": "now", "parameters": {"zone": {"type": "string", "enum": ["x"]}}}},
    ],
}


@table("form", ["jsonl", "parquet"])
def test_a_prompt_is_the_same_from_every_kind_of_file(
    make_source: MakeSource, tokenizer: HfTokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    monkeypatch.setattr(tokenizer, "template", ChatTemplate({"default": TEMPLATE}, {}, "mine"))
    want = (
        "".join(f"{json.dumps(each)}\n" for each in ROW["tools"])  # type: ignore[union-attr]
        + 'user:w?;assistant:weather{"city": "Paris"};assistant:now{"zone": "x"};tool:20;'
    )
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "rows.parquet")
    fields = {"apply_chat_template": True, **({} if form == "jsonl" else {"path": tmp_path / "rows.parquet"})}
    assert asyncio.run(make_source([ROW], **fields).draw(1))[0].samples[0].prompt == want


def test_a_text_is_messages_only_if_it_is_their_json(make_source: MakeSource) -> None:
    messages = [user("w?")]
    rows: list[Json] = [json.dumps(messages), "[1]", '[{"role": "user"', '[{"content": "no role"}]']
    groups = asyncio.run(make_source([{"input": row} for row in rows]).draw(4))
    assert [group.samples[0].prompt for group in groups] == [messages, *rows[1:]]
