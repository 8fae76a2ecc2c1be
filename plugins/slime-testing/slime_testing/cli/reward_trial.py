"""Implements `slime reward try`: reads samples, scores them like a run, and summarizes the verdicts."""

import asyncio
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean, pstdev
from typing import cast

import slime_core
import slime_testing
from slime_core.aio import cancel_all
from slime_core.catalog import Catalog, RegisteredChoice, check_verdict
from slime_core.catalog.checks import check_verdicts
from slime_core.data import Row, read_rows
from slime_core.data.rows import split_slice
from slime_core.errors import ContractError, DataError
from slime_core.processes import Protection, StartError, Watchdog
from slime_core.roles import GroupReward, GroupRewardSpec, Reward, RewardContext, Settings
from slime_core.sample import Json, Message, Sample, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_core.seeds import derive_seed
from slime_core.stats import CallStats, PluginStats, percentile
from slime_testing.cli import SEED, setup_of
from slime_view.samples import Shard, is_shard


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of a row's columns."""

    prompt: str = "prompt"
    """A text or a list of chat messages; optional."""
    response: str = "response"
    """A text; required."""
    label: str | None = None
    """The gold answer. None: `label`, which is optional; a named column is required."""
    metadata: str = "metadata"
    """An object; optional."""
    group: str | None = None
    """Rows with the same value form a group; None: each row is scored separately."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One row, and its sample."""

    number: int
    where: str
    group: str
    values: Mapping[str, Json]
    sample: Sample


def read_sample_rows(path: Path, keys: Keys, limit: int | None) -> list[SampleRow]:
    """Read the first rows of a file.

    Raises:
        RunFolderError: the file is a corrupt shard.
        DataError: see `read_rows`; or a key is missing, a value has the wrong type, or the file has no rows.
    """
    groups: dict[str, int] = {}
    members: dict[str, int] = {}
    rows = []
    read = _shard_rows(path) if is_shard(split_slice(path)[0]) else read_rows(path)
    for number, row in enumerate(islice(read, limit), 1):
        group = _group(row, keys)
        place = groups.setdefault(group, len(groups))
        index = members.get(group, 0)
        members[group] = index + 1
        sample = _sample(row, keys, group=place if keys.group else number - 1, index=index if keys.group else 0)
        rows.append(SampleRow(number, row.where, group, row.values, sample))
    if not rows:
        raise DataError(f"{path} contains no rows")
    return rows


def _shard_rows(path: Path) -> Iterator[Row]:
    file, start, stop = split_slice(path)
    shard = Shard(file)
    begin, end, _ = slice(start, stop).indices(len(shard))
    for number, row in islice(enumerate(shard.rows()), begin, max(begin, end)):
        yield Row(f"{file}, row {number}", row.to_dict())


def _sample(row: Row, keys: Keys, *, group: int, index: int) -> Sample:
    response = _value(row, keys.response, "--response-key")
    if not isinstance(response, str):
        raise DataError(f"{row.where}: {keys.response!r} must be a text, got {type(response).__name__}")
    metadata = row.values.get(keys.metadata) or {}
    if not isinstance(metadata, dict):
        raise DataError(f"{row.where}: {keys.metadata!r} must be an object, got {type(metadata).__name__}")
    length = row.values.get("response_length")
    return Sample(
        group_index=group,
        index=index,
        rollout_id=index,
        prompt=_prompt(row, keys.prompt),
        response=response,
        response_length=length if isinstance(length, int) else 0,
        label=_value(row, keys.label, "--label-key") if keys.label else row.values.get("label"),
        metadata=dict(metadata),
        status=_status(row),
        source=str(row.values.get("source", "")),
    )


def _prompt(row: Row, key: str) -> str | list[Message]:
    prompt = row.values.get(key, "")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and all(isinstance(each, dict) for each in prompt):
        return cast(list[Message], prompt)
    raise DataError(f"{row.where}: {key!r} must be a text or a list of chat messages, got {type(prompt).__name__}")


def _status(row: Row) -> Status:
    status = row.values.get("status", Status.COMPLETED.value)
    known = [each.value for each in Status if each is not Status.PENDING]
    if status not in known:
        raise DataError(f"{row.where}: status {status!r}; expected one of {', '.join(known)}, or no status")
    return Status(status)


def _group(row: Row, keys: Keys) -> str:
    return "" if keys.group is None else str(_value(row, keys.group, "--group-key"))


def _value(row: Row, key: str, flag: str) -> Json:
    if key not in row.values:
        present = ", ".join(row.values) or "no keys"
        raise DataError(f"{row.where}: no key {key!r}; the row has {present}. Set {flag} to one of these")
    return row.values[key]


def grouped(rows: Sequence[SampleRow]) -> Iterator[list[SampleRow]]:
    """The rows of each group, in the order of the groups' first rows."""
    groups: dict[str, list[SampleRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    yield from groups.values()


IN_FLIGHT = 256
"""Maximum number of rows or groups scored concurrently; the spec's limit applies too."""
ATTEMPTS = 2
"""Most attempts of a call that fails with a retryable error, as in a run."""
OURS = (Path(slime_core.__file__).parent, Path(slime_testing.__file__).parent)
UNFINISHED = (Status.ABORTED, Status.FAILED)
"""Statuses of samples that a run does not score."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One row and the reward's verdict."""

    row: SampleRow
    verdict: Verdict | None


class Trial:
    """A reward or a group reward, built as in a run.

    Raises:
        PluginError: its factory does not match its spec.
    """

    def __init__(self, registered: RegisteredChoice, settings: Settings, catalog: Catalog, name: str) -> None:
        spec = registered.spec
        self._stats = PluginStats()
        self._protection = Protection(plugins=catalog.plugin_set, seed=SEED, stats=self._stats)
        build = partial(spec.factory, settings, setup_of(catalog, self._protection))
        self._reward = self._protection.protect(registered, settings, build, name=name)
        self._plugin = registered.plugin
        self._grouped = isinstance(spec, GroupRewardSpec)
        self.calls = self._stats.calls(spec.role, name, registered.plugin)
        """Durations and failures of calls."""

    async def score(self, rows: Sequence[SampleRow]) -> AsyncIterator[Answer]:
        """Verdicts in the order of the rows; for a group reward, group by group.

        Raises:
            PluginError: a worker process cannot build the plugin.
        """
        units = list(grouped(rows)) if self._grouped else [[row] for row in rows]
        slots = asyncio.Semaphore(IN_FLIGHT)
        tasks: list[asyncio.Task[list[Answer]]] = []
        try:
            await self._protection.start()
            with Watchdog():
                tasks += [asyncio.create_task(self._unit(unit, slots)) for unit in units]
                for task in tasks:
                    for answer in await task:
                        yield answer
        finally:
            await cancel_all(tasks)
            self._protection.close()

    async def _unit(self, rows: Sequence[SampleRow], slots: asyncio.Semaphore) -> list[Answer]:
        finished = [row for row in rows if row.sample.status not in UNFINISHED]
        verdicts: dict[int, Verdict] = {}
        async with slots:
            for _ in range(ATTEMPTS if finished else 0):
                verdicts = dict(zip((row.number for row in finished), await self._ask(finished), strict=True))
                if not any(isinstance(each, Unscored) and each.retryable for each in verdicts.values()):
                    break
        return [Answer(row, verdicts.get(row.number)) for row in rows]

    async def _ask(self, rows: Sequence[SampleRow]) -> Sequence[Verdict]:
        samples = [row.sample for row in rows]
        ctx = RewardContext(rollout_id=0, evaluation=False, seed=derive_seed(SEED, rows[0].number))
        try:
            if self._grouped:
                answers = await cast(Awaitable[object], cast(GroupReward, self._reward)(samples, ctx))
                return check_verdicts(answers, plugin=self._plugin, samples=samples)
            answer = await cast(Awaitable[object], cast(Reward, self._reward)(samples[0], ctx))
            return [check_verdict(answer, plugin=self._plugin, sample=samples[0])]
        except TimeoutError as error:
            failed = Unscored("timeout", retryable=True, detail=str(error))
        except ContractError as error:
            self.calls.errors += 1
            failed = Unscored("contract", detail=str(error))
        except StartError:
            raise
        except Exception as error:
            failed = Unscored(type(error).__name__, detail=_in_the_plugin(error))
        return [failed] * len(samples)


def _in_the_plugin(error: Exception) -> str:
    trace = error.__traceback__
    while (
        trace is not None and trace.tb_next and any(map(Path(trace.tb_frame.f_code.co_filename).is_relative_to, OURS))
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


BINS = 10
"""Most bars of the histogram. If there are fewer distinct scores, each gets a bar."""
BAR = 40
"""Length of the longest bar, in characters."""


@dataclass(frozen=True, slots=True)
class Bin:
    """One bar of the histogram: scores from `low` to `high`; only the last bar includes `high`."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of all rows of a trial."""

    rows: int
    scored: int
    unscored: Mapping[str, int]
    not_applicable: int
    unfinished: int
    mean: float | None
    std: float | None
    components: Mapping[str, float]
    histogram: Sequence[Bin]
    p50_s: float | None
    p99_s: float | None
    errors: int
    timeouts: int
    blocked_s: float

    def to_dict(self) -> dict[str, Json]:
        """The summary as plain JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The summary as text for a terminal."""
        yield f"{self.scored} of {self.rows} rows scored"
        for reason, count in self.unscored.items():
            yield f"  unscored        {count}  {reason}"
        if self.not_applicable:
            yield f"  not applicable  {self.not_applicable}"
        if self.unfinished:
            yield f"  unfinished      {self.unfinished}  aborted or failed samples, which a run does not score"
        if self.mean is not None:
            yield f"mean {self.mean:.4f}, standard deviation {self.std:.4f}"
        for name, value in self.components.items():
            yield f"  {name} {value:.4f}"
        most = max((each.count for each in self.histogram), default=0)
        for each in self.histogram:
            label = f"{each.low:.3g}" if each.low == each.high else f"{each.low:.3g} to {each.high:.3g}"
            yield f"  {label:>18}  {'#' * round(BAR * each.count / most):{BAR}}  {each.count}".rstrip()
        if self.p50_s is not None and self.p99_s is not None:
            yield f"calls: p50 {1000 * self.p50_s:.3g} ms, p99 {1000 * self.p99_s:.3g} ms"
        if self.errors or self.timeouts:
            yield f"calls that failed: {self.errors} errors, {self.timeouts} timeouts"
        if self.blocked_s:
            yield f"it blocked the event loop for {self.blocked_s:.1f} s: use `await`, or write a plain `def`"


def summarize(answers: Sequence[Answer], calls: CallStats) -> Summary:
    """Summarize a trial."""
    verdicts = [each.verdict for each in answers]
    scores = [each for each in verdicts if isinstance(each, Score)]
    values = [each.value for each in scores]
    seconds = sorted(calls.seconds)
    parts: dict[str, list[float]] = {}
    for each in scores:
        for name, value in each.components.items():
            parts.setdefault(name, []).append(value)
    return Summary(
        rows=len(verdicts),
        scored=len(scores),
        unscored=dict(Counter(each.reason for each in verdicts if isinstance(each, Unscored)).most_common()),
        not_applicable=sum(isinstance(each, NotApplicable) for each in verdicts),
        unfinished=verdicts.count(None),
        mean=fmean(values) if values else None,
        std=pstdev(values) if values else None,
        components={name: fmean(numbers) for name, numbers in sorted(parts.items())},
        histogram=histogram(values),
        p50_s=percentile(seconds, 0.50) if seconds else None,
        p99_s=percentile(seconds, 0.99) if seconds else None,
        errors=calls.errors,
        timeouts=calls.timeouts,
        blocked_s=calls.blocked,
    )


def histogram(values: Sequence[float]) -> list[Bin]:
    """One bar per value if there are at most `BINS` distinct values, else bars of equal width."""
    counts = Counter(values)
    if len(counts) <= BINS:
        return [Bin(value, value, counts[value]) for value in sorted(counts)]
    low, high = min(values), max(values)
    width = (high - low) / BINS
    places = Counter(min(BINS - 1, int((value - low) / width)) for value in values)
    return [Bin(low + place * width, low + (place + 1) * width, places[place]) for place in range(BINS)]
