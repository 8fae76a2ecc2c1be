"""The core's data sources: `prompts` from files, `mixture` of several files with weights, and rows in memory.

Prompt files are read and checked once. Usable rows go to an unnamed temporary file (in TMPDIR), with eight bytes of
memory per row, so a data set may be larger than memory. Each draw depends only on the seed, the data and the draw's
number. A position is a few numbers, and a shuffled order is computed on demand. A resume therefore continues exactly
at the next prompt.

Example:

    [data_source.mixture.sources]               # with [data_source] use = "mixture"
    math = { path = "math.jsonl", weight = 3.0, label_key = "answer" }
    code = { path = ["code-a.parquet", "code-b.parquet"] }
"""

import gc
import hashlib
import json
import os
import tempfile
import weakref
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from itertools import accumulate
from math import isqrt
from pathlib import Path
from random import Random
from typing import IO, cast

from slime_core.data.row_reader import CHOICE_KEYS, Prompt, RowReader, SkippedRows
from slime_core.data.rows import BadRow, Row, arrow_values, scan_rows
from slime_core.data.settings import MixtureMember, MixtureSettings
from slime_core.data.tokenizer import check_template_kwargs
from slime_core.errors import CheckpointError, ConfigError, DataError
from slime_core.roles import DataSourceSetup, PromptFile, RowFormat, Tokenizer
from slime_core.sample import Group, GroupId, Json, Sample
from slime_core.seeds import derive_seed

ROUNDS = 4
"""Rounds of a permutation; each round shifts both coordinates once."""
SMALL = 64
"""Up to this size, twice as many rounds: permutations of five rows are visibly uneven after four, not after eight."""
GOLDEN = (5**0.5 - 1) / 2
"""Golden ratio: its multiples modulo 1 are evenly spread, so each interval is hit in proportion to its length."""
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()


class RecordFile:
    """A file of records, written once in sequence and read at random; uses eight bytes of memory per record."""

    def __init__(self, records: Iterable[bytes]) -> None:
        """Write all records, each of at least one byte; DataError if there is no room for them."""
        self._ends = array("Q", [0])
        try:
            file: IO[bytes] = tempfile.TemporaryFile(prefix="slime-prompts-")  # noqa: SIM115  # closed with this object
        except OSError as error:
            raise DataError(
                f"no temporary file for the prompts: {error.strerror}; set TMPDIR to a directory with room"
            ) from None
        weakref.finalize(self, _close, file)
        self._descriptor = file.fileno()
        try:
            for record in records:
                file.write(record)
                self._ends.append(self._ends[-1] + len(record))
            file.flush()
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            raise DataError(
                f"the prompts do not fit into the temporary directory {tempfile.gettempdir()}: {error.strerror}; "
                "set TMPDIR to a directory with room"
            ) from None

    def __getitem__(self, number: int) -> bytes:
        # Not mmap: its first access to each page takes three times as long, and its pages count as our memory.
        start = self._ends[number]
        return os.pread(self._descriptor, self._ends[number + 1] - start, start)

    def __len__(self) -> int:
        return len(self._ends) - 1


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # the disk may be full
        file.close()


@dataclass(frozen=True, slots=True)
class FileRead:
    """Result of reading a prompt file."""

    name: str
    """Name of the data set."""
    prompts: int
    """Number of usable rows, at least one."""
    digest: str
    """Hash of prompts, labels, metadata and media; files with the same digest have the same data."""
    skipped: SkippedRows
    """Counts of the other rows."""


class PromptTable:
    """Usable rows of all files, in the order of the files."""

    def __init__(
        self, files: Sequence[PromptFile], tokenizer: Tokenizer, rows: Iterable[Row | BadRow] | None = None
    ) -> None:
        """Read all rows.

        Args:
            files: prompt files with unique names.
            tokenizer: renders and measures prompts.
            rows: the rows, if they are not in files.

        Raises:
            DataError: a file cannot be read, rows are bad, or a file has no usable row.
            ModelError: a chat template is needed and the model has none.
        """
        self.named: dict[tuple[str, str], str] = {}
        """First row that names each choice, by role and name."""
        self.files: list[FileRead] = []
        """Results by file."""
        self._files = {file.name: file for file in files}
        self._records = RecordFile(record for file in files for record in self._scan(file, tokenizer, rows))
        self._starts = [0, *accumulate(file.prompts for file in self.files)]

    def __len__(self) -> int:
        """Number of usable rows."""
        return len(self._records)

    def read(self, number: int, copies: int) -> tuple[str, int, list[Prompt]]:
        """Return a row's file name, its number there (left-out rows count), and prompts that share no mutable values.

        They may share the outer dict of their metadata.
        """
        row, _, record = self._records[number].partition(b" ")
        name, text = self.files[bisect_right(self._starts, number) - 1].name, record.decode()
        prompt = Prompt._make(_DECODER.decode(text))
        values = (prompt.prompt, prompt.label, prompt.media, *prompt.metadata.values())
        if any(isinstance(value, dict | list) for value in values):
            return name, int(row), [Prompt._make(_DECODER.decode(text)) for _ in range(copies)]
        return name, int(row), [prompt] * copies

    def groups(self, n_samples_per_prompt: int) -> list[Group]:
        """Return all prompts once, in file order and with their row numbers, for evaluation."""
        groups = list[Group]()
        for number in range(len(self)):
            name, row, prompts = self.read(number, n_samples_per_prompt)
            group_id = GroupId(name, 0, row, row)
            groups.append(Group(group_id, _samples(group_id, prompts, row * n_samples_per_prompt, self._files[name])))
        return groups

    def identity(self) -> dict[str, Json]:
        """Return the number of prompts and the digest of each file; path and file times do not matter."""
        return {file.name: {"prompts": file.prompts, "digest": file.digest} for file in self.files}

    def notes(self) -> list[str]:
        """Return a sentence for each kind of row that was left out of a file."""
        return [note for file in self.files for note in file.skipped.notes(file.name)]

    def _scan(self, file: PromptFile, tokenizer: Tokenizer, rows: Iterable[Row | BadRow] | None) -> Iterator[bytes]:
        check_template_kwargs(file, tokenizer)
        skipped, digest = SkippedRows(file), hashlib.blake2b(digest_size=16)
        reader, number, prompts = RowReader(file, tokenizer), -1, 0
        rows = scan_rows(file.path, reader.needed, reader.optional) if rows is None else rows
        for number, (row, (read, dropped_reasoning)) in enumerate(reader.read_all(rows)):
            record = self._record(cast(Row, row).where, read, file) if isinstance(read, Prompt) else read
            if not isinstance(record, bytes):
                skipped.count(record)
                continue
            numbered = b"%d %b" % (number, record)
            skipped.without_reasoning += dropped_reasoning
            digest.update(numbered + b"\n")
            prompts += 1
            yield numbered
        skipped.check(file.name, number + 1)
        if not prompts:
            raise DataError(f"{file.path}: {skipped.none_usable(file.name, number + 1)}")
        self.files.append(FileRead(file.name, prompts, digest.hexdigest(), skipped))

    def _record(self, where: str, read: Prompt, file: PromptFile) -> bytes | BadRow:
        try:
            record = _ENCODER.encode([*read]).encode()
        except (TypeError, ValueError) as error:  # dates, bytes or NaN of a parquet file: no checkpoint can store them
            return BadRow(f"{where}: prompt, label, metadata and media must be plain JSON: {error}")
        for key, role in CHOICE_KEYS.items():
            if isinstance(name := read.metadata.get(key), str):
                self.named.setdefault((role, name), f"{where}: {file.metadata_key}.{key}")
        if file.check is not None:
            [sample] = _samples(GroupId(file.name, 0, 0, 0), [read], 0, file)
            if (why := file.check(sample)) is not None:
                return BadRow(f"{where}: {why}")
        return record


def _samples(place: GroupId, prompts: Sequence[Prompt], first: int, row_format: RowFormat) -> list[Sample]:
    """Return the pending samples of a group, numbered from `first` among all drawn samples."""
    return [
        Sample(
            place.draw,
            index,
            first + index,
            prompt.prompt,
            [],
            prompt.media,
            label=prompt.label,
            metadata={**prompt.metadata},
            apply_chat_template_kwargs={**(row_format.apply_chat_template_kwargs or {})},
            generate_function_path=cast("str | None", prompt.metadata.get("generate_function_path")),
            custom_rm_path=cast("str | None", prompt.metadata.get("custom_rm_path")),
            source=place.source,
        )
        for index, prompt in enumerate(prompts)
    ]


class EpochOrder:
    """A pseudo-random permutation (position in the epoch to row), computed on demand."""

    def __init__(self, size: int, seed: int) -> None:
        """Draw the tables that define the order; `size` is at least one."""
        self._size = size
        self._width = isqrt(size - 1) + 1
        self._height = -(-size // self._width)
        # Only `random()`: of all methods, Python guarantees the same sequence in every version for this one alone.
        draw = Random(seed).random
        self._tables = [
            (
                [int(draw() * self._width) for _ in range(self._height)],
                [int(draw() * self._height) for _ in range(self._width)],
            )
            for _ in range(2 * ROUNDS if size <= SMALL else ROUNDS)
        ]

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self._size:
            raise IndexError(f"position {position} in an epoch of {self._size} rows")
        width, height = self._width, self._height
        while True:
            y, x = divmod(position, width)
            for across, down in self._tables:
                x = (x + across[y]) % width
                y = (y + down[x]) % height
            position = y * width + x
            if position < self._size:
                return position

    def __len__(self) -> int:
        return self._size


class _Stream:
    """The rows of a table, epoch after epoch; each epoch has a different order if shuffled."""

    def __init__(self, name: str, table: PromptTable, setup: DataSourceSetup) -> None:
        self.name, self.table = name, table
        self._seed, self._shuffle = setup.seed, setup.shuffle
        self._go_to(0, 0)

    def next(self, draw: int, copies: int) -> tuple[GroupId, list[Prompt]]:
        if self._offset >= len(self.table):
            self._go_to(self.epoch + 1, 0)
        source, row, prompts = self.table.read(self._order[self._offset], copies)
        self._offset += 1
        return GroupId(source, self.epoch, row, draw), prompts

    def state_dict(self) -> dict[str, Json]:
        return {"epoch": self.epoch, "offset": self._offset}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue at a position; an offset after the last row starts the next epoch."""
        epoch, offset = cast(int, state["epoch"]), cast(int, state["offset"])
        if epoch < 0 or offset < 0:
            raise CheckpointError(f"the saved position in {self.name} is epoch {epoch}, row {offset}")
        self._go_to(epoch, offset)

    def _go_to(self, epoch: int, offset: int) -> None:
        self.epoch, self._offset, size = epoch, offset, len(self.table)
        seed = derive_seed(self._seed, self.name, "shuffle", epoch)
        self._order: Sequence[int] | EpochOrder = EpochOrder(size, seed) if self._shuffle else range(size)


class PromptSource:
    """Prompts of one table or several weighted ones. Implements `DataSource`, `NamesChoices` and `DescribesData`."""

    def __init__(self, setup: DataSourceSetup, tables: Mapping[str, PromptTable], weights: Sequence[float]) -> None:
        """Start before the first draw.

        Args:
            setup: setup of the data source.
            tables: tables by name, at least one.
            weights: relative frequency of draws from each.
        """
        self._setup = setup
        self._streams = [_Stream(name, table, setup) for name, table in tables.items()]
        self._weights = weights
        self._bounds = list(accumulate(weight / sum(weights) for weight in weights))
        self._first = Random(derive_seed(setup.seed, "mixture")).random()
        self._draws = self._samples = 0
        self._requeued: deque[Group] = deque()

    async def draw(self, count: int) -> list[Group]:
        """Return exactly `count` groups: returned groups first, from the oldest, then new ones."""
        groups = [self._requeued.popleft() for _ in range(min(count, len(self._requeued)))]
        was_on = gc.isenabled()
        gc.disable()  # many lasting objects are made, and scanning them would double the time
        try:
            groups += [self._next() for _ in range(count - len(groups))]
        finally:
            if was_on:
                gc.enable()
        return groups

    def add(self, groups: Sequence[Group]) -> None:
        """Take back groups that were drawn but not finished."""
        self._requeued.extend(groups)

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """Return the rewards and generators that rows choose in their metadata, with the first row of each."""
        named: dict[tuple[str, str], str] = {}
        for stream in self._streams:
            named = {**stream.table.named, **named}
        return named

    def data_metrics(self) -> Mapping[str, float]:
        """Return `data/prompts`, `data/filtered`, `data/bad_rows`, `data/epoch`; with a table's name if several."""
        found: dict[str, float] = {}
        for stream in self._streams:
            end, files = f"/{stream.name}" if len(self._streams) > 1 else "", stream.table.files
            found[f"data/prompts{end}"] = float(len(stream.table))
            found[f"data/filtered{end}"] = float(sum(file.skipped.too_long for file in files))
            found[f"data/bad_rows{end}"] = float(sum(file.skipped.bad for file in files))
            found[f"data/epoch{end}"] = float(stream.epoch)
        return found

    def data_notes(self) -> Sequence[str]:
        """Return a sentence for each kind of row that was left out."""
        return [note for stream in self._streams for note in stream.table.notes()]

    def state_dict(self) -> dict[str, Json]:
        """Return the positions, the returned groups, and identities of settings and data."""
        return {
            "of": {"run": self._run(), "data": {stream.name: stream.table.identity() for stream in self._streams}},
            "draws": self._draws,
            "samples": self._samples,
            "streams": {stream.name: stream.state_dict() for stream in self._streams},
            "requeued": [group.to_dict() for group in self._requeued],
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore a saved state.

        Raises:
            CheckpointError: settings differ from the saved ones, or data does and the setup does not accept that.
        """
        saved = _object(state.get("of"))
        before = _object(saved.get("run"))
        changed = [f"{key}: {before.get(key)} -> {now}" for key, now in self._run().items() if before.get(key) != now]
        if changed:
            raise CheckpointError(
                f"the saved position belongs to other settings: {'; '.join(changed)}. Continue with the same settings, "
                "or start a new run with another --save"
            )
        if not self._setup.accept_changed_data and (changed := self._changed_data(_object(saved.get("data")))):
            raise CheckpointError(
                f"the data has changed since the checkpoint was written: {'; '.join(changed)}. Put the old data back, "
                "pass --accept-changed-data to go on with the new from the same place, or start a new run with "
                "another --save"
            )
        self._draws, self._samples = cast(int, state["draws"]), cast(int, state["samples"])
        self._requeued = deque(Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["requeued"]))
        places = _object(state["streams"])
        for stream in self._streams:
            if stream.name in places:
                stream.load_state_dict(_object(places[stream.name]))

    def __len__(self) -> int:
        """Return the number of usable prompts in one epoch of every table."""
        return sum(len(stream.table) for stream in self._streams)

    def _run(self) -> dict[str, Json]:
        weights = {stream.name: weight for stream, weight in zip(self._streams, self._weights, strict=True)}
        streams: Json = [*weights] if len(weights) == 1 else cast(Json, weights)
        return {"streams": streams, "seed": self._setup.seed, "shuffle": self._setup.shuffle}

    def _changed_data(self, saved: Mapping[str, Json]) -> list[str]:
        changed = []
        for stream in self._streams:
            before, now = _object(saved.get(stream.name)), stream.table.identity()
            changed += [
                f"{name}: {_difference(_object(before.get(name)), _object(now.get(name)))}"
                for name in {**before, **now}
                if before.get(name) != now.get(name)
            ]
        return changed

    def _next(self) -> Group:
        turn = bisect_right(self._bounds, (self._first + self._draws * GOLDEN) % 1.0)
        stream = self._streams[min(turn, len(self._streams) - 1)]
        size = self._setup.n_samples_per_prompt
        place, prompts = stream.next(self._draws, size)
        group = Group(place, _samples(place, prompts, self._samples, self._setup.row_format))
        self._draws += 1
        self._samples += size  # another size is possible after a resume
        return group


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _difference(before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    if not before or not now:
        return "is new" if now else "is gone"
    if before.get("prompts") != now.get("prompts"):
        return f"{before.get('prompts')} -> {now.get('prompts')} prompts"
    return "as many prompts, but with other content (a changed chat template or key counts too)"


def prompt_source(setup: DataSourceSetup) -> PromptSource:
    """Return a data source of the run's prompt files, which together are one epoch.

    Raises:
        ConfigError: there is no prompt file.
        DataError: a file cannot be read, or has no usable row.
    """
    if not setup.prompts:
        raise ConfigError("the data source 'prompts' reads files: give --prompt-data FILE (.jsonl or .parquet)")
    name = ", ".join(file.name for file in setup.prompts)
    return PromptSource(setup, {name: PromptTable(setup.prompts, setup.tokenizer)}, [1.0])


def row_source(rows: Iterable[Mapping[str, Json]], name: str, setup: DataSourceSetup) -> PromptSource:
    """Return a data source of rows in memory, or of an HF `Dataset`; for the factories of plugins.

    Args:
        rows: rows in `setup.row_format`; read once.
        name: first part of every group id.
        setup: setup of the data source.

    Raises:
        DataError: rows are bad, or no row is usable.
    """
    is_arrow = hasattr(rows, "features")  # a `Dataset`
    read = (arrow_values(values) if is_arrow else dict(values) for values in rows)
    numbered = (Row(f"{name}, row {number}", values) for number, values in enumerate(read))
    table = PromptTable([PromptFile.of(Path(name), name, setup.row_format)], setup.tokenizer, numbered)
    return PromptSource(setup, {name: table}, [1.0])


def mixture_source(settings: MixtureSettings, setup: DataSourceSetup) -> PromptSource:
    """Return a source of several data sets with separate epochs, drawn by weight; errors as of `PromptTable`."""
    tables = {
        name: PromptTable(_member_files(name, member, setup), setup.tokenizer)
        for name, member in settings.sources.items()
    }
    return PromptSource(setup, tables, [member.weight for member in settings.sources.values()])


def _member_files(name: str, member: MixtureMember, setup: DataSourceSetup) -> list[PromptFile]:
    row_format = member.row_format(setup.row_format)
    if isinstance(member.path, str):
        return [PromptFile.of(Path(member.path), name, row_format)]
    return [PromptFile.of(path, f"{name}/{file}", row_format) for path, file in name_files(member.path)]


def name_files(paths: Sequence[str]) -> list[tuple[Path, str]]:
    """Name paths by as many trailing components as distinguish them; ConfigError if a path is given twice."""
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise ConfigError(f"{', '.join(twice)}: given twice; a mixture gives weights ([data_source] use = 'mixture')")
    named = []
    for path in map(Path, paths):
        others = [Path(other) for other in paths if Path(other) != path]
        depth = 1
        while any(other.parts[-depth:] == path.parts[-depth:] for other in others):
            depth += 1
        named.append((path, "/".join(path.parts[-depth:])))
    return named
