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
from dataclasses import dataclass
from itertools import accumulate
from types import TracebackType
from typing import NamedTuple, cast

from slime_core.data.row_reader import NAMING, LeftOut, Prompt, RowReader, TooLong
from slime_core.data.rows import BadRow, RejectedRow, Row, scan_rows
from slime_core.data.tokenizer import check_template_kwargs, read_batched
from slime_core.errors import DataError
from slime_core.roles import PromptFile, RowFormat, Tokenizer
from slime_core.sample import Json, Sample

# RecordFile: records written once, one after the other, and read back at random; memory is eight bytes a record.


class RecordFile:
    """Append inside `with`, read after it."""

    def __init__(self) -> None:
        """Nothing is in it."""
        self._ends = array("Q", [0])

    def __enter__(self) -> "RecordFile":
        """Make the file."""
        try:
            self._file = tempfile.TemporaryFile(prefix="slime-prompts-")  # closed by __exit__
        except OSError as error:
            raise _no_room(error) from None
        return self

    def append(self, record: bytes) -> None:
        """Write one record, at least one byte.

        Raises:
            DataError: the disk is full.
        """
        try:
            self._file.write(record)
        except OSError as error:
            raise _no_room(error) from None
        self._ends.append(self._ends[-1] + len(record))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file for writing; its descriptor stays until this object goes.

        Raises:
            DataError: the disk is full.
        """
        try:
            with self._file:
                self._file.flush()
                if error is None:
                    self._descriptor = os.dup(self._file.fileno())
                    weakref.finalize(self, os.close, self._descriptor)
        except OSError as refused:
            raise _no_room(refused) from error

    def __getitem__(self, number: int) -> bytes:
        # Not mmap: the first touch of each page takes three times as long, and its pages count as our memory.
        start = self._ends[number]
        return os.pread(self._descriptor, self._ends[number + 1] - start, start)

    def __len__(self) -> int:
        return len(self._ends) - 1


def _no_room(error: OSError) -> DataError:
    return DataError(
        f"the prompts do not fit into the temporary directory {tempfile.gettempdir()}: {error.strerror or error}; "
        "set TMPDIR to a directory with room"
    )


# PromptTable: prompt files read and checked once, whole; afterwards each usable row is at hand by its number.

_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()


class RowRead(NamedTuple):
    """A row and what was read of it."""

    row: Row | BadRow
    prompt: Prompt | TooLong | BadRow
    dropped_reasoning: bool
    """Whether the chat template leaves reasoning of earlier turns out."""


@dataclass(frozen=True, slots=True)
class Part:
    """One data set to read."""

    name: str
    """The first part of its groups' identities."""
    where: str
    """What error texts call it, such as its path."""
    rows: Iterable[RowRead]
    """Read once."""
    row_format: RowFormat
    """How they are read."""


def part_of(file: PromptFile, tokenizer: Tokenizer) -> Part:
    """A prompt file as a part of a table."""
    reader = RowReader(file, tokenizer)
    rows = scan_rows(file.path, reader.needed, reader.optional)
    return Part(file.name, str(file.path), _read(rows, reader, file, tokenizer), file)


def part_of_rows(name: str, rows: Iterable[Mapping[str, Json]], row_format: RowFormat, tokenizer: Tokenizer) -> Part:
    """Rows that lie in memory, or in an HF `Dataset`, as a part of a table."""
    is_arrow = hasattr(rows, "features")  # a `Dataset`
    numbered = (Row(f"{name}, row {number}", dict(values), is_arrow) for number, values in enumerate(rows))
    return Part(name, name, _read(numbered, RowReader(row_format, tokenizer), row_format, tokenizer), row_format)


def _read(
    rows: Iterable[Row | BadRow], reader: RowReader, row_format: RowFormat, tokenizer: Tokenizer
) -> Iterator[RowRead]:
    def read(row: Row | BadRow) -> tuple[Prompt | TooLong | BadRow, bool]:
        return (row, False) if isinstance(row, BadRow) else (reader.read(row), reader.dropped_reasoning)

    check_template_kwargs(row_format, tokenizer)
    return (RowRead(row, *found) for row, found in read_batched(rows, read, tokenizer))


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
        self._records = RecordFile()
        self.named: dict[tuple[str, str], str] = {}
        """Where each role and name that rows choose is named first."""
        with self._records:
            self.parts: Sequence[PartRead] = [self._read(part) for part in parts]
            """What was read, file by file."""
        self._starts = [0, *accumulate(part.prompts for part in self.parts)]

    def __len__(self) -> int:
        """Usable rows."""
        return len(self._records)

    def __getitem__(self, number: int) -> tuple[str, int, Prompt]:
        """The name of its file, its number in it (counting rows left out), and a prompt that nobody else holds."""
        row, _, record = self._records[number].partition(b" ")
        return self.parts[bisect_right(self._starts, number) - 1].name, int(row), decode_prompt(record)

    def _read(self, part: Part) -> PartRead:
        left_out, digest = LeftOut(part.row_format), hashlib.blake2b(digest_size=16)
        number, before = -1, len(self._records)
        for number, read in enumerate(part.rows):
            record = self._record_of(read.row, read.prompt, part)
            if not isinstance(record, bytes):
                left_out.count(record)
                continue
            numbered = b"%d %b" % (number, record)
            self._records.append(numbered)
            left_out.without_reasoning += read.dropped_reasoning
            digest.update(numbered + b"\n")
        left_out.check(part.name, number + 1)
        prompts = len(self._records) - before
        if not prompts:
            raise DataError(_nothing(part, number + 1, left_out))
        return PartRead(part.name, prompts, digest.hexdigest(), left_out)

    def _record_of(self, row: Row | BadRow, read: Prompt | TooLong | BadRow, part: Part) -> bytes | TooLong | BadRow:
        if isinstance(row, BadRow):
            return row
        if not isinstance(read, Prompt):
            return read
        record = encode_prompt(row.where, read)
        if isinstance(record, bytes):
            for role, name, key in choices_of(read):
                self.named.setdefault((role, name), f"{row.where}: {part.row_format.metadata_key}.{key}")
            if (why := rejected(read, part.name, part.row_format)) is not None:
                return RejectedRow(f"{row.where}: {why}")
        return record


def rejected(prompt: Prompt, source: str, row_format: RowFormat) -> str | None:
    """Why the run cannot use a row of a data set, by the check of its format; None if it can."""
    if row_format.check is None:
        return None
    sample = Sample(
        0,
        0,
        0,
        prompt.prompt,
        [],
        prompt.media,
        label=prompt.label,
        metadata={**prompt.metadata},
        apply_chat_template_kwargs={**(row_format.apply_chat_template_kwargs or {})},
        generate_function_path=cast("str | None", prompt.metadata.get("generate_function_path")),
        custom_rm_path=cast("str | None", prompt.metadata.get("custom_rm_path")),
        source=source,
    )
    return row_format.check(sample)


def choices_of(prompt: Prompt) -> Iterator[tuple[str, str, str]]:
    """Role, name and metadata key of each choice that a row makes for its samples."""
    for key, role in NAMING.items():
        if isinstance(name := prompt.metadata.get(key), str):
            yield role, name, key


def encode_prompt(where: str, prompt: Prompt) -> bytes | BadRow:
    """The prompt as bytes; a bad row where a checkpoint could not keep it (dates, bytes, NaN of a parquet file)."""
    try:
        return _ENCODER.encode([prompt.prompt, prompt.label, prompt.metadata, prompt.media]).encode()
    except (TypeError, ValueError) as error:
        return BadRow(f"{where}: prompt, label, metadata and media must be plain JSON: {error}")


def decode_prompt(record: bytes) -> Prompt:
    """The inverse; what it returns shares nothing."""
    return Prompt._make(_DECODER.raw_decode(record.decode())[0])


def _nothing(part: Part, rows: int, left_out: LeftOut) -> str:
    if not rows:
        return f"{part.where} holds no rows"
    if left_out.shortest is None:
        return f"{part.where}: not one of {rows} rows can be used; {left_out.note(part.name)}"
    return (
        f"{part.where}: all {left_out.too_long} prompts are longer than {part.row_format.max_prompt_len} tokens, the "
        f"shortest has {left_out.shortest}: raise --rollout-max-prompt-len"
    )
