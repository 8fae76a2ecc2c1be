"""Requests to a server, and detection of a dead server: a suspected server must prove that it generates."""

import asyncio
import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from slime_core.errors import WorkerError
from slime_core.sample import Json
from slime_engine_sglang import server as server_module
from slime_engine_sglang.server import Server, fast_json, plain_json, watch_server
from tests.tables import table

Paths = list[str]


class HttpOnlyServer(ThreadingHTTPServer):
    """A server with only an HTTP process; `generates` is its response to `/health_generate`."""

    daemon_threads = True

    def __init__(self) -> None:
        self.paths: Paths = []
        self.generates = True
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: HttpOnlyServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        # Paused, as for new weights, and healthy.
        status = {"/ready": 503, "/health_generate": 200 if self.server.generates else 503}[self.path]
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CHECK_S", 0.1)


@pytest.fixture
def served() -> Iterator[HttpOnlyServer]:
    with HttpOnlyServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def watch_until(served: HttpOnlyServer, *, has_requests: bool, until: int = 0, silence_s: float = 0.5) -> None:
    """Wait until the server counts as dead, or until it has been checked so often."""

    async def main() -> None:
        server = Server(f"http://127.0.0.1:{served.server_port}", "engine")
        try:
            task = asyncio.create_task(watch_server(server, lambda: has_requests, silence_s))
            while not task.done() and (not until or served.paths.count("/health_generate") < until):
                await asyncio.sleep(0.05)
                if not has_requests and served.paths.count("/ready") > 3:
                    break
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        finally:
            await server.close()

    asyncio.run(main())


def test_silent_server_that_generates_is_kept(served: HttpOnlyServer) -> None:
    watch_until(served, has_requests=True, until=2)
    assert served.paths.count("/health_generate") == 2


def test_silent_server_that_does_not_generate_is_replaced(served: HttpOnlyServer) -> None:
    served.generates = False
    with pytest.raises(WorkerError, match=r"engine, http.* has sent no response for \d+ s, and does not answer "):
        watch_until(served, has_requests=True)


def test_closed_server_is_noticed_while_idle(served: HttpOnlyServer) -> None:
    served.shutdown()
    served.server_close()
    with pytest.raises(WorkerError, match=r"refuses connections: nothing listens there, and does not answer /health_"):
        watch_until(served, has_requests=True, silence_s=60)


WAYS = [(plain_json, json.loads)] + ([fast_json()] if find_spec("orjson") else [])


@table("encode, decode", WAYS)
def test_json_round_trips(encode: Callable[[object], bytes], decode: Callable[[bytes], Json]) -> None:
    content = {"rid": "ä", "input_ids": [1, 2**40], "sampling_params": {"temperature": 0.7, "stop": None}, "x": True}
    assert decode(encode(content)) == content
    assert b" " not in encode(content)


@table("encode, decode", WAYS)
def test_nan_is_read_and_invalid_json_is_refused(
    encode: Callable[[object], bytes], decode: Callable[[bytes], Json]
) -> None:
    [nan] = decode(b"[NaN]")  # type: ignore[misc]
    assert math.isnan(nan)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\w"):
        decode(b'{"a": ')
