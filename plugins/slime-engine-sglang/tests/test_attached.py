"""Refused addresses: other servers, unreachable servers, and servers of another model."""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fake_server_engines import engine_of
from servers import STUB

from slime_core.errors import ConfigError, WorkerError
from slime_core.processes import free_port
from slime_core.roles import GenerateRequest, SamplingParams
from slime_engine_sglang import engine as engine_module
from slime_testing import write_tiny_model
from tests.tables import table


class WebPages(BaseHTTPRequestHandler):
    """A web page for every address."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def running(model: Path, tmp_path: Path) -> Iterator[str]:
    """A running stub of an SGLang server that was started by hand."""
    port = free_port("127.0.0.1")
    command = [sys.executable, STUB, "--host", "127.0.0.1", "--port", str(port), "--model-path", str(model)]
    with subprocess.Popen(command, env={"TMPDIR": str(tmp_path)}) as process:
        try:
            while not listens(port):
                assert process.poll() is None, "it has ended"
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


async def refusal(tmp_path: Path, url: str, kind: type[Exception] = ConfigError) -> str:
    async with engine_of(tmp_path, urls=[url]) as engine:
        with pytest.raises(kind) as caught:
            await asyncio.wait_for(engine.start(), 60)
        return str(caught.value)


async def test_other_http_server_is_refused(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), WebPages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        message = await refusal(tmp_path, url)
        server.shutdown()
    assert message.startswith(f"{url} is not an SGLang server")
    assert "servers that `python -m sglang.launch_server` started" in message


async def test_unreachable_address_is_refused_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "ATTACH_S", 0.5)
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    message = await refusal(tmp_path, url, WorkerError)
    assert f"{url} refuses connections: nothing listens there. Start the servers in [engine.sglang] urls" in message


async def test_copied_model_directory_is_accepted(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    copied = tmp_path / "copied"
    shutil.copytree(model, copied)
    with running(copied, tmp_path) as url:
        async with engine_of(tmp_path, urls=[url]) as engine:
            await engine.start()
            await engine.load_checkpoint()
            long = GenerateRequest([5] * 250, SamplingParams(100), 0)
            assert len((await engine.generate(long)).tokens) == 6  # limited by the server's context of 256 tokens


def of_config(**changes: object) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        path = model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")

    return change


def of_ends(model: Path) -> None:
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 9]}), "utf-8")


def of_tokenizer(model: Path) -> None:
    path = model / "tokenizer.json"
    about = json.loads(path.read_text("utf-8"))
    vocab = about["model"]["vocab"]
    first, second = list(vocab)[:2]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    path.write_text(json.dumps(about), "utf-8")


@table(
    "change, message",
    [
        (of_config(vocab_size=128), "the vocab_size of {other} is 128, not 64"),
        (of_config(model_type="qwen2"), "the model_type of {other} is qwen2, not "),
        (of_config(num_hidden_layers=9), "the num_hidden_layers of {other} is 9, not "),
        (of_ends, "it has the additional end tokens [9]"),
        (of_tokenizer, "its tokenizer {other} has another vocabulary"),
    ],
)
async def test_server_of_another_model_is_refused(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    other = write_tiny_model(tmp_path / message.split()[1])
    change(other)
    with running(other, tmp_path) as url:
        text = await refusal(tmp_path, url)
    assert f"{url} serves another model than the run's {tmp_path / 'model'}: " in text
    assert message.format(other=other) in text
    assert f"Start the server with --model-path {tmp_path / 'model'}" in text
