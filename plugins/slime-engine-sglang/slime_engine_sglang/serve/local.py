"""The backend `local`: the core's embedded engine in worker processes, and SGLang's wire before it."""

import asyncio
import signal

import click
from aiohttp import web

from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError
from slime_core.roles import NoticesDeath
from slime_core.run import Serving, started
from slime_engine_sglang.serve.routes import Routes

ENDS = (signal.SIGINT, signal.SIGTERM)


def serve_local(serving: Serving, host: str, port: int) -> int:
    """Serve until Ctrl-C, or the engine's end.

    Raises:
        ConfigError: the port was taken meanwhile.
        SlimeError: the engine's.
    """
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
    """Wait for Ctrl-C.

    Raises:
        WorkerError: the engine ended before.
    """
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
