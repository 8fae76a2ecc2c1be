import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from slime_agent_openai.message import CallDelta, Message, Role, TextDelta, ToolCall
from slime_agent_openai.parsers.answer import message_of
from tests.tables import table

if TYPE_CHECKING:
    from conftest import Written

WAYS = [
    "hermes",
    "qwen3-coder",
    "glm",
    "deepseek",
    "deepseek of old",
    "kimi-k2",
    "mistral",
    "mistral with ids",
    "mistral of old",
    "llama3",
    "lfm2",
    "gemma4",
    "gpt-oss",
    "plain",
]
EVERY = [*WAYS, *(f"{way}, spelled" for way in WAYS), "qwen3-coder, as released"]

crumbs = st.sampled_from(
    ["<", "</", ">", "{", "}", "[", "]", '"', "\\", "\n", " ", "tool_call", "think", "name", "|", "👩‍👩‍👧"]
)
texts = st.lists(crumbs | st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6), max_size=8).map(
    "".join
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "query": texts,
        "limit": st.integers(),
        "exact": st.booleans(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "where": st.dictionaries(texts, values, max_size=3),
        "tags": st.lists(values, max_size=3),
    },
)
calls = st.lists(st.tuples(st.sampled_from(["look_up", "note", "unheard_of"]), arguments), max_size=3)


def no_marker(text: str, markers: frozenset[str]) -> str:
    """The text with no marker in it: neither whole nor begun at its end."""
    for marker in (*sorted(markers), "<|begin|>", "<|end|>"):
        text = text.replace(marker, "")
    return text if not any(marker in text for marker in markers) else ""


@st.composite
def messages(draw: st.DrawFn, way: str, markers: frozenset[str]) -> Message:
    asked = draw(calls) if not way.startswith("plain") else []
    if way.startswith("llama3"):
        asked = [call for call in asked[:1] if call[0] != "unheard_of"]
    if way.startswith("gpt-oss"):
        asked = asked[:1]
    raw = way.startswith(("qwen3-coder", "glm"))
    made = []
    for number, (name, given_arguments) in enumerate(asked):
        cleaned = json.loads(json.dumps(given_arguments))
        if raw:  # a value that holds its own end, no tag can hold
            cleaned = {
                key: without_ends(value) for key, value in cleaned.items() if name != "unheard_of" or key == "query"
            }
        if way.startswith("gemma4"):  # its keys have no quotes
            cleaned = {key: with_bare_keys(value) for key, value in cleaned.items()}
        made.append(ToolCall(f"functions.{name}:{number}", name, json.dumps(cleaned)))
    text = no_marker(draw(texts), markers).strip()
    reasoning = "" if way.startswith("llama3") else no_marker(draw(texts), markers).strip()
    if way.startswith("llama3"):
        text = "" if made else text.lstrip("{ \n\t").strip()
    return Message(Role.ASSISTANT, text, reasoning, tuple(made))


def without_ends(value: object) -> object:
    if not isinstance(value, str):
        return value
    return value.replace("</parameter>", "").replace("</arg_value>", "").replace("<|end|>", "")


def with_bare_keys(value: object) -> object:
    if isinstance(value, dict):
        return {re.sub(r"[{}\[\],:\s<|>]", "", key) or "k": with_bare_keys(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_bare_keys(each) for each in value]
    return value.replace('<|"|>', "") if isinstance(value, str) else value


def equal(read: Message, wanted: Message) -> bool:
    return (
        (read.text, read.reasoning) == (wanted.text, wanted.reasoning)
        and [call.name for call in read.calls] == [call.name for call in wanted.calls]
        and all(
            json.loads(call.arguments) == json.loads(want.arguments)
            for call, want in zip(read.calls, wanted.calls, strict=True)
        )
    )


@settings(max_examples=150, deadline=None)
@given(way=st.sampled_from(EVERY), data=st.data())
def test_written_messages_parse_back(written: Mapping[str, "Written"], way: str, data: st.DataObject) -> None:
    writes = written[way]
    message = data.draw(messages(way, writes.family.markers))
    reading = writes.read(writes.ids(message))
    assert equal(reading.message, message), reading.message
    assert reading.malformed == 0


@settings(max_examples=150, deadline=None)
@given(way=st.sampled_from(EVERY), data=st.data())
def test_chunking_does_not_change_the_result(written: Mapping[str, "Written"], way: str, data: st.DataObject) -> None:
    writes = written[way]
    ids = writes.ids(data.draw(messages(way, writes.family.markers)))
    vocabulary = writes.tokenizer.vocab_size
    marks = [token for marker in sorted(writes.family.markers) for token in writes.tokenizer.encode(marker)]
    tokens = st.sampled_from(ids or [0]) | st.integers(0, vocabulary - 1) | st.sampled_from([*marks, 0])
    for at, token in data.draw(st.lists(st.tuples(st.integers(0, len(ids)), tokens), max_size=3)):  # spoil it
        ids.insert(at, token)
    ids = ids[: data.draw(st.integers(0, len(ids)))]
    thinks = data.draw(st.booleans())
    whole = writes.read(ids, thinks=thinks)
    cut = writes.reading(thinks=thinks)
    deltas = []
    while ids:
        size = data.draw(st.integers(1, 9))
        deltas += cut.feed(ids[:size])
        ids = ids[size:]
    deltas += cut.end()
    assert cut.message == whole.message == message_of(deltas)
    assert (cut.malformed, cut.reasoning_tokens) == (whole.malformed, whole.reasoning_tokens)
    assert all(getattr(delta, "text", "a call") for delta in deltas)


@settings(max_examples=150, deadline=None)
@given(way=st.sampled_from(EVERY), data=st.data())
def test_garbage_never_breaks_a_parser(written: Mapping[str, "Written"], way: str, data: st.DataObject) -> None:
    writes = written[way]
    marks = [token for marker in sorted(writes.family.markers) for token in writes.tokenizer.encode(marker)]
    pieces = [
        writes.tokenizer.encode(text) for text in ('{"name": "note", ', '"arguments": ', "{}", "}", "note", ">", "[")
    ]
    random = st.integers(0, writes.tokenizer.vocab_size - 1).map(lambda token: [token])
    parts = st.sampled_from([[mark] for mark in marks] + pieces) | random
    ids = [token for part in data.draw(st.lists(parts, max_size=25)) for token in part]
    reading = writes.read(ids, thinks=data.draw(st.booleans()))
    assert reading.malformed <= len(ids)
    json.dumps(reading.message.for_template, ensure_ascii=False).encode()


@settings(max_examples=100, deadline=None)
@given(way=st.sampled_from([way for way in EVERY if not way.startswith("gpt-oss")]), data=st.data())  # has a head
def test_no_calls_are_parsed_without_tools(written: Mapping[str, "Written"], way: str, data: st.DataObject) -> None:
    writes = written[way]
    message = data.draw(messages(way, writes.family.markers))
    ids = writes.ids(message)
    reading = writes.read(ids, tools=())
    assert (reading.message.calls, reading.malformed) == ((), 0)
    assert reading.message.reasoning == message.reasoning
    if not message.reasoning:
        ids = [token for token in ids if token not in writes.tokenizer.eos_token_ids]
        assert reading.message.text == writes.tokenizer.decode(ids, skip_special_tokens=False)


def test_call_is_emitted_when_complete(written: Mapping[str, "Written"]) -> None:
    reading = written["hermes"].reading()
    encode = written["hermes"].tokenizer.encode
    parts = ("Let me see.\n<tool_call>\n", '{"name": "note"', ', "arguments": {"query": "x"}}\n', "</tool_call>")
    told = [reading.feed(encode(part)) for part in parts]
    call = ToolCall("call_1", "note", '{"query": "x"}')
    assert told == [[TextDelta("Let me see.")], [], [], [CallDelta(0, call)]]


def test_arguments_keep_their_text(written: Mapping[str, "Written"]) -> None:
    spaced = '{ "query" :  "\\u00e9 </tool_call>",\n "limit":1e0 }'
    reading = written["hermes"].read(f'<tool_call>{{"arguments": {spaced}, "name": "note"}}</tool_call>')
    assert reading.message.calls == (ToolCall("call_1", "note", spaced),)


@table("thinks, before", [(False, "<think>\n"), (True, ""), (True, "\n"), (True, "<think>\n")])
def test_reasoning_ends_at_its_marker(written: Mapping[str, "Written"], thinks: bool, before: str) -> None:
    writes = written["hermes"]
    reading = writes.read(before + "One\n\n and two. \n</think>\n\n  Three. <think> Four", thinks=thinks)
    assert reading.message == Message(Role.ASSISTANT, "  Three. <think> Four", "One\n\n and two.")
    assert reading.reasoning_tokens == len(writes.tokenizer.encode(before + "One\n\n and two. \n</think>"))


def test_whitespace_around_calls_is_trimmed(written: Mapping[str, "Written"]) -> None:
    call = '<tool_call>{"name": "note"}</tool_call>'
    assert written["hermes"].read(f"A.\n\n{call}\n{call}\n").message.text == "A."
    assert written["hermes"].read(f"A.\n\n{call}  B. ").message.text == "A.\n\nB. "
    assert written["hermes"].read(f"\n{call}\nB.").message.text == "B."
    assert written["hermes"].read("  A.\n").message.text == "  A.\n"


def test_call_without_arguments_has_empty_arguments(written: Mapping[str, "Written"]) -> None:
    for way, answer in (
        ("hermes", '<tool_call>{"name": "note"}</tool_call>'),
        ("qwen3-coder", "<tool_call><function=note></function></tool_call>"),
        ("glm", "<tool_call>note</tool_call>"),
    ):
        reading = written[way].read(answer)
        assert reading.message.calls == (ToolCall("call_1", "note", "{}"),), way
        assert reading.malformed == 0
