"""Shard: one file of samples, with its header, rows and groups.

for path in list_shards(run_dir / "samples"):
    print(Shard(path).rollout_id, sum(1 for _ in Shard(path).rows()))
"""

import enum
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.errors import RunFolderError
from slime_core.outputs import nofollow
from slime_core.sample import Group, GroupId, Json, Message, plain_json
from slime_core.telemetry import GeneratedGroups
from slime_view.samples.columns import Entry, unpack

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

SCHEMA_VERSION = 1
"""Version of the format of shards, and of rows as JSON."""
HEADER_KEY = "slime_core"
BATCH_ROWS = 512
"""Samples read or written at a time: with 1,000 tokens each they are 7 MB."""


class Kind(enum.Enum):
    """What the samples were made for."""

    ROLLOUT = "rollout"
    """Training."""
    EVAL = "eval"
    """Evaluation."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One sample of a rollout or of an evaluation in readable form, without tokens."""

    rollout_id: int
    """Number of the rollout; for an evaluation, rollouts done before it."""
    source: str
    """Name of the data set."""
    group: str | None
    """The group's identity; None in an evaluation."""
    index: int
    """Number of the sample within its group, or within its data set in an evaluation, from 0."""
    prompt: str | list[Message]
    """The model's prompt."""
    response: str
    """The model's text."""
    response_length: int
    """Tokens of the response."""
    label: Json
    """The gold answer."""
    reward: float | Mapping[str, float] | None
    """The reward; None where scoring failed."""
    status: str
    """The value of the sample's `Status`."""
    drop_reason: str | None
    """Why its group was dropped; None when it was kept."""
    left_out: bool
    """Whether it failed, and its group continued without it."""
    failure_reason: str | None
    """Why it failed, if it did."""
    remove_sample: bool
    """Whether it counts only in metrics and normalisation, not in the loss."""
    weight_versions: list[str]
    """Weight version of each engine call."""
    metadata: Mapping[str, Json]
    """Metadata from the data row, generator and rewards."""

    def to_dict(self) -> dict[str, Json]:
        """The row as plain JSON."""
        values = {each.name: plain_json(getattr(self, each.name)) for each in fields(self)}
        return {"schema_version": SCHEMA_VERSION, **values}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A group that the buffer drew for a rollout's training."""

    group: str
    """Its identity; an earlier rollout's shard may hold it."""
    weight: float
    """Its importance weight."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """The buffer's notes at that time."""


@dataclass(frozen=True, slots=True)
class Header:
    """A shard's header, stored as JSON in the file's metadata."""

    kind: Kind
    """What its samples were made for."""
    rollout_id: int
    """Number of the rollout; for an evaluation, rollouts done before it."""
    drawn: Sequence[Drawn] = ()
    """What the rollout was trained on, in order."""

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.kind.value}_{self.rollout_id:06d}.parquet"

    def to_json(self) -> str:
        """The inverse of `parse`."""
        drawn = [asdict(each) for each in self.drawn]
        return json.dumps(
            {"schema_version": SCHEMA_VERSION, "kind": self.kind.value, "rollout_id": self.rollout_id, "drawn": drawn}
        )

    @classmethod
    def parse(cls, text: bytes) -> "Header":
        """The header from a file's metadata.

        Raises:
            ValueError: the schema version differs, or it is no header.
        """
        values = json.loads(text)
        if (version := values["schema_version"]) != SCHEMA_VERSION:
            raise ValueError(f"schema_version {version}, this slime-core reads {SCHEMA_VERSION}")
        drawn = [Drawn(**each) for each in values["drawn"]]
        return cls(Kind(values["kind"]), int(values["rollout_id"]), drawn)


class Shard:
    """The samples of one rollout or evaluation, in a complete file."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            RunFolderError: the file is not a shard of a schema version that this release reads.
        """
        self.path = path
        with open_shard(self.path) as file:
            header = Header.parse((file.metadata.metadata or {})[HEADER_KEY.encode()])
            self._count = file.metadata.num_rows
        self.kind: Kind = header.kind
        """What the samples were made for."""
        self.rollout_id: int = header.rollout_id
        """Number of the rollout; for an evaluation, rollouts done before it."""
        self.drawn: Sequence[Drawn] = header.drawn
        """What the rollout was trained on, in order."""

    def __len__(self) -> int:
        """Samples in it."""
        return self._count

    def rows(self) -> Iterator[SampleRow]:
        """Its samples without tokens, a few at a time."""
        counts = Counter[str]()
        for source, group, drop_reason, sample, left_out in self.entries():
            of = group or source
            counts[of] += 1
            yield SampleRow(
                rollout_id=self.rollout_id,
                source=source,
                group=group,
                index=counts[of] - 1,
                prompt=sample.prompt,
                response=sample.response,
                response_length=sample.response_length,
                label=sample.label,
                reward=sample.reward,
                status=sample.status.value,
                drop_reason=drop_reason,
                left_out=left_out,
                failure_reason=sample.failure_reason,
                remove_sample=sample.remove_sample,
                weight_versions=sample.weight_versions,
                metadata=sample.metadata,
            )

    def entry(self, row: int) -> Entry:
        """One sample by its row number, with its tokens; reads only the row group that contains it.

        Raises:
            RunFolderError: there is no such row.
        """
        first = 0
        with open_shard(self.path) as file:
            for part in range(file.num_row_groups):
                count = file.metadata.row_group(part).num_rows
                if first <= row < first + count:
                    table = file.read_row_group(part, use_threads=False).slice(row - first, 1)
                    return next(unpack(table.combine_chunks()))
                first += count
        raise RunFolderError(f"{self.path} has no row {row}: it has {len(self)}")

    def group_ids(self) -> frozenset[str]:
        """Identities of its groups."""
        names = (name for batch in self._batches(["group"]) for name in batch.column("group").to_pylist())
        return frozenset(filter(None, names))

    def groups(self, only: Collection[str] | None = None) -> GeneratedGroups:
        """Its groups, optionally only some identities; none for an evaluation."""
        made: dict[str, Group] = {}
        failed: dict[str, Group] = {}
        reasons: dict[GroupId, str] = {}
        with _understood(self.path):
            for entry in self.entries():
                if entry.group is None or (only is not None and entry.group not in only):
                    continue
                those = failed if entry.left_out else made
                group = those.setdefault(entry.group, Group(GroupId.parse(entry.group), []))
                group.samples.append(entry.sample)
                if entry.drop_reason is not None:
                    reasons[group.id] = entry.drop_reason
        kept = [group for group in made.values() if group.id not in reasons]
        dropped = [group for group in made.values() if group.id in reasons]
        return GeneratedGroups(kept, dropped, reasons, list(failed.values()))

    def entries(self) -> Iterator[Entry]:
        """Its samples with their tokens, a few at a time."""
        for batch in self._batches(None):
            with _understood(self.path):
                entries = list(unpack(batch))
            yield from entries

    def _batches(self, columns: list[str] | None) -> Iterator["pa.RecordBatch"]:
        with open_shard(self.path) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """Add the file's path to errors about its content."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError:
        raise RunFolderError(f"{path} no longer exists: it was deleted, or the run was resumed before it") from None
    except (ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise RunFolderError(f"{path} is not a samples file: {error}") from None


@contextmanager
def open_shard(path: Path, dictionaries: Sequence[str] = ()) -> Iterator["parquet.ParquetFile"]:
    """A file of samples; the columns of some names come as dictionaries.

    Raises:
        RunFolderError: it was deleted, is damaged, or is no shard.
    """
    from pyarrow import parquet

    with (
        _understood(path),
        parquet.ParquetFile(
            nofollow(path, 2), read_dictionary=list(dictionaries), page_checksum_verification=True
        ) as file,
    ):
        yield file


def read_rows(path: Path, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Json]]:
    """Rows by number, in the requested order; reads only the row groups that contain them.

    Raises:
        RunFolderError: as `open_shard`, or the file has fewer rows.
    """
    found: dict[int, dict[str, Json]] = {}
    first = 0
    with open_shard(path) as file:
        for part in range(file.num_row_groups):
            end = first + file.metadata.row_group(part).num_rows
            if wanted := sorted({row for row in rows if first <= row < end}):
                table = file.read_row_group(part, columns=list(columns), use_threads=False)
                found.update(zip(wanted, table.take([row - first for row in wanted]).to_pylist(), strict=True))
            first = end
    if missing := [row for row in rows if row not in found]:
        raise RunFolderError(f"{path} has no row {missing[0]}")
    return [found[row] for row in rows]


def read_columns(path: Path, columns: Sequence[str]) -> list[dict[str, Json]]:
    """Some columns of all rows.

    Raises:
        RunFolderError: as `open_shard`.
    """
    with open_shard(path) as file:
        found: list[dict[str, Json]] = file.read(columns=list(columns), use_threads=False).to_pylist()
    return found


def list_shards(directory: Path, kind: Kind = Kind.ROLLOUT) -> list[Path]:
    """The shards of a kind in a samples folder, oldest first."""
    return [path for number, path in sorted(numbered(directory, kind))]


def is_shard(path: Path) -> bool:
    """Whether a file has a shard's name and header; other Parquet files do not."""
    if not re.fullmatch(r"\w+_\d+\.parquet", path.name) or not path.is_file():
        return False
    from pyarrow import ArrowException, parquet

    try:
        return HEADER_KEY.encode() in (parquet.read_metadata(path).metadata or {})
    except (ArrowException, OSError):
        return False


def numbered(directory: Path, kind: Kind) -> Iterator[tuple[int, Path]]:
    """The shards of a kind with their numbers, in any order."""
    for path in directory.glob(f"{kind.value}_*.parquet"):
        if match := re.fullmatch(rf"{kind.value}_(\d+)\.parquet", path.name):
            yield int(match[1]), path
