"""OpenAI's SDK, Responses: python openai_responses.py URL stream|whole."""

import json
import sys

import openai

url, how = sys.argv[1:]
add = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
tools = [{"type": "function", "name": "add", "description": "Adds.", "parameters": add, "strict": False}]
items = [{"role": "user", "content": "What is 17 + 25, and twice that?"}]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="any")

while True:
    if how == "stream":
        made = None
        for event in client.responses.create(model="policy", input=items, tools=tools, stream=True):
            if event.type == "response.completed":
                made = event.response
    else:
        made = client.responses.create(model="policy", input=items, tools=tools)
    items += [item.model_dump(exclude_none=True) for item in made.output]
    calls = [item for item in made.output if item.type == "function_call"]
    if not calls:
        print(made.output_text)
        break
    for call in calls:
        values = json.loads(call.arguments)
        answer = str(values["a"] + values["b"])
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": answer})
