"""Worker process: runs many agents of one function at once; reads tasks and writes verdicts as JSON lines.

    python -m slime_agent_openai.worker ./agents.py:solve /tmp/.../socket

`async def` agents run on its loop, `def` agents in a thread each. It ends when the driver disconnects.
"""

import asyncio
import contextvars
import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from slime_agent_openai.errors import MAX_DETAIL, traceback_of
from slime_agent_openai.reference import BadReference, resolve
from slime_agent_openai.task import Task, verdict_to_json
from slime_core.sample import Json

MAX_BYTES = 64 << 20  # Most bytes of one task


class Worker:
    """The agents of one process."""

    def __init__(self, agent: Callable[[Task], object], writer: asyncio.StreamWriter) -> None:
        self._agent, self._writer = agent, writer
        self._running: dict[int, asyncio.Task[Json]] = {}

    async def serve(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            number = message["number"]
            if "task" in message:
                running = self._running[number] = asyncio.create_task(self._run(Task(**message["task"])))
                running.add_done_callback(partial(self._answer, number))
            elif number in self._running:
                self._send({"number": number, "acknowledged": True})
                if not self._running[number].cancelling():  # a second cancel would interrupt the wait for a thread
                    self._running[number].cancel()

    async def _run(self, task: Task) -> Json:
        try:
            return verdict_to_json(await self._call_agent(task))
        except asyncio.CancelledError:
            return {"failed": "cancelled"}
        except BaseException as error:  # includes an agent's SystemExit
            return {"failed": type(error).__name__, "detail": traceback_of(error)}

    async def _call_agent(self, task: Task) -> object:
        if inspect.iscoroutinefunction(self._agent):
            return await self._agent(task)
        result = await _in_thread(partial(self._agent, task))
        return await result if isinstance(result, Awaitable) else result

    def _answer(self, number: int, running: "asyncio.Task[Json]") -> None:
        del self._running[number]
        result = {"failed": "cancelled"} if running.cancelled() else running.result()  # cancelled before it began
        assert isinstance(result, dict), "as _run has it"
        self._send({"number": number, **result})

    def _send(self, message: dict[str, Json]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")


async def _in_thread(function: Callable[[], object]) -> object:
    """Run a function in a new thread, so that a hanging one blocks no other. Returns once the thread has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def run() -> None:
        outcome: tuple[object, BaseException | None]
        try:
            outcome = (function(), None)
        except BaseException as error:
            outcome = (None, error)
        loop.call_soon_threadsafe(ended.set_result, outcome)

    threading.Thread(target=partial(contextvars.copy_context().run, run), name="agent", daemon=True).start()
    try:
        await asyncio.wait({ended})
    except asyncio.CancelledError:
        await asyncio.wait({ended})  # a thread cannot be cancelled
        raise
    result, error = ended.result()
    if error is not None:
        raise error
    return result


async def main(reference: str, socket: str, arguments: str = "null") -> None:
    """Connect, import the agent, or make it from arguments in JSON, and serve."""
    reader, writer = await asyncio.open_unix_connection(socket, limit=MAX_BYTES)
    try:
        keywords = json.loads(arguments)
        agent = resolve(reference, takes_task=keywords is None)
        if keywords is not None:
            agent = cast(Callable[[Task], object], agent(**keywords))
    except BaseException as error:
        reason = str(error) if isinstance(error, BadReference) else traceback.format_exc(limit=-2)[-2 * MAX_DETAIL :]
        sys.stderr.write(reason)
        writer.write(json.dumps({"broken": reason}).encode() + b"\n")
        await writer.drain()
        os._exit(1)
    writer.write(b'{"ready": true}\n')
    await Worker(agent, writer).serve(reader)
    os._exit(0)  # threads may still run; the process must not wait for them


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
