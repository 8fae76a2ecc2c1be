"""`slime generate` on a terminal: a single response as it is made, and no other text than without one."""

import json
import os
import pty
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import Project, Slime

SLIME = (sys.executable, "-m", "slime_core")


@pytest.fixture
def long_model(project: Project) -> Path:
    """The project's model with room for a text that takes seconds."""
    directory = Path("long")
    shutil.copytree(project.model, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 9000}))
    return directory


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process, self._end = pty.fork()
        if self.process == 0:
            os.execve(command[0], command, {**os.environ, "TERM": "dumb"})

    def reads(self) -> Iterator[bytes]:
        """What it shows, each time that there is more, to its end."""
        try:
            while chunk := os.read(self._end, 65536):
                yield chunk
        except OSError:
            pass  # Linux says EIO when the other end is closed
        os.close(self._end)

    def code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def test_a_terminal_shows_a_single_response_in_parts_that_are_the_same_text(long_model: Path, slime: Slime) -> None:
    flags = ["abc", "--max-new-tokens", "400", "--ignore-eos", "--set", "workers=1", "--stop", "never so"]
    terminal = Terminal([*SLIME, "generate", str(long_model), *flags])
    shown = list(terminal.reads())
    assert terminal.code() == 0, shown
    piped = slime.ok("generate", long_model, *flags).out
    assert b"".join(shown) == piped.replace("\n", "\r\n").encode()
    assert len(shown) > 2  # a part, more of them, the line's end
