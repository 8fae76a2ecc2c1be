"""A command that serves, in a process of its own, and requests to it.

with serving("models/tiny") as server:
    server.ask("/generate", {"text": "t5", "sampling_params": {"max_new_tokens": 8}})
"""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import pytest

Answer = Any
"""JSON."""


@dataclass(frozen=True)
class Serving:
    """What serves."""

    url: str
    port: int

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """JSON of a POST, or of a GET without a body; None of an empty answer."""
        with urllib.request.urlopen(self._request(path, body), timeout=60) as reply:
            text = reply.read()
        return json.loads(text) if text.strip() else None

    def events(self, path: str, body: Mapping[str, Any]) -> list[Any]:
        """Those of a stream, to its end."""
        with urllib.request.urlopen(self._request(path, body), timeout=60) as reply:
            lines = [line.decode().removeprefix("data: ").strip() for line in reply if line.strip()]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]

    def refusal(self, path: str, body: Mapping[str, Any]) -> str:
        """What is said with status 400."""
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.ask(path, body)
        with caught.value as error:
            told = json.load(error)
        assert error.code == told["code"] == 400
        return str(told["message"])

    def _request(self, path: str, body: Mapping[str, Any] | None) -> urllib.request.Request:
        content = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(self.url + path, content, {"Content-Type": "application/json"})


def free() -> int:
    """A port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return cast(int, listening.getsockname()[1])


def command(model: Path, *options: object) -> list[str]:
    return [sys.executable, "-m", "slime_core", "engine", "serve", str(model), *map(str, options)]


@contextmanager
def serving(model: Path, *options: object) -> Iterator[Serving]:
    """Serve until the end of the `with`, which is a Ctrl-C; it has to end by itself then."""
    port = free()
    process = subprocess.Popen(
        command(model, "--port", port, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = cast(IO[str], process.stdout).readline()
        if "serving" not in said:
            raise AssertionError(process.communicate()[1])
        yield Serving(f"http://127.0.0.1:{port}", port)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err.splitlines()[-1]) == (0, "ended")
    finally:
        process.kill()
        process.wait()
