"""Wire calls: a wild agent's requests as bodies of three protocols, and what comes back of each as a message.

As raw as can be, to send what SDKs would not: the same body again, and connections that end at any byte.
"""

import json
from collections.abc import Iterator

from wild import Asked

from slime_agent_openai.message import Message, Role, Tool, ToolCall, as_object
from slime_core.sample import Json

PATHS = ("chat/completions", "responses", "messages")


def body_of(path: str, asked: Asked, *, stream: bool) -> dict[str, Json]:
    """What is posted there."""
    body: dict[str, Json] = {"model": "policy", "stream": stream}
    match path:
        case "chat/completions":
            body |= {"messages": [_chat(each) for each in asked.messages], "tools": _chat_tools(asked.tools)}
            most = "max_tokens"
        case "responses":
            after, said = ("", asked.messages)
            if asked.by_id and asked.base is not None:
                after, said = asked.base.answer.handle, asked.new
            items = [item for each in said for item in _items(each)]
            body |= {"input": items, "tools": [{"type": "function", **_function(tool)} for tool in asked.tools]}
            body |= {"previous_response_id": after} if after else {}
            most = "max_output_tokens"
        case _:
            body |= _messages(asked) | {"max_tokens": 10_000}
            most = "max_tokens"
    return body if asked.max_tokens is None else {**body, most: asked.max_tokens}


def _messages(asked: Asked) -> dict[str, Json]:
    """A whole conversation, or what is new of a thread."""
    if asked.by_id and asked.base is not None:
        thread: Json = {"type": "continue", "previous_message_id": asked.base.answer.handle}
        return {"thread": thread, "messages": [_theirs(each) for each in asked.new]}
    begin = asked.messages[0].role is Role.SYSTEM
    tools: list[Json] = [
        {"name": tool.name, "description": tool.description, "input_schema": json.loads(tool.parameters)}
        for tool in asked.tools
    ]
    told: dict[str, Json] = {"messages": [_theirs(each) for each in asked.messages[begin:]], "tools": tools}
    return told | ({"system": asked.messages[0].text} if begin else {})


def reply_of(path: str, raw: bytes, *, stream: bool) -> tuple[str, Message]:
    """Id and message of a whole answer."""
    told = _whole(path, list(_events(raw))) if stream else json.loads(raw)
    match path:
        case "chat/completions":
            said = told["choices"][0]["message"]
            calls = tuple(_called(each["id"], each["function"]) for each in said.get("tool_calls") or ())
            message = Message(Role.ASSISTANT, said.get("content") or "", said.get("reasoning_content") or "", calls)
        case "responses":
            kinds: dict[str, list[dict[str, object]]] = {"message": [], "reasoning": [], "function_call": []}
            for item in told["output"]:
                kinds[item["type"]].append(item)
            text, thought = (
                "".join(part["text"] for item in kinds[kind] for part in item["content"])
                for kind in ("message", "reasoning")
            )  # type: ignore[attr-defined]
            message = Message(
                Role.ASSISTANT, text, thought, tuple(_called(item["call_id"], item) for item in kinds["function_call"])
            )
        case _:
            texts = {"text": "", "thinking": ""}
            made = []
            for block in told["content"]:
                if block["type"] == "tool_use":
                    made.append(ToolCall(block["id"], block["name"], json.dumps(block["input"])))
                else:
                    texts[block["type"]] += block[block["type"]]
            message = Message(Role.ASSISTANT, texts["text"], texts["thinking"], tuple(made))
    return told["id"], message


def _called(name: object, function: dict[str, object]) -> ToolCall:
    return ToolCall(str(name), str(function["name"]), str(function["arguments"]))


def _events(raw: bytes) -> Iterator[dict[str, Json]]:
    for line in raw.decode().split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _whole(path: str, events: list[dict[str, Json]]) -> dict:  # type: ignore[type-arg]
    """A stream put together; one that did not end well is an error."""
    match path:
        case "chat/completions":
            return _whole_chat(events)
        case "responses":
            (last,) = [each for each in events if each["type"] in ("response.completed", "response.incomplete")]
            return last["response"]  # type: ignore[return-value]
        case _:
            return _whole_message(events)


def _whole_chat(events: list) -> dict:  # type: ignore[type-arg]
    said: dict[str, object] = {"content": "", "reasoning_content": ""}
    calls: list[dict[str, Json]] = []
    for each in events:
        delta = each["choices"][0]["delta"]
        for name in ("content", "reasoning_content"):
            said[name] += delta.get(name) or ""
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                calls.append({"id": call["id"], "function": dict(call["function"])})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]  # type: ignore[index,operator,call-overload]
    assert events[-1]["choices"][0]["finish_reason"]
    return {"id": events[0]["id"], "choices": [{"message": {**said, "tool_calls": calls}}]}


def _whole_message(events: list) -> dict:  # type: ignore[type-arg]
    blocks: list[dict[str, object]] = []
    for each in events:
        if each["type"] == "content_block_start":
            blocks.append(dict(each["content_block"]))
        elif each["type"] == "content_block_delta":
            match each["delta"]["type"]:
                case "text_delta":
                    blocks[-1]["text"] += each["delta"]["text"]
                case "thinking_delta":
                    blocks[-1]["thinking"] += each["delta"]["thinking"]
                case "input_json_delta":
                    blocks[-1]["input"] = json.loads(each["delta"]["partial_json"])
    assert events[-1]["type"] == "message_stop"
    return {"id": events[0]["message"]["id"], "content": blocks}


def _chat(message: Message) -> dict[str, Json]:
    made: dict[str, Json] = {"role": message.role.value, "content": message.text}
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if message.calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.answers:
        made["tool_call_id"] = message.answers
    return made


def _chat_tools(tools: tuple[Tool, ...]) -> Json:
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: Tool) -> dict[str, Json]:
    return {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}


def _items(message: Message) -> Iterator[Json]:
    if message.role is Role.TOOL:
        yield {"type": "function_call_output", "call_id": message.answers, "output": message.text}
        return
    if message.reasoning:
        yield {
            "type": "reasoning",
            "id": "rs",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": message.reasoning}],
        }
    if message.text or not (message.calls or message.reasoning):
        yield {"role": message.role.value, "content": message.text}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _theirs(message: Message) -> Json:
    match message.role:
        case Role.TOOL:
            result: Json = {"type": "tool_result", "tool_use_id": message.answers, "content": message.text}
            return {"role": "user", "content": [result]}
        case Role.ASSISTANT:
            blocks: list[Json] = []
            if message.reasoning:
                blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": "s"})
            if message.text:
                blocks.append({"type": "text", "text": message.text})
            blocks += [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": as_object(call.arguments)}
                for call in message.calls
            ]
            return {"role": "assistant", "content": blocks}
    return {"role": message.role.value, "content": message.text}
