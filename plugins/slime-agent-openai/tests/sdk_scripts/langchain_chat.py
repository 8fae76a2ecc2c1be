"""LangChain's ChatOpenAI: python langchain_chat.py URL stream|whole."""

import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

url, how = sys.argv[1:]


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


model = ChatOpenAI(model="policy", base_url=f"{url}/v1", api_key="any").bind_tools([add])
messages = [HumanMessage("What is 17 + 25, and twice that?")]
while True:
    if how == "stream":
        parts = list(model.stream(messages))
        said = parts[0]
        for part in parts[1:]:
            said += part
    else:
        said = model.invoke(messages)
    messages.append(said)
    if not said.tool_calls:
        print(said.content)
        break
    messages += [ToolMessage(str(add.invoke(call["args"])), tool_call_id=call["id"]) for call in said.tool_calls]
