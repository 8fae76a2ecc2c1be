"""Program: `command` runs one for one sample under limits; nothing of it outlives the call, whatever it started.

Example:

    ended = await command(["codex", "exec", task], env={"OPENAI_BASE_URL": url}, cwd=folder, timeout_s=300.0)
    ended.code, ended.stdout
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from slime_core.errors import SlimeError
from slime_core.sample import Json
from slime_core.secrets import REDACTOR

__all__ = ["CommandError", "Ended", "command"]

MOST_OUTPUT = 1 << 20
"""Bytes that are kept of each of its two outputs, the latest ones."""
MOST_PROCESSES = 256
"""Processes that it may have at once."""
SHOWN = 2_000
"""Characters of its latest output that an error shows."""
END_S = 10.0
"""Seconds that the supervisor may take to kill everything."""
ROOT = Path(__file__).parents[2]
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that came to its own end."""

    code: int
    """Its exit code; negative: the signal that killed it."""
    stdout: str
    """What it wrote to its standard output, secrets redacted; the end of it, if that is much."""
    stderr: str
    """The same of its standard error."""
    seconds: float
    """How long it took."""


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
    """Run a program in a session of its own, and wait for its end.

    When it has ended, or the call is cancelled, all that it started is killed; that is so, too, when the driver dies.

    Args:
        argv: the program, found by `PATH`, and its arguments. Nothing is asked of a shell.
        env: all of its environment, but `PATH` and `LANG`; it inherits nothing else, no secret of the driver's.
        cwd: the folder that it runs in.
        memory_mb: resident mebibytes of it and all that it starts.
        timeout_s: seconds that it may take.
        most_processes: processes that it may have at once.

    Raises:
        CommandError: it could not be started, or was killed at a limit; `reason` says which.
    """
    own = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **(env or {})}
    order: dict[str, Json] = {
        "argv": list(argv),
        "env": dict(own),
        "cwd": str(cwd),
        "memory_mb": memory_mb,
        "most_processes": most_processes,
    }
    supervised = await _Supervised.start(argv[0], order)
    try:
        async with asyncio.timeout(timeout_s):
            await supervised.ended()
    except TimeoutError:
        await supervised.kill()
        raise supervised.error("timeout", f"it took longer than {timeout_s:g} s, and was killed") from None
    except BaseException:
        await supervised.kill()
        raise
    finally:
        supervised.close()
    return supervised.result()


class _Supervised:
    """A program, its supervisor, and what it wrote."""

    def __init__(self, process: Process, name: str, lifeline: int, report: int) -> None:
        self._name, self._lifeline, self._report = name, lifeline, report
        self._began = monotonic()
        self._reading = [asyncio.create_task(_tail(each)) for each in (process.stdout, process.stderr) if each]
        self._waiting = asyncio.create_task(process.wait())
        self._said: Mapping[str, Json] = {}

    @classmethod
    async def start(cls, name: str, order: Mapping[str, Json]) -> "_Supervised":
        """Start the supervisor, which starts the program."""
        theirs, lifeline = os.pipe()
        report, told = os.pipe()
        main = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); from slime_core.processes.limits import main; "
            "main(int(sys.argv[1]), int(sys.argv[2]), sys.stdin.read())"
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", main, str(theirs), str(told)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                pass_fds=(theirs, told),
                start_new_session=True,
                env={},
            )
        except BaseException:
            os.close(lifeline)
            os.close(report)
            raise
        finally:
            os.close(theirs)
            os.close(told)
        assert process.stdin is not None, "it is a pipe"
        process.stdin.write(json.dumps(order).encode())  # not an argument: its environment may hold secrets
        process.stdin.close()
        return cls(process, name, lifeline, report)

    async def ended(self) -> None:
        """Wait for the end of the supervisor, and of the outputs."""
        await asyncio.wait({self._waiting, *self._reading})

    async def kill(self) -> None:
        """Have the supervisor kill everything, and wait until it has."""
        self._cut()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.ended()

    def result(self) -> Ended:
        """How the program ended.

        Raises:
            CommandError: otherwise than by itself.
        """
        seconds = monotonic() - self._began
        said = self._said
        if "code" in said:
            out, err = (REDACTOR.redact(task.result().decode(errors="replace")) for task in self._reading)
            return Ended(int(str(said["code"])), out, err, seconds)
        if "failed" in said:
            raise self.error("start", f"it could not be started: {said['failed']}")
        raise self.error(str(said.get("over", "killed")), str(said.get("detail", "its supervisor was killed")))

    def error(self, reason: str, text: str) -> CommandError:
        """An error, with the end of what the program wrote."""
        wrote = b"".join(task.result() for task in self._reading if task.done() and not task.cancelled())
        tail = REDACTOR.redact(wrote.decode(errors="replace")).strip()[-SHOWN:]
        shown = f"\nit wrote:\n{tail}" if tail else ""
        return CommandError(reason, f"{self._name}: {text}{shown}")

    def close(self) -> None:
        """Let go of the pipes, and of outputs that somebody still holds open."""
        self._cut()
        with os.fdopen(self._report, "rb") as report:
            os.set_blocking(self._report, False)
            self._said = json.loads(report.read() or b"{}")
        for task in (self._waiting, *self._reading):
            task.cancel()

    def _cut(self) -> None:
        """End the lifeline: the driver is gone, as far as the supervisor can tell."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


async def _tail(stream: asyncio.StreamReader) -> bytes:
    """The last `MOST_OUTPUT` bytes of all that comes."""
    kept = bytearray()
    while chunk := await stream.read(_CHUNK):
        kept += chunk
        if len(kept) > 2 * MOST_OUTPUT:
            del kept[:-MOST_OUTPUT]
    return bytes(kept[-MOST_OUTPUT:])
