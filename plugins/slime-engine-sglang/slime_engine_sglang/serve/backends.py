"""The backends of `slime engine serve`: `local`, an embedded engine behind SGLang's wire, and SGLang's own server."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import cast
from urllib.error import URLError
from urllib.request import urlopen

import click
from aiohttp import web

from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError, WorkerError
from slime_core.roles import NoticesDeath
from slime_core.run import Serving, started
from slime_engine_sglang.arguments import environment_for
from slime_engine_sglang.host import die_with_parent
from slime_engine_sglang.serve.routes import Routes
from slime_engine_sglang.server_command import server_command
from slime_engine_sglang.settings import SglangSettings

ENDS = (signal.SIGINT, signal.SIGTERM)


def serve_local(serving: Serving, host: str, port: int) -> int:
    """Serve until Ctrl-C, or the engine's end."""
    return asyncio.run(_serve(serving, host, port))


async def _serve(serving: Serving, host: str, port: int) -> int:
    tokenizer, over = HfTokenizer.load(serving.hf_checkpoint), asyncio.Event()
    for each in ENDS:
        asyncio.get_running_loop().add_signal_handler(each, over.set)
    async with started(serving, tokenizer) as engine:
        app = Routes(engine, tokenizer, serving.hf_checkpoint).app()
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror}; give another --port") from None
        click.echo(f"serving {serving.hf_checkpoint} at http://{host}:{port}, by the engine local; Ctrl-C ends it")
        try:
            await _until(over, engine)
        finally:
            await runner.cleanup()
    click.echo("ended", err=True)
    return 0


async def _until(over: asyncio.Event, engine: object) -> None:
    waits: list[asyncio.Task[object]] = [asyncio.create_task(over.wait())]
    if isinstance(engine, NoticesDeath):
        waits.append(asyncio.create_task(engine.watch()))
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


POLL_S = 0.25
READY = "/health_generate"  # Answers when the model does, in every release


def serve_sglang(serving: Serving, host: str, port: int) -> int:
    """Run the server until Ctrl-C. Raises WorkerError: it ended by itself."""
    settings = cast(SglangSettings, serving.settings)
    for key in ("urls", "router"):
        if getattr(settings, key):
            raise ConfigError(f"--set {key}=...: this starts one server, and nothing before it; leave it out")
    scratch = Path(tempfile.mkdtemp(prefix="sglang-"))  # SGLang leaves sockets, whose paths have to be short
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server: subprocess.Popen[bytes] | None = None
    try:
        setup = serving.engine_setup(HfTokenizer.load(serving.hf_checkpoint), scratch)
        command = [*server_command(settings, setup), "--host", host, "--port", str(port)]
        server = subprocess.Popen(
            command,
            env={**environment_for(command[0]), "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        click.echo(f"SGLang starts, process {server.pid}: it takes from twenty seconds to minutes", err=True)
        _until_ready(server, f"http://{host}:{port}", settings.start_timeout_s)
        click.echo(f"serving {serving.hf_checkpoint} at http://{host}:{port}, by SGLang; Ctrl-C ends it")
        raise WorkerError(f"the SGLang server ended with code {server.wait()}; its last lines are above")
    except KeyboardInterrupt:
        click.echo("ended", err=True)
        return 0
    finally:
        if server is not None:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _until_ready(server: "subprocess.Popen[bytes]", url: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise WorkerError(f"the SGLang server ended with code {server.returncode} while it started; see above")
        with suppress(URLError, OSError), urlopen(url + READY, timeout=within_s) as reply:
            if reply.status == 200:
                return
        time.sleep(POLL_S)
    raise WorkerError(f"the SGLang server was not ready in {within_s:g} s; --set start_timeout_s=SECONDS gives it more")
