"""LiteLLM: python litellm_chat.py URL stream|whole."""

import json
import sys

import litellm

url, how = sys.argv[1:]
add = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": add}}]
messages = [{"role": "user", "content": "What is 17 + 25, and twice that?"}]
while True:
    asked = {"model": "openai/policy", "api_base": f"{url}/v1", "api_key": "any", "messages": messages, "tools": tools}
    if how == "stream":
        made = litellm.stream_chunk_builder(list(litellm.completion(**asked, stream=True)), messages=messages)
    else:
        made = litellm.completion(**asked)
    said = made.choices[0].message
    messages.append(said.model_dump(exclude_none=True))
    if not said.tool_calls:
        print(said.content)
        break
    for call in said.tool_calls:
        values = json.loads(call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(values["a"] + values["b"])})
