"""OpenAI's SDK, chat completions: python openai_chat.py URL stream|whole."""

import json
import sys

import openai

url, how = sys.argv[1:]
add = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": add}}]
messages = [{"role": "user", "content": "What is 17 + 25, and twice that?"}]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="any")


def streamed() -> dict:
    """A message put together from its deltas, as they are written everywhere."""
    text, calls = "", []
    for chunk in client.chat.completions.create(model="policy", messages=messages, tools=tools, stream=True):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for call in delta.tool_calls or ():
            if call.id:
                function = {"name": call.function.name, "arguments": ""}
                calls.append({"id": call.id, "type": "function", "function": function})
            calls[call.index]["function"]["arguments"] += call.function.arguments or ""
    return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})


def whole() -> dict:
    """A message as it came."""
    made = client.chat.completions.create(model="policy", messages=messages, tools=tools)
    return made.choices[0].message.model_dump(exclude_none=True)


while True:
    said = streamed() if how == "stream" else whole()
    messages.append(said)
    if not said.get("tool_calls"):
        print(said["content"])
        break
    for call in said["tool_calls"]:
        values = json.loads(call["function"]["arguments"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(values["a"] + values["b"])})
