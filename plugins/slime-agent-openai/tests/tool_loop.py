"""A tool loop of three turns for any client, and the checks of the session that it leaves."""

import asyncio
from collections.abc import Awaitable, Callable

from serving import There, served
from talker import Talker

QUESTION = "What is 17 + 25, and twice that?"
FIRST = """<think>
First the sum.
</think>

Let me add.
<tool_call>
{"name": "add", "arguments": {"a": 17,   "b": 25}}
</tool_call>
<tool_call>
{"name":"add","arguments":{"b": 2, "a": 40}}
</tool_call>"""
SECOND = """<think>
Now double it.
</think>

<tool_call>
{"name": "add", "arguments": {"a": 42, "b": 42}}
</tool_call>"""
CALLS = (FIRST, SECOND, "It is 84.")  # With reasoning, two calls at once, and JSON as models write it


def run(
    talker: Talker, client: Callable[[There], Awaitable[str]], seconds: float = 60.0, **served_with: object
) -> None:
    """Let a client go through all turns: one sample, and every token of the model's is trained on."""

    async def all_turns() -> None:
        async with served(talker, **served_with) as there:  # type: ignore[arg-type]
            assert await asyncio.wait_for(client(there), seconds) == "It is 84."
            (chain,) = there.session.forest.chains()
            trained = [node for node, is_trained in chain if is_trained]
            assert [tuple(node.ids) for node in trained] == [asked.output for asked in talker.log]
            ids = [token for node, _ in chain for token in node.ids]
            last = talker.log[-1]
            assert ids == [*last.prompt, *last.output]
            assert there.session.forest.counts.bridged == len(CALLS) - 1

    asyncio.run(all_turns())
