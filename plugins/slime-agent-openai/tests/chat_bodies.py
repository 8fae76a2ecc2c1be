"""A random agent's requests as raw bodies of chat completions, and the responses as messages.

Raw, to send what SDKs do not: the same body twice, and connections that end at any byte.
"""

import json

from random_agent import Asked

from slime_agent_openai.message import Message, Role, ToolCall
from slime_core.sample import Json


def body_of(asked: Asked, *, stream: bool) -> dict[str, Json]:
    """What is posted."""
    most: dict[str, Json] = {} if asked.max_tokens is None else {"max_tokens": asked.max_tokens}
    tools: list[Json] = [tool.for_template for tool in asked.tools]
    return {"stream": stream, "messages": [_written(each) for each in asked.messages], "tools": tools, **most}


def _written(message: Message) -> Json:
    calls: dict[str, Json] = {"tool_calls": [_call(call) for call in message.calls]} if message.calls else {}
    return message.for_template | calls


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def reply_of(raw: bytes, *, stream: bool) -> tuple[str, Message]:
    """Id and message of a whole answer; a stream that did not end well is an error."""
    if not stream:
        told = json.loads(raw)
        parts = [told["choices"][0]["message"]]
    else:
        lines = [line.removeprefix("data: ") for line in raw.decode().split("\n") if line.startswith("data: {")]
        events = [json.loads(line) for line in lines]
        told, parts = events[0], [event["choices"][0]["delta"] for event in events]
        assert events[-1]["choices"][0]["finish_reason"]
    text, thought = ("".join(part.get(name) or "" for part in parts) for name in ("content", "reasoning_content"))
    calls = [call for part in parts for call in part.get("tool_calls") or ()]
    made = tuple(ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls)
    return told["id"], Message(Role.ASSISTANT, text, thought, made)
