"""A Python that has SGLang, and one request to its server is lost on the way: it never arrives, and nobody says so.

    exec python lossy_server.py /venv/bin/python FLAG PATH "$@"     # a script that a run takes for its Python

Between the server and whoever asks it stands this process, which passes on all but the tenth request of PATH; FLAG is a
file that it makes then, so that servers which see it lose nothing.
"""

import asyncio
import ctypes
import signal
import sys
from pathlib import Path

from slime_core.processes import free_port

LOST = 10
PR_SET_PDEATHSIG = 1
LONGEST = 2**26


def die_with_parent() -> None:
    """In the server, before it runs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Line:
    """What lies between."""

    def __init__(self, host: str, port: int, flag: Path, path: str) -> None:
        self._there, self._flag, self._path = (host, port), flag, path.encode()
        self._seen = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end closes it."""
        try:
            answers, requests = await asyncio.open_connection(*self._there, limit=LONGEST)
        except OSError:
            writer.close()  # it does not listen yet
            return
        back = asyncio.create_task(self._back(answers, writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(self._length(head))
                if self._loses(head):
                    continue
                requests.write(head + body)
                await requests.drain()
        except (asyncio.IncompleteReadError, OSError):
            requests.close()
        finally:
            back.cancel()
            writer.close()

    @staticmethod
    async def _back(answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await answers.read(2**16):
            writer.write(part)
            await writer.drain()
        writer.close()

    @staticmethod
    def _length(head: bytes) -> int:
        fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
        return next((int(value) for name, _, value in fields if name == b"content-length"), 0)

    def _loses(self, head: bytes) -> bool:
        self._seen += self._path in head.partition(b"\r\n")[0]
        if self._seen != LOST or self._path not in head.partition(b"\r\n")[0]:
            return False
        try:
            self._flag.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


async def main() -> int:
    """Run the server at another port, and carry what is for it; its exit status."""
    python, flag, path, *command = sys.argv[1:]
    host, port = (command[command.index(name) + 1] for name in ("--host", "--port"))
    behind = free_port(host)
    line = Line(host, behind, Path(flag), path)
    _ = await asyncio.start_server(line.carry, host, int(port), limit=LONGEST)
    command[command.index("--port") + 1] = str(behind)
    server = await asyncio.create_subprocess_exec(python, *command, preexec_fn=die_with_parent)
    return await server.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
