"""SampleStore: writes shards atomically in a separate thread; a commit point waits until they are on disk.

with SampleStore(run_dir / "samples") as store:
    await store.write(0, Generated(kept, dropped, reasons), draw)     # returns at once: samples/rollout_000000.parquet
    await store.flush()                                               # on disk, or raises the write's error
"""

import logging
import os
from asyncio import wrap_future
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path

from slime_core.errors import RunFolderError
from slime_core.roles import Draw
from slime_core.sample import Sample
from slime_core.telemetry import GeneratedGroups, run_folder_errors
from slime_core.telemetry.recording import SampleWriter
from slime_view.samples.columns import REPEATED, Entry, codecs, encodings, pack, schema
from slime_view.samples.shard import BATCH_ROWS, HEADER_KEY, Drawn, Header, Kind, numbered

log = logging.getLogger(__name__)
LEVEL = 1
"""Level of zstd; level 3 saves 1 % and costs a third of the speed."""


class SampleStore(SampleWriter):
    """Writes one file at a time, off the event loop; a second waits for the first, so memory is bounded.

    Args:
        directory: the samples folder; created if needed.

    Raises:
        RunFolderError: the directory cannot be created.
    """

    def __init__(self, directory: Path) -> None:
        with run_folder_errors(directory, "make"):
            directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, "samples")
        self._under_way: Future[None] | None = None
        self._unsynced: list[Path] = []

    async def write(self, rollout_id: int, generated: GeneratedGroups, draw: Draw) -> None:
        """Write a rollout's generated samples and its training draw, in the background.

        Raises:
            RunFolderError: the previous file could not be written.
        """
        drawn = [
            Drawn(str(group.id), weight, dict(group.metadata))
            for group, weight in zip(draw.groups, draw.weights, strict=True)
        ]
        await self._start(Header(Kind.ROLLOUT, rollout_id, drawn), entries_of(generated))

    async def write_eval(self, rollout_id: int, samples: Mapping[str, Sequence[Sample]]) -> None:
        """Write an evaluation's samples, by data set; raises the same errors as `write`."""
        entries = (Entry(source, None, None, sample) for source, those in samples.items() for sample in those)
        await self._start(Header(Kind.EVAL, rollout_id), entries)

    async def flush(self) -> None:
        """Wait until everything is written and synced to disk.

        Raises:
            RunFolderError: a file could not be written.
        """
        await self._finish()
        paths, self._unsynced = [*self._unsynced, self._directory], []
        await wrap_future(self._thread.submit(_sync, paths))

    def rewind(self, rollouts: int | None) -> None:
        """Remove files after a commit point with `rollouts` rollouts; None removes everything.

        Raises:
            RunFolderError: a file cannot be removed.
        """
        kept = -1 if rollouts is None else rollouts
        later = [path for number, path in numbered(self._directory, Kind.ROLLOUT) if number >= kept]
        later += [path for number, path in numbered(self._directory, Kind.EVAL) if number > kept]
        for path in [*later, *self._directory.glob("*.tmp")]:
            with run_folder_errors(path, "remove"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Finish the current file; an error is logged, because no caller waits for it."""
        self._thread.shutdown()
        if self._under_way is not None and (error := self._under_way.exception()) is not None:
            log.warning("%s", error)
        self._under_way = None

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def _start(self, header: Header, entries: Iterable[Entry]) -> None:
        await self._finish()
        path = self._directory / header.name
        # Serialise the header now: a buffer may change its metadata while the file is written.
        self._under_way = self._thread.submit(write_shard, path, header.rollout_id, header.to_json(), entries)
        self._unsynced.append(path)

    async def _finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            await wrap_future(under_way)


def entries_of(generated: GeneratedGroups) -> Iterator[Entry]:
    """The samples of a rollout in the order of its file."""
    for group in (*generated.kept, *generated.dropped):
        name, reason = str(group.id), generated.reasons.get(group.id)
        for sample in group.samples:
            yield Entry(group.id.source, name, reason, sample)
    for group in generated.failed:
        for sample in group.samples:
            yield Entry(group.id.source, str(group.id), None, sample, left_out=True)


def write_shard(path: Path, rollout_id: int, header: str, entries: Iterable[Entry]) -> None:
    """Write one file atomically, with a header as JSON; blocks.

    Raises:
        RunFolderError: it cannot be written, or a sample holds a value that JSON cannot represent.
    """
    import pyarrow as pa
    from pyarrow import parquet

    draft = path.with_suffix(".tmp")
    try:
        with (
            run_folder_errors(path, "write"),
            pa.OSFile(str(draft), "wb") as file,
            parquet.ParquetWriter(
                file,
                schema(),
                use_dictionary=list(REPEATED),  # type: ignore[arg-type]  # a list of columns will do
                column_encoding=encodings(),
                compression=codecs(),
                compression_level={name: LEVEL for name, codec in codecs().items() if codec == "zstd"},
                write_page_checksum=True,
                write_statistics=False,
                store_schema=False,
            ) as writer,
        ):
            writer.add_key_value_metadata({HEADER_KEY: header})
            remaining = iter(entries)
            while some := list(islice(remaining, BATCH_ROWS)):
                writer.write_table(pack(some, rollout_id))
        with run_folder_errors(path, "write"):
            draft.replace(path)
    except Exception as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, RunFolderError):
            raise
        raise RunFolderError(f"cannot write {path}: {error}") from error


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        with run_folder_errors(path, "sync"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
