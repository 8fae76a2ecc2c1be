"""Anthropic's SDK, Messages: python anthropic_messages.py URL stream|whole."""

import sys

import anthropic

url, how = sys.argv[1:]
add = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
tools = [{"name": "add", "description": "Adds.", "input_schema": add}]
messages = [{"role": "user", "content": "What is 17 + 25, and twice that?"}]
client = anthropic.Anthropic(base_url=url, api_key="any")

while True:
    asked = {"model": "policy", "max_tokens": 200, "messages": messages, "tools": tools}
    if how == "stream":
        with client.messages.stream(**asked) as told:
            made = told.get_final_message()
    else:
        made = client.messages.create(**asked)
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in made.content]})
    calls = [block for block in made.content if block.type == "tool_use"]
    if not calls:
        print(made.content[-1].text)
        break
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] + call.input["b"])}
        for call in calls
    ]
    messages.append({"role": "user", "content": results})
