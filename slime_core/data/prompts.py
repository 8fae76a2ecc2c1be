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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, repeat
from math import isqrt
from pathlib import Path
from random import Random
from typing import IO, TypeVar, cast

from slime_core.data.row_reader import NAMING, LeftOut, Prompt, RowReader
from slime_core.data.rows import BadRow, Row, arrow_values, scan_rows
from slime_core.data.settings import MixtureMember, MixtureSettings
from slime_core.data.tokenizer import check_template_kwargs
from slime_core.errors import CheckpointError, ConfigError, DataError
from slime_core.roles import DataSourceSetup, PromptFile, RowFormat, Tokenizer
from slime_core.sample import Group, GroupId, Json, Sample
from slime_core.seeds import derive_seed

T = TypeVar("T")
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
        """Write all records, each of at least one byte.

        Raises:
            DataError: the disk is full.
        """
        self._ends = array("Q", [0])
        file: IO[bytes] = _stored(tempfile.TemporaryFile, prefix="slime-prompts-")  # closed with this object
        weakref.finalize(self, _close, file)
        self._descriptor = file.fileno()
        for record in records:
            _stored(file.write, record)
            self._ends.append(self._ends[-1] + len(record))
        _stored(file.flush)

    def __getitem__(self, number: int) -> bytes:
        # Not mmap: its first access to each page takes three times as long, and its pages count as our memory.
        start = self._ends[number]
        return os.pread(self._descriptor, self._ends[number + 1] - start, start)

    def __len__(self) -> int:
        return len(self._ends) - 1


def _stored(write: Callable[..., T], *given: object, **options: object) -> T:
    try:
        return write(*given, **options)
    except OSError as error:
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
    """First part of its group ids."""
    where: str
    """Name in errors, such as its path."""
    rows: Iterable[Row | BadRow]
    row_format: RowFormat
    """How its rows are read."""
    tokenizer: Tokenizer

    @classmethod
    def of(cls, file: PromptFile, tokenizer: Tokenizer) -> "Part":
        """Return the part for a prompt file."""
        reader = RowReader(file, tokenizer)
        return cls(file.name, str(file.path), scan_rows(file.path, reader.needed, reader.optional), file, tokenizer)


@dataclass(frozen=True, slots=True)
class PartRead:
    """Result of reading a part."""

    name: str
    """Name of the part."""
    prompts: int
    """Number of usable rows, at least one."""
    digest: str
    """Hash of prompts, labels, metadata and media; parts with the same digest have the same data."""
    left_out: LeftOut
    """Counts of the other rows."""


class PromptTable:
    """Usable rows of all parts, in the order of the files."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Read all rows.

        Raises:
            DataError: a file cannot be read, rows are bad, or a file has no usable row.
            ModelError: a chat template is needed and the model has none.
        """
        self.named: dict[tuple[str, str], str] = {}
        """First row that names each choice, by role and name."""
        self.parts: list[PartRead] = []
        """Results by file."""
        self._records = RecordFile(record for part in parts for record in self._scan(part))
        self._starts = [0, *accumulate(part.prompts for part in self.parts)]

    def __len__(self) -> int:
        """Number of usable rows."""
        return len(self._records)

    def __getitem__(self, number: int) -> tuple[str, int, Prompt]:
        """Return a row's file name, its number there (left-out rows count), and a prompt that shares no objects."""
        row, _, record = self._records[number].partition(b" ")
        prompt = Prompt._make(_DECODER.raw_decode(record.decode())[0])
        return self.parts[bisect_right(self._starts, number) - 1].name, int(row), prompt

    def identity(self) -> dict[str, Json]:
        """Return the number of prompts and the digest of each file; path and file times do not matter."""
        return {part.name: {"prompts": part.prompts, "digest": part.digest} for part in self.parts}

    def notes(self) -> list[str]:
        """Return a sentence for each kind of row that was left out of a file."""
        return [note for part in self.parts for note in part.left_out.notes(part.name)]

    def _scan(self, part: Part) -> Iterator[bytes]:
        left_out, digest = LeftOut(part.row_format), hashlib.blake2b(digest_size=16)
        check_template_kwargs(part.row_format, part.tokenizer)
        reader, number, prompts = RowReader(part.row_format, part.tokenizer), -1, 0
        for number, (row, (read, dropped_reasoning)) in enumerate(reader.read_all(part.rows)):
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
        except (TypeError, ValueError) as error:  # dates, bytes or NaN of a parquet file: no checkpoint can store them
            return BadRow(f"{where}: prompt, label, metadata and media must be plain JSON: {error}")
        for key, role in NAMING.items():
            if isinstance(name := read.metadata.get(key), str):
                self.named.setdefault((role, name), f"{where}: {part.row_format.metadata_key}.{key}")
        if (check := part.row_format.check) is not None:
            sample = _pending(read, part.name, part.row_format.apply_chat_template_kwargs)
            if (why := check(sample)) is not None:
                return BadRow(f"{where}: {why}")
        return record


def _nothing(part: Part, rows: int, left_out: LeftOut) -> str:
    if not rows:
        return f"{part.where} holds no rows"
    if left_out.shortest is None:
        return f"{part.where}: not one of {rows} rows can be used; {left_out.note(part.name)}"
    return (
        f"{part.where}: all {left_out.too_long} prompts are longer than {part.row_format.max_prompt_len} tokens, the "
        f"shortest has {left_out.shortest}: raise --rollout-max-prompt-len"
    )


def _pending(
    prompt: Prompt,
    source: str,
    template_kwargs: Mapping[str, Json] | None,
    *,
    draw: int = 0,
    place: int = 0,
    number: int = 0,
) -> Sample:
    """Return a row's prompt as a pending sample, at index `place` of the group of draw `draw`."""
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

    def next(self) -> tuple[GroupId, Prompt]:
        if self._offset >= len(self.table):
            self._go_to(self.epoch + 1, 0)
        source, row, prompt = self.table[self._order[self._offset]]
        self._offset += 1
        return GroupId(source, self.epoch, row, 0), prompt

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
        self._template_kwargs = dict(setup.row_format.apply_chat_template_kwargs or {})
        self._draws = self._samples = 0
        self._requeued: deque[Group] = deque()

    async def draw(self, count: int) -> list[Group]:
        """Return exactly `count` groups: returned groups first, from the oldest, then new ones."""
        groups = [self._requeued.popleft() for _ in range(min(count, len(self._requeued)))]
        with _collecting_no_garbage():
            while len(groups) < count:
                groups.append(self._next())
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
            end, parts = f"/{stream.name}" if len(self._streams) > 1 else "", stream.table.parts
            found[f"data/prompts{end}"] = float(len(stream.table))
            found[f"data/filtered{end}"] = float(sum(part.left_out.too_long for part in parts))
            found[f"data/bad_rows{end}"] = float(sum(part.left_out.bad for part in parts))
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
                f"the saved position is one of other settings: {'; '.join(changed)}. Continue with the same settings, "
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
        size, (place, prompt) = self._setup.n_samples_per_prompt, stream.next()
        group = _group_of(place._replace(draw=self._draws), prompt, self._samples, size, self._template_kwargs)
        self._draws += 1
        self._samples += size  # another size is possible after a resume
        return group


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Disable Python's garbage collector while many lasting objects are made; scanning them doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _group_of(place: GroupId, prompt: Prompt, first: int, size: int, template_kwargs: Mapping[str, Json]) -> Group:
    """Return a group of `size` pending samples, numbered from `first` among all drawn samples."""
    samples = [
        _pending(own, place.source, template_kwargs, draw=place.draw, place=index, number=first + index)
        for index, own in enumerate(_copies(prompt, size))
    ]
    return Group(place, samples)


def _copies(prompt: Prompt, count: int) -> Iterable[Prompt]:
    """Return prompts that share no mutable objects, except for the outer dict of their metadata.

    Deep copies of all prompts would double the time of a draw, and most rows contain nothing mutable.
    """
    values = (prompt.prompt, prompt.label, prompt.media, *prompt.metadata.values())
    if any(isinstance(value, dict | list) for value in values):
        return [deepcopy(prompt) for _ in range(count)]
    return repeat(prompt, count)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _difference(before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    if not before or not now:
        return "is new" if now else "is gone"
    if before.get("prompts") != now.get("prompts"):
        return f"{before.get('prompts')} -> {now.get('prompts')} prompts"
    return "as many prompts, but not the same (a changed chat template or key counts too)"


def prompt_source(setup: DataSourceSetup) -> PromptSource:
    """Return a data source of the run's prompt files, which together are one epoch.

    Raises:
        ConfigError: there is no prompt file.
        DataError: a file cannot be read, or has no usable row.
    """
    if not setup.prompts:
        raise ConfigError("the data source 'prompts' reads files: give --prompt-data FILE (.jsonl or .parquet)")
    name = ", ".join(file.name for file in setup.prompts)
    table = PromptTable([Part.of(file, setup.tokenizer) for file in setup.prompts])
    return PromptSource(setup, {name: table}, [1.0])


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
    table = PromptTable([Part(name, name, numbered, setup.row_format, setup.tokenizer)])
    return PromptSource(setup, {name: table}, [1.0])


def mixture_source(settings: MixtureSettings, setup: DataSourceSetup) -> PromptSource:
    """Return a data source of several data sets, each with separate epochs, drawn by weight.

    Raises:
        DataError: a file cannot be read, or has no usable row.
    """
    tables = {
        name: PromptTable([Part.of(file, setup.tokenizer) for file in _member_files(name, member, setup)])
        for name, member in settings.sources.items()
    }
    return PromptSource(setup, tables, [member.weight for member in settings.sources.values()])


def _member_files(name: str, member: MixtureMember, setup: DataSourceSetup) -> list[PromptFile]:
    row_format = member.row_format(setup.row_format)
    if isinstance(member.path, str):
        return [PromptFile.of(Path(member.path), name, row_format)]
    return [PromptFile.of(path, f"{name}/{file}", row_format) for path, file in name_files(member.path)]


@dataclass(frozen=True, slots=True)
class EveryPrompt:
    """All prompts of a file, for evaluation."""

    groups: Sequence[Group]
    """Each prompt once, in file order, with its row number."""
    named: Mapping[tuple[str, str], str]
    """Rewards and generators that rows choose, with the first row of each."""
    notes: Sequence[str]
    """A sentence for each kind of row that was left out."""


def every_prompt(file: PromptFile, tokenizer: Tokenizer, n_samples_per_prompt: int) -> EveryPrompt:
    """Read all prompts of a file, for evaluation.

    Raises:
        DataError: the file cannot be read, or has no usable row.
    """
    table = PromptTable([Part.of(file, tokenizer)])
    kwargs, size = file.apply_chat_template_kwargs or {}, n_samples_per_prompt
    rows = map(table.__getitem__, range(len(table)))
    groups = [_group_of(GroupId(name, 0, row, row), prompt, row * size, size, kwargs) for name, row, prompt in rows]
    return EveryPrompt(groups, table.named, table.notes())


def name_files(paths: Sequence[str]) -> list[tuple[Path, str]]:
    """Name paths by as many trailing components as it takes to tell them apart, at least one.

    Raises:
        ConfigError: a path is given twice.
    """
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
