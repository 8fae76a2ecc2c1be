"""However a reply is cut into deltas, its events put together are its body."""

import json
import random
from collections.abc import Iterable
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st
from scripted import counted_ids, parts_of, reply

from slime_agent_openai.message import (
    CallDelta,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    Role,
    TextDelta,
    ToolCall,
)
from slime_agent_openai.wires.chat import read_chat
from slime_agent_openai.wires.messages import read_messages
from slime_agent_openai.wires.responses import read_responses
from slime_agent_openai.wires.wire import Wire

Event: TypeAlias = dict
SAID = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ARGUMENTS = st.one_of(SAID, st.dictionaries(SAID, st.integers() | SAID, max_size=3).map(json.dumps))
MESSAGES = st.builds(
    lambda text, reasoning, calls: Message(
        Role.ASSISTANT,
        text,
        reasoning,
        tuple(ToolCall(f"call_{index}", name, written) for index, (name, written) in enumerate(calls)),
    ),
    SAID,
    SAID,
    st.lists(st.tuples(st.sampled_from(["add", "find"]), ARGUMENTS), max_size=3),
)
REPLIES = st.builds(
    lambda message, finish: reply(message.text, message.reasoning, message.calls, finish),
    MESSAGES,
    st.sampled_from(Finish),
)
DRAWS = st.randoms(use_true_random=False)
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "logprobs": True}


def events(wire: Wire, said: Reply, deltas: Iterable[Delta]) -> list[tuple[str, Event]]:
    """Names and data of a stream."""
    raw = b"".join(wire.begin(said.prompt_tokens))
    raw += b"".join(chunk for delta in deltas for chunk in wire.add(delta))
    raw += b"".join(wire.end(said))
    assert raw.endswith(b"\n\n")
    assert raw.isascii()
    told = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        *names, data = block.split("\n")
        payload = data.removeprefix("data: ")
        told.append(("".join(names).removeprefix("event: "), payload if payload == "[DONE]" else json.loads(payload)))
    return told


@given(REPLIES, DRAWS)
def test_chat_stream_folds_to_the_body(said: Reply, draw: random.Random) -> None:
    wire = read_chat(CHAT, counted_ids())[1]
    *chunks, (_, done) = events(wire, said, parts_of(said.message, draw))
    assert done == "[DONE]"
    message: Event = {"role": "assistant", "content": "", "refusal": None}
    for _, chunk in chunks:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            if name in delta:
                message[name] = message.get(name, "") + delta[name]
        for part in delta.get("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            if part["index"] == len(calls):
                calls.append({key: value for key, value in part.items() if key != "index"})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    whole = wire.whole(said)["choices"][0]
    message["content"] = message["content"] or whole["message"]["content"]
    assert {**choice, "message": message} == {**whole, "delta": {}}


@given(REPLIES, DRAWS)
def test_responses_stream_folds_to_the_body(said: Reply, draw: random.Random) -> None:
    wire = read_responses({"input": "Hi", "stream": True}, counted_ids())[1]
    told = events(wire, said, parts_of(said.message, draw))
    assert [event["sequence_number"] for _, event in told] == list(range(len(told)))
    assert all(name == event["type"] for name, event in told)
    whole = told[-1][1]["response"]
    assert whole == wire.whole(said)
    assert _folded(told) == whole["output"]
    assert [item["id"] for item in whole["output"]] == list(
        dict.fromkeys(event["item_id"] for _, event in told if "item_id" in event)
    )
    unstreamed = read_responses({"input": "Hi"}, counted_ids())[1].whole(said)
    assert {**unstreamed, "created_at": 0} == {**whole, "created_at": 0}


def _folded(told: list[tuple[str, Event]]) -> list[Event]:
    """The items of events, from deltas; what else the events say must be the same."""
    items: list[Event] = []
    for kind, event in told:
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items)
            items.append(event["item"])
            continue
        if "output_index" not in event:
            continue
        item = items[event["output_index"]]
        assert event["output_index"] == len(items) - 1
        match kind.removeprefix("response."):
            case "content_part.added":
                assert event["content_index"] == len(item["content"])
                item["content"].append(event["part"])
            case "output_text.delta" | "reasoning_text.delta":
                item["content"][event["content_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                item["arguments"] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                assert event["text"] == item["content"][0]["text"]
            case "function_call_arguments.done":
                assert (event["arguments"], event["name"]) == (item["arguments"], item["name"])
            case "content_part.done":
                assert event["part"] == item["content"][0]
            case "output_item.done":
                assert event["item"]["status"] in ("completed", "incomplete")
                assert event["item"] == {**item, "status": event["item"]["status"]}
                items[-1] = event["item"]
    return items


@given(REPLIES, DRAWS)
def test_messages_stream_folds_to_the_body(said: Reply, draw: random.Random) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    wire = read_messages(body, counted_ids())[1]
    told = events(wire, said, parts_of(said.message, draw))
    assert all(name == event["type"] for name, event in told)
    message = told[0][1]["message"]
    for kind, event in told[1:]:
        match kind:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
                written = ""
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                kind = delta.pop("type")
                if kind == "input_json_delta":
                    written += delta["partial_json"]
                    continue
                for name, text in delta.items():
                    block[name] += text
            case "content_block_stop":
                if message["content"][event["index"]]["type"] == "tool_use":
                    message["content"][event["index"]]["input"] = json.loads(written)
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    assert message == wire.whole(said)
    assert message == read_messages(body, counted_ids())[1].whole(said)


@given(REPLIES)
def test_echoed_replies_parse_back(said: Reply) -> None:
    spoken = reply(said.message.text, said.message.reasoning, said.message.calls).message
    user = {"role": "user", "content": "Hi"}
    made = read_chat(CHAT, counted_ids())[1].whole(said)["choices"][0]["message"]
    assert read_chat({"messages": [user, made]}, counted_ids())[0].messages[1] == spoken
    output = read_responses({"input": "Hi"}, counted_ids())[1].whole(said)["output"]
    assert read_responses({"input": [user, *output]}, counted_ids())[0].messages[1] == spoken
    content = read_messages({"messages": [user]}, counted_ids())[1].whole(said)["content"]
    turns = [user, {"role": "assistant", "content": content}, user]
    assert spoken.matches(read_messages({"messages": turns}, counted_ids())[0].messages[1])


def test_text_between_calls_keeps_its_place() -> None:
    deltas = [
        TextDelta("One:"),
        CallDelta(0, ToolCall("call_0", "add", "{}")),
        ReasoningDelta("more"),
        TextDelta(" two:"),
        CallDelta(1, ToolCall("call_1", "add", "")),
    ]
    said = reply("One: two:", "more", [ToolCall("call_0", "add", "{}"), ToolCall("call_1", "add", "")])
    wire = read_responses({"input": "Hi", "stream": True}, counted_ids())[1]
    output = _folded(events(wire, said, deltas))
    assert [item["type"] for item in output] == ["message", "function_call", "reasoning", "message", "function_call"]
    assert read_responses({"input": output}, counted_ids())[0].messages == (said.message,)
    assert wire.whole(said)["output"] == output
