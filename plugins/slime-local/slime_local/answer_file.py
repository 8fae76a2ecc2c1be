"""AnswerFile: JSON lines beside the file that they are to be, and in its place once all are there.

out = AnswerFile.checked(Path("answers.jsonl"), read=Path("prompts.jsonl"))      # touches nothing
with out:
    out.write({"response": "5"})          # in answers.jsonl.part; renamed at the end, kept if there is none
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import click

from slime_core.errors import ConfigError, printable
from slime_core.outputs import refuse_occupied
from slime_core.sample import Json

_STDOUT = Path("/dev/stdout")
LONGEST_LINE = 1 << 24


class AnswerFile:
    """One file of answers; what was there before stays until the new ones are complete."""

    def __init__(self, path: Path) -> None:
        """`path` as `checked` lets it through, `-` for the standard output; a link is followed and stays one."""
        self.path = _STDOUT if path == Path("-") else path
        self.direct = self.path == _STDOUT or (path.exists() and not path.is_file())
        """Whether it is not a file of its own: the standard output, a device, a pipe."""
        self._target = self.path.resolve()
        self.part = self.path if self.direct else self._target.with_name(self._target.name + ".part")
        """What is written to."""
        self.lines = 0
        """Written so far."""
        self._stream: TextIO | None = None

    @classmethod
    def checked(cls, path: Path, read: Path | None) -> "AnswerFile":
        """See that answers can be written there, without writing any.

        Args:
            path: of the answers.
            read: prompts that come from a file, which must be another one.

        Raises:
            ConfigError: it is a folder, its folder is missing or not writable, or it holds the prompts.
        """
        made = cls(path)
        if path.is_dir():
            raise ConfigError(f"--out {path} is a folder: give a file, --out {path / 'answers.jsonl'}")
        if made.direct:
            return made
        folder = made._target.parent
        if not folder.is_dir():
            raise ConfigError(f"--out {path}: there is no folder {folder}; make it with mkdir -p {folder}")
        for each in (folder, made._target, made.part):
            if each.exists() and not os.access(each, os.W_OK):
                raise ConfigError(f"--out {path}: {each} is not writable")
        for each in (made._target, made.part):
            if read is not None and _within(each, read):
                which = "" if each == made._target else f" (written first to {each})"
                raise ConfigError(
                    f"--out {path}{which} and --prompt-data {read} are the same file, and answers would replace the "
                    "prompts: give another --out"
                )
        return made

    def refuse_other_files(self) -> None:
        """See that nothing but earlier answers is replaced.

        Raises:
            ConfigError: there is a file of something else.
        """
        for each in (self._target, self.part):
            if not self.direct and not _has_answers(each):
                refuse_occupied(f"--out {self.path}", each)

    def __enter__(self) -> Self:
        """Begin anew.

        Raises:
            ConfigError: it cannot be written.
        """
        with _errors_of(self.part):
            self._stream = self.part.open("a" if self.direct else "w", encoding="utf-8")
        return self

    def write(self, row: Mapping[str, Json]) -> None:
        """A line, on the disk as a whole one before the next is asked for.

        Raises:
            ConfigError: the disk is full.
        """
        assert self._stream is not None, "entered"
        with _errors_of(self.part):
            self._stream.write(printable(json.dumps(row, ensure_ascii=False)) + "\n")
            self._stream.flush()
        self.lines += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Put it in its place, or say where the lines are that there were."""
        assert self._stream is not None, "entered"
        with suppress(OSError):  # a full disk was said by `write`, which flushed all that there is
            self._stream.close()
        if self.direct:
            return
        if kind is None:
            with _errors_of(self.path):
                if self._target.exists():
                    shutil.copymode(self._target, self.part)
                self.part.replace(self._target)
        elif self.lines:
            click.echo(f"not complete: the first {self.lines} responses are in {self.part}", err=True)
        else:
            self.part.unlink(missing_ok=True)


def _has_answers(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(LONGEST_LINE))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "response" in first


def _within(path: Path, read: Path) -> bool:
    """Whether a path is what is read, or lies in the folder of it; links of both kinds are seen through."""
    if path.exists() and read.exists() and path.samefile(read):
        return True
    return path.is_relative_to(read.resolve())


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"cannot write {path}: {why}; make room for it, or name another file with --out") from error
