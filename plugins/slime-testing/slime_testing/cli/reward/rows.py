"""Rows of samples to score: prompt, response and label, as `samples/` of a run folder holds them, or under other keys.

Example:

    rows = read_sample_rows(Path("runs/first/samples/rollout_000003.parquet"), Keys(), limit=100)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

from slime_core.data import Row, read_rows
from slime_core.data.rows import split_slice
from slime_core.errors import DataError
from slime_core.sample import Json, Message, Sample, Status
from slime_view.samples import Shard, is_shard


@dataclass(frozen=True, slots=True)
class Keys:
    """Where a row holds what."""

    prompt: str = "prompt"
    """A text or a list of chat messages; may be absent."""
    response: str = "response"
    """A text; must be there."""
    label: str | None = None
    """The gold answer; None: `label`, which may be absent. One that is given must be there."""
    metadata: str = "metadata"
    """An object; may be absent."""
    group: str | None = None
    """Rows of one value are one group; None: each row is scored alone."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One row and the sample that it describes."""

    number: int
    """Its number among those read, from 1."""
    where: str
    """File and line."""
    group: str
    """The value of its group key, as text; empty without one."""
    values: Mapping[str, Json]
    """The row."""
    sample: Sample
    """Without tokens; finished."""


def read_sample_rows(path: Path, keys: Keys, limit: int | None) -> list[SampleRow]:
    """Read the first rows of a file.

    Raises:
        RunFolderError: it is a damaged shard.
        DataError: see `read_rows`; or a key is missing, a value is of the wrong type, or there are no rows.
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
        raise DataError(f"{path} holds no rows")
    return rows


def _shard_rows(path: Path) -> Iterator[Row]:
    """The rows of a shard, under the names that `Keys` expects."""
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
    given = row.values.get("status", Status.COMPLETED.value)
    known = [each.value for each in Status if each is not Status.PENDING]
    if given not in known:
        raise DataError(f"{row.where}: status {given!r}; expected one of {', '.join(known)}, or no status")
    return Status(given)


def _group(row: Row, keys: Keys) -> str:
    return "" if keys.group is None else str(_value(row, keys.group, "--group-key"))


def _value(row: Row, key: str, flag: str) -> Json:
    if key not in row.values:
        there = ", ".join(row.values) or "no keys at all"
        raise DataError(f"{row.where}: no key {key!r}; the row has {there}: give {flag} one of these")
    return row.values[key]


def grouped(rows: Sequence[SampleRow]) -> Iterator[list[SampleRow]]:
    """The rows of each group, in the order of its first row."""
    groups: dict[str, list[SampleRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    yield from groups.values()
