"""The core's data sources: `prompts` from files, `mixture` of several files with weights, and rows in memory.

Every draw is a function of the seed, the data and the draw's number. The saved state is therefore a few numbers and
the groups that were returned.

Example:

    [data_source.mixture.sources]               # with [data_source] use = "mixture"
    math = { path = "math.jsonl", weight = 3.0, label_key = "answer" }
    code = { path = ["code-a.parquet", "code-b.parquet"] }
"""

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TypeVar, cast

from slime_core.data.prompt_table import PromptTable, part_of, part_of_rows
from slime_core.data.row_reader import Prompt
from slime_core.data.settings import MixtureMember, MixtureSettings
from slime_core.data.streams import FileStream, Interleaving, Stream, Taken
from slime_core.errors import CheckpointError, ConfigError
from slime_core.roles import DataSourceSetup, PromptFile, Tokenizer
from slime_core.sample import Group, GroupId, Json, Sample

# PromptSource: the data source of the core: prompts of one stream or of several with weights, from exact state.

T = TypeVar("T")


class PromptSource:
    """Implements `slime_core.roles.DataSource`, `NamesChoices` and `DescribesData`."""

    def __init__(self, setup: DataSourceSetup, streams: Sequence[Stream], weights: Sequence[float] = (1.0,)) -> None:
        """At the first draw.

        Args:
            setup: the run's.
            streams: at least one, their names all different.
            weights: how often each is drawn from.
        """
        self._setup = setup
        self._streams = streams
        self._weights = weights
        self._turns = Interleaving(weights, setup.seed) if len(streams) > 1 else None
        self._template_kwargs = dict(setup.row_format.apply_chat_template_kwargs or {})
        self._draws = self._samples = 0
        self._requeued: deque[Group] = deque()

    async def draw(self, count: int) -> list[Group]:
        """Exactly `count` groups: those that came back first, oldest first, then new ones.

        Raises:
            DataError: a generated row cannot be used.
        """
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
            named = {**stream.named_choices(), **named}
        return named

    def data_metrics(self) -> Mapping[str, float]:
        """Of each stream: `data/prompts`, `data/filtered`, `data/bad_rows`, `data/epoch`; with its name if several."""
        several = len(self._streams) > 1
        return {
            f"data/{name}/{stream.name}" if several else f"data/{name}": value
            for stream in self._streams
            for name, value in stream.data_metrics().items()
        }

    def data_notes(self) -> Sequence[str]:
        """A sentence about each kind of row that was left out."""
        return [note for stream in self._streams for note in stream.data_notes()]

    def state_dict(self) -> dict[str, Json]:
        """Places, requeued groups, and what they are places in."""
        return {
            "of": {"run": self._run(), "data": {stream.name: stream.identity() for stream in self._streams}},
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
        saved = _table(state.get("of"))
        if changed := _changes(_table(saved.get("run")), self._run()):
            raise CheckpointError(
                f"the saved position is one of other settings: {'; '.join(changed)}. Continue with the same settings, "
                "or start a new run with another --save"
            )
        if not self._setup.accept_changed_data and (changed := self._changed_data(_table(saved.get("data")))):
            raise CheckpointError(
                f"the data has changed since the checkpoint was written: {'; '.join(changed)}. Put the old data back, "
                "pass --accept-changed-data to go on with the new from the same place, or start a new run with "
                "another --save"
            )
        self._draws, self._samples = cast(int, state["draws"]), cast(int, state["samples"])
        self._requeued = deque(Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["requeued"]))
        places = _table(state["streams"])
        for stream in self._streams:
            if stream.name in places:
                stream.load_state_dict(_table(places[stream.name]))

    def __len__(self) -> int:
        """Prompts in one epoch of every stream, without those left out."""
        return sum(len(stream) for stream in self._streams)

    def _run(self) -> dict[str, Json]:
        """The settings that a position depends on."""
        weights = {stream.name: weight for stream, weight in zip(self._streams, self._weights, strict=True)}
        return {
            "streams": [*weights] if len(weights) == 1 else cast(Json, weights),
            "seed": self._setup.seed,
            "shuffle": self._setup.shuffle,
        }

    def _changed_data(self, saved: Mapping[str, Json]) -> list[str]:
        """Each file that is not what it was, in words."""
        changed = []
        for stream in self._streams:
            before, now = _table(saved.get(stream.name)), stream.identity()
            changed += [
                f"{name}: {_difference(_table(before.get(name)), _table(now.get(name)))}"
                for name in {**before, **now}
                if before.get(name) != now.get(name)
            ]
        return changed

    def _next(self) -> Group:
        stream = self._streams[self._turns.member(self._draws) if self._turns else 0]
        size = self._setup.n_samples_per_prompt
        group = group_of(stream.next(), self._draws, self._samples, size, self._template_kwargs)
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


def group_of(taken: Taken, draw: int, first: int, size: int, template_kwargs: Mapping[str, Json]) -> Group:
    """A group of pending samples, none of which shares anything that can be changed with another.

    Args:
        taken: the prompt.
        draw: number of the group.
        first: number of its first sample among all that were drawn.
        size: samples.
        template_kwargs: extra arguments of the chat template.
    """
    source, epoch, row, prompt = taken
    reward = cast("str | None", prompt.metadata.get("custom_rm_path"))
    generator = cast("str | None", prompt.metadata.get("generate_function_path"))
    samples = [
        Sample(
            draw,
            index,
            first + index,
            text,
            [],
            media,
            label=label,
            metadata={**metadata},
            apply_chat_template_kwargs={**template_kwargs},
            generate_function_path=generator,
            custom_rm_path=reward,
            source=source,
        )
        for index, (text, label, metadata, media) in enumerate(_copies(prompt, size))
    ]
    return Group(GroupId(source, epoch, row, draw), samples)


def _copies(prompt: Prompt, count: int) -> Iterable[Prompt]:
    """Prompts that share nothing that can be changed, but for the outermost of their metadata.

    Copying them all whole would double the time of a draw, and most rows have nothing in them that can be changed.
    """
    values = (prompt.prompt, prompt.label, prompt.media, *prompt.metadata.values())
    if any(isinstance(value, dict | list) for value in values):
        return [Prompt._make(_copied([*prompt])) for _ in range(count)]
    return repeat(prompt, count)


def _copied(value: T) -> T:
    """A JSON value of which nothing is shared."""
    if isinstance(value, dict):
        return cast(T, {key: _copied(each) for key, each in value.items()})
    if isinstance(value, list):
        return cast(T, [_copied(each) for each in value])
    return value


def _table(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _changes(saved: Mapping[str, Json], mine: Mapping[str, Json]) -> list[str]:
    return [f"{key}: {saved.get(key)} -> {value}" for key, value in mine.items() if saved.get(key) != value]


def _difference(before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    if not before or not now:
        return "is new" if now else "is gone"
    if before.get("prompts") != now.get("prompts"):
        return f"{before.get('prompts')} -> {now.get('prompts')} prompts"
    return "as many prompts, but not the same (a changed chat template or key counts too)"


# The data sources of the core that read files or rows: `prompts`, `mixture`, and one for rows that lie in memory.


def prompt_source(setup: DataSourceSetup) -> PromptSource:
    """The rows of the run's prompt files, all in one epoch.

    Raises:
        ConfigError: no prompt file was given.
        DataError: one cannot be read, or has no usable row.
    """
    if not setup.prompts:
        raise ConfigError("the data source 'prompts' reads files: give --prompt-data FILE (.jsonl or .parquet)")
    name = ", ".join(file.name for file in setup.prompts)
    return PromptSource(setup, [_stream(name, setup.prompts, setup)])


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
    return PromptSource(setup, [FileStream(name, table, setup.seed, shuffle=setup.shuffle)])


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
    stream = FileStream(file.name, table, seed=0, shuffle=False)
    taken = [stream.taken(number) for number in range(len(table))]
    kwargs = file.apply_chat_template_kwargs or {}
    groups = [group_of(each, each.row, each.row * n_samples_per_prompt, n_samples_per_prompt, kwargs) for each in taken]
    return EveryPrompt(groups, table.named, stream.data_notes())


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


def _stream(name: str, files: Sequence[PromptFile], setup: DataSourceSetup) -> FileStream:
    table = PromptTable([part_of(file, setup.tokenizer) for file in files])
    return FileStream(name, table, setup.seed, shuffle=setup.shuffle)


def mixture_source(settings: MixtureSettings, setup: DataSourceSetup) -> PromptSource:
    """Several data sets, each with epochs of its own, drawn from by weight.

    Raises:
        DataError: a file cannot be read, or has no usable row.
    """
    members = settings.sources.items()
    streams = [_stream(name, _member_files(name, member, setup), setup) for name, member in members]
    return PromptSource(setup, streams, [member.weight for _, member in members])


def _member_files(name: str, member: MixtureMember, setup: DataSourceSetup) -> list[PromptFile]:
    """A member's prompt files, under its name."""
    row_format = member.row_format(setup.row_format)
    if isinstance(member.path, str):
        return [PromptFile.of(Path(member.path), name, row_format)]
    return [PromptFile.of(path, f"{name}/{file}", row_format) for path, file in name_files(member.path)]
