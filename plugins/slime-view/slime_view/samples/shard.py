"""Shard: one file of samples, with its header, rows and groups.

for shard in list_shards(run_dir / "samples"):
    print(shard.kind, shard.rollout_id, sum(1 for _ in shard.rows()))
"""

import enum
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.errors import RunFolderError
from slime_core.outputs import nofollow
from slime_core.sample import Group, GroupId, Json
from slime_core.telemetry import Generated
from slime_view.samples import unpack
from slime_view.samples.pack import Entry
from slime_view.samples.rows import SCHEMA_VERSION, SampleRow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

HEADER_KEY = "slime_core"
BATCH_ROWS = 512
"""Samples read, and written, at a time: of 1,000 tokens each they are 7 MB."""


class Kind(enum.Enum):
    """What the samples were made for."""

    ROLLOUT = "rollout"
    """Training."""
    EVAL = "eval"
    """Evaluation."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A group that the buffer handed out to a rollout's training."""

    group: str
    """Its identity; it may be of an earlier rollout's shard."""
    weight: float
    """Its importance weight."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """The buffer's notes at that time."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a shard says of itself, JSON in the file's metadata."""

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
        """What the metadata of a file says.

        Raises:
            ValueError: it is of another schema version, or no header.
        """
        values = json.loads(text)
        if (version := values["schema_version"]) != SCHEMA_VERSION:
            raise ValueError(f"schema_version {version}, this slime-core reads {SCHEMA_VERSION}")
        drawn = [Drawn(**each) for each in values["drawn"]]
        return cls(Kind(values["kind"]), int(values["rollout_id"]), drawn)


class Shard:
    """The samples of one rollout or evaluation, in a file that was written whole."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            RunFolderError: pyarrow is missing, or the file is not a shard of a schema version that this release reads.
        """
        self.path = path
        with self._opened() as file:
            self._header = Header.parse((file.metadata.metadata or {})[HEADER_KEY.encode()])
            self._columns = file.schema_arrow.names
            self._count = file.metadata.num_rows

    @property
    def kind(self) -> Kind:
        """What its samples were made for."""
        return self._header.kind

    @property
    def rollout_id(self) -> int:
        """Number of the rollout; for an evaluation, rollouts done before it."""
        return self._header.rollout_id

    @property
    def drawn(self) -> Sequence[Drawn]:
        """What the rollout was trained on, in order."""
        return self._header.drawn

    def __len__(self) -> int:
        """Samples in it."""
        return self._count

    def rows(self) -> Iterator[SampleRow]:
        """Its samples without tokens, a few at a time."""
        counts = Counter[str]()

        def position(of: str) -> int:
            counts[of] += 1
            return counts[of] - 1

        with self._understood():
            for batch in self._batches(unpack.ROW_COLUMNS):
                yield from unpack.rows(batch, position)

    def entry(self, row: int) -> Entry:
        """One sample by the number of its row, with its tokens; the part of the file that has it is read, no other.

        Raises:
            RunFolderError: there is no such row.
        """
        first = 0
        with self._opened() as file:
            for part in range(file.num_row_groups):
                count = file.metadata.row_group(part).num_rows
                if first <= row < first + count:
                    table = file.read_row_group(part, use_threads=False).slice(row - first, 1).combine_chunks()
                    return next(unpack.entries(table.to_batches()[0]))
                first += count
        raise RunFolderError(f"{self.path} has no row {row}: it has {len(self)}")

    def group_ids(self) -> frozenset[str]:
        """Identities of its groups."""
        return frozenset(
            group for batch in self._batches(("group",)) for group in batch.column("group").to_pylist() if group
        )

    def groups(self, only: Collection[str] | None = None) -> Generated:
        """Its groups, or those of some identities; none of an evaluation."""
        made: dict[str, Group] = {}
        failed: dict[str, Group] = {}
        reasons: dict[GroupId, str] = {}
        with self._understood():
            for entry in self._entries():
                if entry.group is None or (only is not None and entry.group not in only):
                    continue
                those = failed if entry.left_out else made
                group = those.setdefault(entry.group, Group(GroupId.parse(entry.group), []))
                group.samples.append(entry.sample)
                if entry.drop_reason is not None:
                    reasons[group.id] = entry.drop_reason
        kept = [group for group in made.values() if group.id not in reasons]
        dropped = [group for group in made.values() if group.id in reasons]
        return Generated(kept, dropped, reasons, list(failed.values()))

    def _entries(self) -> Iterator[Entry]:
        for batch in self._batches(self._columns):
            yield from unpack.entries(batch)

    def _batches(self, columns: Sequence[str]) -> Iterator["pa.RecordBatch"]:
        with self._opened() as file:
            yield from file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False)

    @contextmanager
    def _opened(self) -> Iterator["parquet.ParquetFile"]:
        require_pyarrow("reading", self.path)
        from pyarrow import parquet

        with (
            self._understood(),
            parquet.ParquetFile(nofollow(self.path, 2), page_checksum_verification=True) as file,
        ):
            yield file

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Name the file in an error about what it holds."""
        from pyarrow import ArrowException

        try:
            yield
        except (ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise RunFolderError(f"{self.path} is not a file of samples: {error}") from None


def list_shards(directory: Path, kind: Kind = Kind.ROLLOUT) -> list[Path]:
    """The shards of a kind in a samples folder, oldest first."""
    return [path for number, path in sorted(numbered(directory, kind))]


def is_shard(path: Path) -> bool:
    """Whether a file is called like a shard and says that it is one; other parquet files are not."""
    if not re.fullmatch(r"\w+_\d+\.parquet", path.name) or not path.is_file() or find_spec("pyarrow") is None:
        return False
    from pyarrow import ArrowException, parquet

    try:
        return HEADER_KEY.encode() in (parquet.read_metadata(path).metadata or {})
    except (ArrowException, OSError):
        return False


def numbered(directory: Path, kind: Kind) -> Iterator[tuple[int, Path]]:
    """The shards of a kind by their numbers, in any order."""
    for path in directory.glob(f"{kind.value}_*.parquet"):
        if match := re.fullmatch(rf"{kind.value}_(\d+)\.parquet", path.name):
            yield int(match[1]), path


def require_pyarrow(verb: str, path: Path) -> None:
    """See that pyarrow is installed; the error says what to type.

    Raises:
        RunFolderError: it is not.
    """
    if find_spec("pyarrow") is None:
        raise RunFolderError(f"{verb} {path} needs pyarrow, which is not installed: pip install 'pyarrow>=20'")
