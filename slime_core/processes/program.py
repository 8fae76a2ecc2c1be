"""`command` runs one program for one sample under limits; its descendants end with it.

Example:

    ended = await command(["codex", "exec", task], env={"OPENAI_BASE_URL": url}, cwd=folder, timeout_s=300.0)
    ended.code, ended.stdout
"""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from slime_core.aio import cancel_all
from slime_core.errors import SlimeError
from slime_core.processes.channel import receive, send
from slime_core.processes.forked import DEATH_S, Forked
from slime_core.processes.server import shared_server
from slime_core.secrets import REDACTOR

__all__ = ["CommandError", "Ended", "command"]

ENTRY = f"{__name__}:execute"
MOST_OUTPUT = 1 << 20
"""Bytes that are kept of each output, from its end."""
MOST_PROCESSES = 256
"""Default limit of a program's processes."""
SHOWN = 2_000
"""Characters of its latest output that an error shows."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that ended by itself."""

    code: int
    """Exit code; negative: the signal that killed it."""
    stdout: str
    """Its standard output, secrets redacted; at most `MOST_OUTPUT` bytes from the end."""
    stderr: str
    """The same of its standard error."""
    seconds: float
    """Run time."""


class CommandError(SlimeError):
    """A program that could not be started, or was killed at a limit."""

    def __init__(self, reason: str, text: str) -> None:
        """`reason` is "start", "timeout", "memory", "processes" or "killed"."""
        super().__init__(text)
        self.reason = reason
        """Short and countable: fit for `Sample.failure_reason`."""


async def command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = ".",
    memory_mb: int = 4096,
    timeout_s: float,
    most_processes: int = MOST_PROCESSES,
) -> Ended:
    """Run a program in its own session and wait for its end.

    All its descendants are killed when it has ended, when the call is cancelled, and when the driver dies.

    Args:
        argv: the program, found by `PATH`, and its arguments; no shell is involved.
        env: its whole environment, besides `PATH` and `LANG`; nothing else of the driver's is inherited.
        cwd: its folder.
        memory_mb: resident MiB of the program and its descendants.
        timeout_s: seconds that it may take.
        most_processes: processes that it may have at once.

    Raises:
        CommandError: it could not be started, or was killed at a limit; `reason` says which.
    """
    own = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **(env or {})}
    order = {"argv": list(argv), "env": own, "cwd": str(cwd)}
    process, outputs = _forked(argv[0], memory_mb, most_processes)
    began, reading = monotonic(), [asyncio.create_task(_tail(each)) for each in outputs]
    failed = b""
    try:
        async with asyncio.timeout(timeout_s):
            failed = await _start(process, json.dumps(order).encode())
            await process.ended()
            await asyncio.wait(reading)
    except TimeoutError:
        process.kill("timeout", f"it took longer than {timeout_s:g} s, and was killed")
    finally:
        await process.see_end("killed", "its call was cancelled", grace_s=0.0)
        await asyncio.wait(reading, timeout=DEATH_S)
        process.forget()
        process.close()
        await cancel_all(reading)
    out, err = (b"" if each.cancelled() else each.result() for each in reading)
    if failed or process.cause is not None or process.code is None:
        text = f"it could not be started: {failed.decode()}" if failed else process.how
        reason = "start" if failed else (process.cause or ("killed", ""))[0]
        wrote = REDACTOR.redact((out + err).decode(errors="replace")).strip()[-SHOWN:]
        raise CommandError(reason, f"{argv[0]}: {text}" + (f"\nit wrote:\n{wrote}" if wrote else ""))
    stdout, stderr = (REDACTOR.redact(each.decode(errors="replace")) for each in (out, err))
    return Ended(process.code, stdout, stderr, monotonic() - began)


def _forked(name: str, memory_mb: int, most_processes: int) -> tuple[Forked, list[int]]:
    pipes: list[tuple[int, int]] = []
    try:
        pipes += [os.pipe()]
        pipes += [os.pipe()]
        (_, output), (_, errors) = pipes
        process = shared_server().fork(
            ENTRY,
            title=Path(name).name,
            output=output,
            errors=errors,
            memory_mb=memory_mb,
            most_processes=most_processes,
        )
    except BaseException:
        for read, _ in pipes:
            os.close(read)
        raise
    finally:
        for _, write in pipes:
            os.close(write)
    return process, [read for read, _ in pipes]


async def _start(process: Forked, order: bytes) -> bytes:
    """Send the order; returns why the program could not be executed, or nothing."""
    try:
        await process.channel.send(order)
        return await process.channel.receive()
    except (EOFError, OSError):  # executing the program closes the channel
        return b""


async def _tail(output: int) -> bytes:
    reader, kept = asyncio.StreamReader(), bytearray()
    pipe = os.fdopen(output, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while chunk := await reader.read(_CHUNK):
            kept += chunk
            if len(kept) > 2 * MOST_OUTPUT:
                del kept[:-MOST_OUTPUT]
    except asyncio.CancelledError:  # a descendant that cannot be killed holds the other end open
        pass
    finally:
        transport.close()
    return bytes(kept[-MOST_OUTPUT:])


def execute(channel_fd: int) -> None:
    """Replace this process, which a server has forked, by the program of the order."""
    channel = socket.socket(fileno=channel_fd)
    order = json.loads(bytes(receive(channel)))
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)  # Python ignores them, and a program would inherit that
    try:
        os.chdir(order["cwd"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        send(channel, f"{error.strerror}: {error.filename or order['argv'][0]}".encode())
