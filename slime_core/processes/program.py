"""`command` runs a program for one sample under limits, and kills its descendants when it ends.

Example:

    ended = await command(["codex", "exec", task], env={"OPENAI_BASE_URL": url}, cwd=folder, timeout_s=300.0)
    ended.code, ended.stdout
"""

import asyncio
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
from slime_core.sample import Json
from slime_core.secrets import REDACTOR

__all__ = ["CommandError", "CommandResult", "command"]

ENTRY = f"{__name__}:execute"
MOST_OUTPUT = 1 << 20
"""Bytes kept of each output, from its end."""
MOST_PROCESSES = 256
"""Default limit on the processes of a program."""
BUSY_S = 0.001
"""Seconds between two reads while a program writes continuously: it blocks whenever 64 KiB are unread."""
SHOWN = 2_000
"""Characters of the latest output in an error."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a program that exited without being killed at a limit."""

    code: int
    """Exit code; negative: the signal that ended it."""
    stdout: str
    """Standard output with secrets redacted; at most the last `MOST_OUTPUT` bytes."""
    stderr: str
    """Standard error, in the same way."""
    seconds: float
    """Run time in seconds."""


class CommandError(SlimeError):
    """Raised when a program could not be started or was killed at a limit."""

    def __init__(self, reason: str, text: str) -> None:
        """`reason` is "start", "timeout", "memory", "processes" or "killed"."""
        super().__init__(text)
        self.reason = reason
        """Short and countable, suitable for `Sample.failure_reason`."""


async def command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = ".",
    memory_mb: int = 4096,
    timeout_s: float,
    most_processes: int = MOST_PROCESSES,
) -> CommandResult:
    """Run a program in its own session and wait until it ends.

    Kills all its descendants when it ends, when the call is cancelled, and when the driver dies.

    Args:
        argv: the program, looked up in `PATH`, and its arguments; not run by a shell.
        env: its environment; of the driver's variables it inherits only `PATH` and `LANG`.
        cwd: its working directory.
        memory_mb: limit on resident MiB of the program and its descendants.
        timeout_s: time limit in seconds.
        most_processes: limit on processes at the same time.

    Raises:
        CommandError: the program could not be started, or was killed at a limit; see its `reason`.
    """
    own: dict[str, Json] = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **(env or {})}
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
                arguments=[list(argv), own, str(cwd)],
            )
        out.watch(BUSY_S)
        err.watch(BUSY_S)
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
            with suppress(EOFError, OSError):  # the program was executed
                failed = bytes(receive(process.channel))
        except TimeoutError:
            process.kill("timeout", f"it took longer than {timeout_s:g} s, and was killed")
        finally:
            await process.wait_or_kill("killed", "its call was cancelled", grace_s=0.0)
            out.stop()
            err.stop()
            process.close()
        stdout, stderr = (REDACTOR.redact(each.text()) for each in (out, err))
    if failed or process.cause is not None or process.code is None:
        text = f"it could not be started: {failed.decode()}" if failed else process.exit_text
        reason = "start" if failed else (process.cause or ("killed", ""))[0]
        wrote = (stdout + stderr).strip()[-SHOWN:]
        raise CommandError(reason, f"{argv[0]}: {text}" + (f"\nit wrote:\n{wrote}" if wrote else ""))
    return CommandResult(process.code, stdout, stderr, monotonic() - began)


def execute(channel_fd: int, argv: list[str], env: dict[str, str], cwd: str) -> None:
    """Replace this forked process by a program; if that fails, send the reason."""
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)  # Python ignores these signals, and the program would inherit that
    try:
        os.chdir(cwd)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        send(socket.socket(fileno=channel_fd), f"{error.strerror}: {error.filename or argv[0]}".encode())
