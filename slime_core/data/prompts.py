"""The core's data sources: `prompts` from files, `mixture` of several files with weights, and rows in memory.

Every draw is a function of the seed, the data and the draw's number. Each position is a few numbers, and each entry
of a shuffled epoch is computed on demand, so a shuffle needs no list in memory and a resume continues at exactly the
same prompt.

Example:

    [data_source.mixture.sources]               # with [data_source] use = "mixture"
    math = { path = "math.jsonl", weight = 3.0, label_key = "answer" }
    code = { path = ["code-a.parquet", "code-b.parquet"] }
"""

import gc
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, repeat
from math import isqrt
from pathlib import Path
from random import Random
from typing import TypeVar, cast

from slime_core.data.prompt_table import PromptTable, part_of, part_of_rows, pending
from slime_core.data.row_reader import Prompt
from slime_core.data.settings import MixtureMember, MixtureSettings
from slime_core.errors import CheckpointError, ConfigError
from slime_core.roles import DataSourceSetup, PromptFile, Tokenizer
from slime_core.sample import Group, GroupId, Json
from slime_core.seeds import derive_seed

T = TypeVar("T")
ROUNDS = 4
"""Rounds of a permutation; each mixes both coordinates once."""
SMALL = 64
"""Up to this size there are twice as many: permutations of five rows are visibly uneven after four, not after eight."""
BLOCK = 256
"""Draws of a mixture that are dealt together."""


class EpochOrder:
    """A pseudo-random permutation, position in the epoch -> row, whose entries are computed on demand."""

    def __init__(self, size: int, seed: int) -> None:
        """Draw the tables that the order follows from; `size` is at least one."""
        self._size = size
        self._width = isqrt(size - 1) + 1
        self._height = -(-size // self._width)
        # `random()` alone: of all its methods Python promises that this one draws alike in every version.
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


class Interleaving:
    """Which member of a mixture each draw goes to, by weight and seed."""

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        """Take the weights, positive and finite, of any sum."""
        total = sum(weights)
        self._bounds = list(accumulate(weight / total for weight in weights))
        self._seed = seed
        self._block: tuple[int, list[int]] = (-1, [])

    def member(self, draw: int) -> int:
        """Number of the member that a draw goes to."""
        number, offset = divmod(draw, BLOCK)
        if self._block[0] != number:
            self._block = (number, self._deal(number))
        return self._block[1][offset]

    def _deal(self, number: int) -> list[int]:
        """One block by systematic sampling, in random order."""
        draw = Random(derive_seed(self._seed, "mixture", number)).random
        start, last = draw(), len(self._bounds) - 1
        members = [min(bisect_right(self._bounds, (turn + start) / BLOCK), last) for turn in range(BLOCK)]
        keys = [draw() for _ in members]
        return [members[turn] for turn in sorted(range(BLOCK), key=keys.__getitem__)]


class _Stream:
    """The rows of a table, epoch after epoch, each in an order of its own if shuffled."""

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
        """Continue at a place; one behind the last row is the end of its epoch."""
        epoch, offset = cast(int, state["epoch"]), cast(int, state["offset"])
        if epoch < 0 or offset < 0:
            raise CheckpointError(f"the saved position in {self.name} is epoch {epoch}, row {offset}")
        self._go_to(epoch, offset)

    def _go_to(self, epoch: int, offset: int) -> None:
        self.epoch, self._offset, size = epoch, offset, len(self.table)
        seed = derive_seed(self._seed, self.name, "shuffle", epoch)
        self._order: Sequence[int] | EpochOrder = EpochOrder(size, seed) if self._shuffle else range(size)


class PromptSource:
    """Prompts of one table or of several with weights. Implements `DataSource`, `NamesChoices` and `DescribesData`."""

    def __init__(self, setup: DataSourceSetup, tables: Mapping[str, PromptTable], weights: Sequence[float]) -> None:
        """At the first draw.

        Args:
            setup: the run's.
            tables: by name, at least one.
            weights: how often each is drawn from.
        """
        self._setup = setup
        self._streams = [_Stream(name, table, setup) for name, table in tables.items()]
        self._weights = weights
        self._turns = Interleaving(weights, setup.seed)
        self._template_kwargs = dict(setup.row_format.apply_chat_template_kwargs or {})
        self._draws = self._samples = 0
        self._requeued: deque[Group] = deque()

    async def draw(self, count: int) -> list[Group]:
        """Exactly `count` groups: those that came back first, oldest first, then new ones."""
        groups = [self._requeued.popleft() for _ in range(min(count, len(self._requeued)))]
        with _collecting_no_garbage():
            while len(groups) < count:
                groups.append(self._next())
        return groups

    def add(self, groups: Sequence[Group]) -> None:
        """Take back groups that were drawn and not finished."""
        self._requeued.extend(groups)

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """Rewards and generators that rows choose in their metadata, and the first row of each."""
        named: dict[tuple[str, str], str] = {}
        for stream in self._streams:
            named = {**stream.table.named, **named}
        return named

    def data_metrics(self) -> Mapping[str, float]:
        """Of each table: `data/prompts`, `data/filtered`, `data/bad_rows`, `data/epoch`; with its name if several."""
        found: dict[str, float] = {}
        for stream in self._streams:
            end, parts = f"/{stream.name}" if len(self._streams) > 1 else "", stream.table.parts
            found[f"data/prompts{end}"] = float(len(stream.table))
            found[f"data/filtered{end}"] = float(sum(part.left_out.too_long for part in parts))
            found[f"data/bad_rows{end}"] = float(sum(part.left_out.bad for part in parts))
            found[f"data/epoch{end}"] = float(stream.epoch)
        return found

    def data_notes(self) -> Sequence[str]:
        """A sentence about each kind of row that was left out."""
        return [note for stream in self._streams for note in stream.table.notes()]

    def state_dict(self) -> dict[str, Json]:
        """Places, requeued groups, and what they are places in."""
        return {
            "of": {"run": self._run(), "data": {stream.name: stream.table.identity() for stream in self._streams}},
            "draws": self._draws,
            "samples": self._samples,
            "streams": {stream.name: stream.state_dict() for stream in self._streams},
            "requeued": [group.to_dict() for group in self._requeued],
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: the state is of other settings; or of other data, which the setup does not accept.
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
        """Prompts in one epoch of every table, without those left out."""
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
        stream = self._streams[self._turns.member(self._draws) if len(self._streams) > 1 else 0]
        size, (place, prompt) = self._setup.n_samples_per_prompt, stream.next()
        group = _group_of(place._replace(draw=self._draws), prompt, self._samples, size, self._template_kwargs)
        self._draws += 1
        self._samples += size  # which may be another after a resume
        return group


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Put Python's collector off while objects are made that all stay: looking through them cost as much as making."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _group_of(place: GroupId, prompt: Prompt, first: int, size: int, template_kwargs: Mapping[str, Json]) -> Group:
    """A group of `size` pending samples, the first of which has the number `first` among all that were drawn."""
    samples = [
        pending(own, place.source, template_kwargs, draw=place.draw, place=index, number=first + index)
        for index, own in enumerate(_copies(prompt, size))
    ]
    return Group(place, samples)


def _copies(prompt: Prompt, count: int) -> Iterable[Prompt]:
    """Prompts that share nothing that can be changed, but for the outermost of their metadata.

    Copying them all whole would double the time of a draw, and most rows have nothing in them that can be changed.
    """
    values = (prompt.prompt, prompt.label, prompt.media, *prompt.metadata.values())
    if any(isinstance(value, dict | list) for value in values):
        return [Prompt._make(_copied([*prompt])) for _ in range(count)]
    return repeat(prompt, count)


def _copied(value: T) -> T:
    if isinstance(value, dict):
        return cast(T, {key: _copied(each) for key, each in value.items()})
    if isinstance(value, list):
        return cast(T, [_copied(each) for each in value])
    return value


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _difference(before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    if not before or not now:
        return "is new" if now else "is gone"
    if before.get("prompts") != now.get("prompts"):
        return f"{before.get('prompts')} -> {now.get('prompts')} prompts"
    return "as many prompts, but not the same (a changed chat template or key counts too)"


def prompt_source(setup: DataSourceSetup) -> PromptSource:
    """The rows of the run's prompt files, all in one epoch.

    Raises:
        ConfigError: no prompt file was given.
        DataError: one cannot be read, or has no usable row.
    """
    if not setup.prompts:
        raise ConfigError("the data source 'prompts' reads files: give --prompt-data FILE (.jsonl or .parquet)")
    name = ", ".join(file.name for file in setup.prompts)
    table = PromptTable([part_of(file, setup.tokenizer) for file in setup.prompts])
    return PromptSource(setup, {name: table}, [1.0])


def row_source(rows: Iterable[Mapping[str, Json]], name: str, setup: DataSourceSetup) -> PromptSource:
    """Rows that lie in memory, or in an HF `Dataset`, as a data source: for factories of plugins.

    Args:
        rows: read once, in `setup.row_format`.
        name: the first part of every group's identity.
        setup: the run's.

    Raises:
        DataError: rows are bad, or none is usable.
    """
    table = PromptTable([part_of_rows(name, rows, setup.row_format, setup.tokenizer)])
    return PromptSource(setup, {name: table}, [1.0])


def mixture_source(settings: MixtureSettings, setup: DataSourceSetup) -> PromptSource:
    """Several data sets, each with epochs of its own, drawn from by weight.

    Raises:
        DataError: a file cannot be read, or has no usable row.
    """
    tables = {
        name: PromptTable([part_of(file, setup.tokenizer) for file in _member_files(name, member, setup)])
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
    """A whole prompt file, for evaluation."""

    groups: Sequence[Group]
    """Each prompt once, in file order, numbered as its row."""
    named: Mapping[tuple[str, str], str]
    """Rewards and generators that rows choose, and the first row of each."""
    notes: Sequence[str]
    """A sentence about each kind of row that was left out."""


def every_prompt(file: PromptFile, tokenizer: Tokenizer, n_samples_per_prompt: int) -> EveryPrompt:
    """Read a prompt file for evaluation.

    Raises:
        DataError: it cannot be read, or has no usable row.
    """
    table = PromptTable([part_of(file, tokenizer)])
    kwargs, size = file.apply_chat_template_kwargs or {}, n_samples_per_prompt
    rows = map(table.__getitem__, range(len(table)))
    groups = [_group_of(GroupId(name, 0, row, row), prompt, row * size, size, kwargs) for name, row, prompt in rows]
    return EveryPrompt(groups, table.named, table.notes())


def name_files(paths: Sequence[str]) -> list[tuple[Path, str]]:
    """Paths with names that tell them apart: the last part, or as many as it takes.

    Raises:
        ConfigError: one is given twice.
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
