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
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from slime_core.errors import SlimeError
from slime_core.processes.forked import Output, receive, send
from slime_core.processes.server import shared_server
from slime_core.secrets import REDACTOR

__all__ = ["CommandError", "Ended", "command"]

ENTRY = f"{__name__}:execute"
MOST_OUTPUT = 1 << 20
"""Bytes that are kept of each output, from its end."""
MOST_PROCESSES = 256
"""Default limit of a program's processes."""
BUSY_S = 0.001
"""Seconds between two reads of a program that writes without a pause: it waits whenever 64 KiB are unread."""
SHOWN = 2_000
"""Characters of its latest output that an error shows."""


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
    began, failed, out, err = monotonic(), b"", Output(MOST_OUTPUT), Output(MOST_OUTPUT)
    with closing(out), closing(err):
        with out.opened() as output, err.opened() as errors:
            process = shared_server().fork(
                ENTRY,
                title=Path(argv[0]).name,
                output=output,
                errors=errors,
                memory_mb=memory_mb,
                most_processes=most_processes,
            )
        out.watch(BUSY_S)
        err.watch(BUSY_S)
        try:
            async with asyncio.timeout(timeout_s):
                with suppress(EOFError, OSError):  # executing the program closes the channel
                    await process.channel.send(json.dumps(order).encode())
                    failed = await process.channel.receive()
                await process.ended()
        except TimeoutError:
            process.kill("timeout", f"it took longer than {timeout_s:g} s, and was killed")
        finally:
            await process.see_end("killed", "its call was cancelled", grace_s=0.0)
            out.stop()
            err.stop()
            process.close()
        stdout, stderr = (REDACTOR.redact(each.text()) for each in (out, err))
    if failed or process.cause is not None or process.code is None:
        text = f"it could not be started: {failed.decode()}" if failed else process.how
        reason = "start" if failed else (process.cause or ("killed", ""))[0]
        wrote = (stdout + stderr).strip()[-SHOWN:]
        raise CommandError(reason, f"{argv[0]}: {text}" + (f"\nit wrote:\n{wrote}" if wrote else ""))
    return Ended(process.code, stdout, stderr, monotonic() - began)


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
