"""FakeEngine: a local server with SGLang's HTTP API that fails according to a script.

    with FakeEngine(FailThenOk(status=503, times=2), Slow(0.5)) as engine:       # or `async with`
        requests.post(f"{engine.url}/generate", json={"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 8}})
        engine.generations                                                        # requests and their outcomes

It needs no model: it returns lower-case letters that depend on the prompt and the sampling seed. It runs in a separate
thread, so it works with any event loop, and without one.
"""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self, TypeAlias

from slime_core.sample import Json
from slime_testing._fake_engine import control
from slime_testing._fake_engine.generation import generate
from slime_testing._fake_engine.http import Refused, Reply, Request, serve_connection
from slime_testing._fake_engine.state import (
    GOOD,
    AbortMidway,
    Answer,
    Behaviour,
    Disconnect,
    Ended,
    FailThenOk,
    Flaw,
    Generation,
    Malformed,
    Received,
    Script,
    Slow,
    StaleVersion,
    State,
)

__all__ = [
    "AbortMidway",
    "Answer",
    "Behaviour",
    "Disconnect",
    "Ended",
    "FailThenOk",
    "FakeEngine",
    "Flaw",
    "Generation",
    "Malformed",
    "Received",
    "Slow",
    "StaleVersion",
]

Endpoint: TypeAlias = Callable[[State, Request], Awaitable[Reply]]

ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("POST", "/generate"): generate,
    ("GET", "/v1/models"): control.models,
    ("GET", "/health"): control.health,
    ("GET", "/health_generate"): control.health,
    ("GET", "/ready"): control.health,
    ("GET", "/model_info"): control.model_info,
    ("GET", "/get_model_info"): control.model_info,
    ("GET", "/server_info"): control.server_info,
    ("GET", "/get_server_info"): control.server_info,
    ("POST", "/abort_request"): control.abort_request,
    ("GET", "/flush_cache"): control.flush_cache,
    ("POST", "/flush_cache"): control.flush_cache,
    ("POST", "/pause_generation"): control.pause_generation,
    ("POST", "/continue_generation"): control.continue_generation,
    ("POST", "/update_weights_from_disk"): control.update_weights_from_disk,
    ("POST", "/update_weight_version"): control.update_weight_version,
    ("POST", "/release_memory_occupation"): control.release_memory_occupation,
    ("POST", "/resume_memory_occupation"): control.resume_memory_occupation,
}
"""The endpoints. All others return 404, by which clients detect that weights can be loaded only from disk."""


class FakeEngine:
    """A scripted inference server on a free port of 127.0.0.1."""

    def __init__(self, *script: Behaviour, context_length: int = 2048) -> None:
        """Prepare the server; entering the context starts it.

        Args:
            script: one behaviour per generation, in the order of requests; the last one repeats. By default, every
                generation succeeds.
            context_length: prompts with this many tokens or more are rejected.
        """
        self._state = State(Script(script or (GOOD,)), context_length)
        self._port = 0
        self._undo = contextlib.ExitStack()

    @property
    def url(self) -> str:
        """The server's URL: "http://127.0.0.1:40001".

        Raises:
            RuntimeError: it was never started.
        """
        if not self._port:
            raise RuntimeError("the fake engine was not started; write `with FakeEngine() as engine:`")
        return f"http://127.0.0.1:{self._port}"

    @property
    def received(self) -> tuple[Received, ...]:
        """All requests so far, to any endpoint, in order of arrival."""
        return tuple(self._state.received)

    @property
    def generations(self) -> tuple[Generation, ...]:
        """All finished generations, in the order in which they ended."""
        return tuple(self._state.generations)

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the running generations."""
        return tuple(job.rid for job in self._state.jobs)

    @property
    def weight_version(self) -> str:
        """Version of the last weight update; "default" before the first."""
        return self._state.weight_version

    @property
    def paused(self) -> bool:
        """Whether generation is paused."""
        return self._state.pause_mode is not None

    @property
    def released(self) -> frozenset[str]:
        """Memory that was released and not resumed, as SGLang's tags."""
        return self._state.released

    def __enter__(self) -> Self:
        listening, ready, stop = socket.create_server(("127.0.0.1", 0)), threading.Event(), asyncio.Event()
        # Without it, a reply in two writes waits for the client's delayed acknowledgement: 44 ms per request, not 1.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._port = listening.getsockname()[1]
        serving = self._serve(listening, ready, stop)
        thread = threading.Thread(target=asyncio.run, args=(serving,), name="fake engine", daemon=True)
        self._undo.callback(thread.join)  # runs last
        thread.start()
        ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    async def _serve(self, listening: socket.socket, ready: threading.Event, stop: asyncio.Event) -> None:
        connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(serve_connection(self._handle, reader, writer))
            connections[task] = writer
            task.add_done_callback(connections.pop)

        server = await asyncio.start_server(connected, sock=listening)
        self._undo.callback(asyncio.get_running_loop().call_soon_threadsafe, stop.set)
        ready.set()
        await stop.wait()
        server.close()
        for task, writer in list(connections.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _handle(self, request: Request) -> Reply:
        body: Json = None
        with contextlib.suppress(ValueError):
            body = json.loads(request.body)
        self._state.received.append(Received(request.method, request.path, request.query, request.headers, body))
        endpoint = ENDPOINTS.get((request.method, request.path))
        if endpoint is None:
            return Reply(404, b'{"detail":"Not Found"}')
        try:
            return await endpoint(self._state, request)
        except Refused as error:
            return Reply(error.status, json.dumps({"error": {"message": str(error)}}).encode())
