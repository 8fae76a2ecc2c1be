"""Reads and checks prompt files once, then gives random access to each usable row by its number.

Several files form one table, in order. Records are in an unnamed temporary file (in TMPDIR), and memory is eight
bytes per record, so a data set may be larger than memory.

Example:

    table = PromptTable([part_of(PromptFile(Path("train.jsonl"), "train.jsonl"), tokenizer)])
    source, row, prompt = table[0]
"""

import hashlib
import json
import os
import tempfile
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, cast

from slime_core.data.row_reader import NAMING, LeftOut, Prompt, RowReader, TooLong
from slime_core.data.rows import BadRow, Row, arrow_values, scan_rows
from slime_core.data.tokenizer import check_template_kwargs, read_batched
from slime_core.errors import DataError
from slime_core.roles import PromptFile, RowFormat, Tokenizer
from slime_core.sample import Json, Sample

_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()


class RecordFile:
    """Records written once, one after the other, and read back at random; memory is eight bytes a record."""

    def __init__(self, records: Iterable[bytes]) -> None:
        """Write them all, each at least one byte.

        Raises:
            DataError: the disk is full.
        """
        self._ends = array("Q", [0])
        room = _Room()
        with room:
            file = tempfile.TemporaryFile(prefix="slime-prompts-")  # noqa: SIM115  # closed when this object goes
        weakref.finalize(self, _close, file)
        self._descriptor = file.fileno()
        for record in records:
            with room:
                file.write(record)
            self._ends.append(self._ends[-1] + len(record))
        with room:
            file.flush()

    def __getitem__(self, number: int) -> bytes:
        # Not mmap: the first touch of each page takes three times as long, and its pages count as our memory.
        start = self._ends[number]
        return os.pread(self._descriptor, self._ends[number + 1] - start, start)

    def __len__(self) -> int:
        return len(self._ends) - 1


class _Room:
    """Names the temporary directory in the error of a full disk; one object serves each of a million records."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise DataError(
                f"the prompts do not fit into the temporary directory {tempfile.gettempdir()}: "
                f"{error.strerror or error}; set TMPDIR to a directory with room"
            ) from None


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # the disk may be full
        file.close()


@dataclass(frozen=True, slots=True)
class Part:
    """One data set to read."""

    name: str
    """The first part of its groups' identities."""
    where: str
    """What error texts call it, such as its path."""
    rows: Iterable[tuple[Row | BadRow, tuple[Prompt | TooLong | BadRow, bool]]]
    """Each row, what was read of it, and whether the chat template leaves reasoning of earlier turns out."""
    row_format: RowFormat
    """How they are read."""


def part_of(file: PromptFile, tokenizer: Tokenizer) -> Part:
    """A prompt file as a part of a table."""
    reader = RowReader(file, tokenizer)
    check_template_kwargs(file, tokenizer)
    rows = scan_rows(file.path, reader.needed, reader.optional)
    return Part(file.name, str(file.path), read_batched(rows, reader.read, tokenizer), file)


def part_of_rows(name: str, rows: Iterable[Mapping[str, Json]], row_format: RowFormat, tokenizer: Tokenizer) -> Part:
    """Rows that lie in memory, or in an HF `Dataset`, as a part of a table."""
    is_arrow = hasattr(rows, "features")  # a `Dataset`
    read = (arrow_values(values) if is_arrow else dict(values) for values in rows)
    numbered = (Row(f"{name}, row {number}", values) for number, values in enumerate(read))
    check_template_kwargs(row_format, tokenizer)
    return Part(name, name, read_batched(numbered, RowReader(row_format, tokenizer).read, tokenizer), row_format)


@dataclass(frozen=True, slots=True)
class PartRead:
    """What a part held."""

    name: str
    """Its name."""
    prompts: int
    """Usable rows, at least one."""
    digest: str
    """Hash of their prompts, labels, metadata and media: two parts with one digest are the same data."""
    left_out: LeftOut
    """The other rows."""


class PromptTable:
    """Usable rows, in the order of the files."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Read every row.

        Raises:
            DataError: a file cannot be read, rows are bad, or a file has no usable row.
            ModelError: a chat template is wanted and the model has none.
        """
        self.named: dict[tuple[str, str], str] = {}
        """Where each role and name that rows choose is named first."""
        self.parts: list[PartRead] = []
        """What was read, file by file."""
        self._records = RecordFile(record for part in parts for record in self._scan(part))
        self._starts = [0, *accumulate(part.prompts for part in self.parts)]

    def __len__(self) -> int:
        """Usable rows."""
        return len(self._records)

    def __getitem__(self, number: int) -> tuple[str, int, Prompt]:
        """The name of its file, its number in it (counting rows left out), and a prompt that shares nothing."""
        row, _, record = self._records[number].partition(b" ")
        prompt = Prompt._make(_DECODER.raw_decode(record.decode())[0])
        return self.parts[bisect_right(self._starts, number) - 1].name, int(row), prompt

    def identity(self) -> dict[str, Json]:
        """Each file by its content, wherever it lies and whenever it was written."""
        return {part.name: {"prompts": part.prompts, "digest": part.digest} for part in self.parts}

    def notes(self) -> list[str]:
        """A sentence about each kind of row that was left out of a file."""
        return [note for part in self.parts for note in part.left_out.notes(part.name)]

    def _scan(self, part: Part) -> Iterator[bytes]:
        left_out, digest = LeftOut(part.row_format), hashlib.blake2b(digest_size=16)
        number, prompts = -1, 0
        for number, (row, (read, dropped_reasoning)) in enumerate(part.rows):
            record = self._record_of(cast(Row, row).where, read, part) if isinstance(read, Prompt) else read
            if not isinstance(record, bytes):
                left_out.count(record)
                continue
            numbered = b"%d %b" % (number, record)
            left_out.without_reasoning += dropped_reasoning
            digest.update(numbered + b"\n")
            prompts += 1
            yield numbered
        left_out.check(part.name, number + 1)
        if not prompts:
            raise DataError(_nothing(part, number + 1, left_out))
        self.parts.append(PartRead(part.name, prompts, digest.hexdigest(), left_out))

    def _record_of(self, where: str, read: Prompt, part: Part) -> bytes | BadRow:
        try:
            record = _ENCODER.encode([*read]).encode()
        except (TypeError, ValueError) as error:  # dates, bytes or NaN of a parquet file, which no checkpoint keeps
            return BadRow(f"{where}: prompt, label, metadata and media must be plain JSON: {error}")
        for key, role in NAMING.items():
            if isinstance(name := read.metadata.get(key), str):
                self.named.setdefault((role, name), f"{where}: {part.row_format.metadata_key}.{key}")
        if (check := part.row_format.check) is not None:
            sample = pending(read, part.name, part.row_format.apply_chat_template_kwargs)
            if (why := check(sample)) is not None:
                return BadRow(f"{where}: {why}")
        return record


def pending(
    prompt: Prompt,
    source: str,
    template_kwargs: Mapping[str, Json] | None,
    *,
    draw: int = 0,
    place: int = 0,
    number: int = 0,
) -> Sample:
    """A row's prompt as a sample that waits to be generated, at a place in the group of a draw."""
    return Sample(
        draw,
        place,
        number,
        prompt.prompt,
        [],
        prompt.media,
        label=prompt.label,
        metadata={**prompt.metadata},
        apply_chat_template_kwargs={**(template_kwargs or {})},
        generate_function_path=cast("str | None", prompt.metadata.get("generate_function_path")),
        custom_rm_path=cast("str | None", prompt.metadata.get("custom_rm_path")),
        source=source,
    )


def _nothing(part: Part, rows: int, left_out: LeftOut) -> str:
    if not rows:
        return f"{part.where} holds no rows"
    if left_out.shortest is None:
        return f"{part.where}: not one of {rows} rows can be used; {left_out.note(part.name)}"
    return (
        f"{part.where}: all {left_out.too_long} prompts are longer than {part.row_format.max_prompt_len} tokens, the "
        f"shortest has {left_out.shortest}: raise --rollout-max-prompt-len"
    )
