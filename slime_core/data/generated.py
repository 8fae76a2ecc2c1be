"""Data sources without files: rows from a function of seed and index, and the tasks of reasoning-gym.

Both are endless and reproducible. The scorers of reasoning-gym are also available as a reward; they need the extra
of that name.

Example:

    def sums(seed: int, index: int) -> dict[str, Json]:
        a, b = random.Random(seed).choices(range(100), k=2)
        return {"input": f"{a}+{b}=", "label": str(a + b)}

    source = generated_source(sums, "sums", setup)      # or [data_source.generated] rows = "./rows.py:sums"
"""

import hashlib
import importlib
import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Protocol, cast

from slime_core.catalog import import_project_module
from slime_core.data.prompt_table import choices_of, decode_prompt, encode_prompt, rejected
from slime_core.data.prompts import PromptSource
from slime_core.data.row_reader import LeftOut, Prompt, RowReader, TooLong
from slime_core.data.rows import BadRow, Row
from slime_core.data.settings import EPOCH, GeneratedSettings, ReasoningGymRewardSettings, ReasoningGymSettings
from slime_core.data.streams import Taken
from slime_core.data.tokenizer import check_template_kwargs
from slime_core.errors import ConfigError, DataError, UnknownName, did_you_mean
from slime_core.roles import DataSourceSetup, RewardContext, RowFormat
from slime_core.sample import Json, Sample
from slime_core.score import Score, Unscored, Verdict
from slime_core.seeds import derive_seed

# Generated rows: a function or a class that makes row after row from a seed and an index, as an endless data source.

TRIED_FIRST = 3
"""Rows made when the source is built: a mistake is found then, and their hash tells whether the code has changed."""
MISSES = 1_000
"""Rows left out one after the other at which a source gives up."""
ENOUGH = 200
"""Rows from which on the share of bad ones is judged."""


class RowMaker(Protocol):
    """Makes rows; the same row for the same arguments, whenever and wherever it is called."""

    def __call__(self, seed: int, index: int) -> Mapping[str, Json]:
        """One row.

        Args:
            seed: of this row, from the run's seed, the source's name and the index.
            index: number of the row, from 0, without end.
        """
        ...


class GeneratedStream:
    """Row after row, each seen once; those that cannot be used are counted and passed over."""

    def __init__(
        self, name: str, make_row: RowMaker, row_format: RowFormat, setup: DataSourceSetup, size: int = EPOCH
    ) -> None:
        """Make the first few rows, to see that they can be used.

        Raises:
            ConfigError: the chat template never reads one of the format's arguments.
            DataError: they cannot.
        """
        check_template_kwargs(row_format, setup.tokenizer)
        self.name = name
        self._make, self._seed, self._size = make_row, setup.seed, size
        self._reader = RowReader(row_format, setup.tokenizer)
        self._left_out = LeftOut(row_format)
        self._index = 0
        self._named: dict[tuple[str, str], str] = {}
        self._digest = self._try(row_format)

    def next(self) -> Taken:
        """The next row that can be used.

        Raises:
            DataError: it is bad, and bad rows are errors, or too many are.
        """
        for _ in range(MISSES):
            index = self._index
            self._index += 1
            prompt = self._read(index)
            if isinstance(prompt, Prompt):
                self._left_out.without_reasoning += self._reader.dropped_reasoning
                epoch, row = divmod(index, self._size)
                return Taken(self.name, epoch, row, prompt)
            self._left_out.count(prompt)
            if index >= ENOUGH:
                self._left_out.check(self.name, index + 1)
        raise DataError(f"{self.name}: {MISSES} rows one after the other cannot be used. {self.data_notes()[0]}")

    def __len__(self) -> int:
        return self._size

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """Choices that the first rows make."""
        return self._named

    def data_metrics(self) -> Mapping[str, float]:
        """Counts up to here."""
        return {
            "prompts": float(self._size),
            "filtered": float(self._left_out.too_long),
            "bad_rows": float(self._left_out.bad),
            "epoch": float(self._index // self._size),
        }

    def data_notes(self) -> Sequence[str]:
        """What was left out up to here."""
        return self._left_out.notes(self.name)

    def identity(self) -> dict[str, Json]:
        """By its first rows: another function, or other options, make others."""
        return {self.name: {"prompts": self._size, "digest": self._digest}}

    def state_dict(self) -> dict[str, Json]:
        """The next row, and what was left out before it."""
        return {"index": self._index, "left_out": self._left_out.state_dict()}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue at a row."""
        self._index = cast(int, state["index"])
        self._left_out.load_state_dict(cast(dict[str, Json], state["left_out"]))

    def _read(self, index: int) -> Prompt | TooLong | BadRow:
        where, seed = f"{self.name}, row {index}", derive_seed(self._seed, self.name, index)
        try:
            with _seeding_random(seed):
                row: object = self._make(seed, index)
        except Exception as error:
            return BadRow(f"{where}: making it raised {type(error).__name__}: {error}")
        if not isinstance(row, Mapping):
            return BadRow(f"{where}: expected a mapping of columns, got {type(row).__name__}")
        read = self._reader.read(Row(where, dict(row)))
        record = encode_prompt(where, read) if isinstance(read, Prompt) else read
        return decode_prompt(record) if isinstance(record, bytes) else record  # the maker keeps nothing of it

    def _try(self, row_format: RowFormat) -> str:
        left_out, digest = LeftOut(row_format), hashlib.blake2b(digest_size=16)
        for index in range(TRIED_FIRST):
            prompt = self._read(index)
            if isinstance(prompt, Prompt):
                for role, name, key in choices_of(prompt):
                    self._named.setdefault((role, name), f"{self.name}, row {index}: {key}")
                if (why := rejected(prompt, self.name, row_format)) is not None:
                    left_out.count(BadRow(f"{self.name}, row {index}: {why}"))
            elif isinstance(prompt, BadRow):
                left_out.count(prompt)
            digest.update(repr(prompt).encode())
        return digest.hexdigest()


@contextmanager
def _seeding_random(seed: int) -> Iterator[None]:
    """Seed the module `random`, and put it back: code that draws from it would make other rows after a resume."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


def generated_source(make_row: RowMaker, name: str, setup: DataSourceSetup, size: int = EPOCH) -> PromptSource:
    """An endless data source of made rows: for factories of plugins.

    Args:
        make_row: makes one.
        name: the first part of every group's identity.
        setup: the run's; rows are read in its `row_format`.
        size: rows that count as an epoch, for `num_epoch`.

    Raises:
        DataError: the first rows cannot be used.
    """
    return PromptSource(setup, [GeneratedStream(name, make_row, setup.row_format, setup, size)])


def generated_source_of(settings: GeneratedSettings, setup: DataSourceSetup) -> PromptSource:
    """The data source `generated`.

    Raises:
        ConfigError: `rows` does not say which object, or it cannot be called as wanted.
        UnknownName: there is no such file, module or object.
        DataError: the first rows cannot be used.
    """
    make_row = _load(settings.rows, settings.options)
    return generated_source(make_row, settings.rows.rpartition(":")[2], setup, settings.size)


def _load(text: str, options: Mapping[str, Json]) -> RowMaker:
    place, _, attribute = text.rpartition(":")
    if not place or not attribute:
        raise ConfigError(f"rows = {text!r} does not say which object: write ./FILE.py:NAME or MODULE:NAME")
    module = import_project_module(place)
    found: object = getattr(module, attribute, None)
    if not callable(found):
        own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise UnknownName(f"rows = {text!r}: {place} has no such function or class.{did_you_mean(attribute, own)}")
    make: Callable[..., object] = found
    try:
        if isinstance(found, type):
            inspect.signature(found).bind(**options)
            make = cast(Callable[..., object], found(**options))
        else:
            make = partial(make, **options)
        inspect.signature(make).bind(0, 0)
    except TypeError as error:
        raise ConfigError(
            f"rows = {text!r} cannot be called as wanted, {error}: a function is called as NAME(seed, index, "
            "**options), a class as NAME(**options)(seed, index)"
        ) from None
    return cast(RowMaker, make)


# reasoning-gym: its tasks as an endless data source, and its own scorers as a reward. Needs the extra of that name.

CHUNK = 500
"""Rows made from one seed: some data sets make all of theirs at once, so a chunk must be small."""
NAME = "source_dataset"
"""Key of a row's metadata that names its data set; reasoning-gym's own."""


class _DataSet(Protocol):
    """What is used of a reasoning-gym data set."""

    def __getitem__(self, index: int) -> Mapping[str, Json]: ...
    def score_answer(self, answer: str | None, entry: Mapping[str, Json]) -> float: ...


class Tasks:
    """Makes rows: one data set, endlessly."""

    def __init__(self, name: str, config: Mapping[str, object], seed: int) -> None:
        """Make the first chunk.

        Raises:
            UnknownName: there is no such data set.
            ConfigError: reasoning-gym is not installed, or refuses the configuration.
        """
        self._gym = _import()
        self._name, self._config, self._seed = name, config, seed
        self._chunk, self._rows = 0, self._make(0)

    def __call__(self, seed: int, index: int) -> Mapping[str, Json]:
        """One row, with the columns question, answer and metadata."""
        chunk, offset = divmod(index, CHUNK)
        if chunk != self._chunk:
            self._chunk, self._rows = chunk, self._make(chunk)
        return self._rows[offset]

    def _make(self, chunk: int) -> _DataSet:
        seed = derive_seed(self._seed, self._name, "reasoning_gym", chunk) % 2**32
        return _create(self._gym, self._name, {**self._config, "seed": seed, "size": CHUNK})


def reasoning_gym_source(settings: ReasoningGymSettings, setup: DataSourceSetup) -> PromptSource:
    """Tasks of several data sets, drawn from by weight.

    Raises:
        UnknownName: there is no such data set.
        ConfigError: reasoning-gym is not installed, or refuses a configuration.
    """
    row_format = replace(setup.row_format, input_key="question", label_key="answer", metadata_key="metadata")
    streams = [
        GeneratedStream(name, Tasks(name, task.config, setup.seed), row_format, setup, settings.size)
        for name, task in settings.datasets.items()
    ]
    return PromptSource(setup, streams, [task.weight for task in settings.datasets.values()])


class ReasoningGymReward:
    """Scores a response as the data set of its row does, from 0 to 1. Implements `slime_core.roles.SyncReward`."""

    def __init__(self, settings: ReasoningGymRewardSettings) -> None:
        """Import reasoning-gym.

        Raises:
            ConfigError: it is not installed.
        """
        self._gym = _import()
        self._tag = settings.tag
        self._sets: dict[str, _DataSet] = {}

    def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Unscored where the row is of no reasoning-gym data set."""
        name = sample.metadata.get(NAME)
        if not isinstance(name, str):
            return Unscored("the row is of no reasoning-gym data set")
        if name not in self._sets:
            self._sets[name] = _create(self._gym, name, {"seed": 0, "size": 1})
        entry: dict[str, Json] = {"question": "", "answer": sample.label, "metadata": sample.metadata}
        answer = _answer(sample.response, self._tag)
        score = self._sets[name].score_answer(answer, entry)
        return Score(float(score), {"answered": float(answer is not None)})


def _answer(response: str, tag: str) -> str | None:
    """What the last pair of tags holds; None without one."""
    if not tag:
        return response.strip()
    _, opened, rest = response.rpartition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside.strip() if opened and closed else None


def _create(gym: ModuleType, name: str, config: Mapping[str, object]) -> _DataSet:
    known = importlib.import_module("reasoning_gym.factory").DATASETS
    if name not in known:
        raise UnknownName(f"reasoning-gym has no data set {name!r}.{did_you_mean(name, list(known))}")
    try:
        return cast(_DataSet, gym.create_dataset(name, **config))
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"reasoning-gym refuses the configuration of {name!r}: {error}") from None


def _import() -> ModuleType:
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise ConfigError(
            f"reasoning-gym cannot be imported ({error}): install slime-core's extra `reasoning-gym`; "
            "from a checkout: pip install -e '.[reasoning-gym]'"
        ) from None
