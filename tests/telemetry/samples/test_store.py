"""Files are whole or absent, errors are named, a commit point finds everything on disk."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from slime_core.errors import RunFolderError
from slime_core.roles import Draw
from slime_core.sample import Sample
from slime_core.telemetry import GeneratedGroups
from slime_testing.samples import make_group, make_sample
from slime_view.samples.shard import Kind, Shard, list_shards
from slime_view.samples.store import SampleStore

NOTHING = Draw([], [])


def with_store(directory: Path, use: Callable[[SampleStore], Coroutine[object, object, None]]) -> None:
    async def run() -> None:
        with SampleStore(directory) as store:
            await use(store)

    asyncio.run(run())


def generated(*draws: int) -> GeneratedGroups:
    return GeneratedGroups([make_group(draw) for draw in draws], [], {})


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def test_rollouts_and_evaluations_have_a_file_each(tmp_path: Path) -> None:
    async def use(store: SampleStore) -> None:
        await store.write(0, generated(0, 1), NOTHING)
        await store.write_eval(1, {"a/b": [make_sample("x"), make_sample("y")], "c": [make_sample("z")]})
        await store.write(1, generated(2), NOTHING)
        await store.flush()

    with_store(tmp_path, use)
    assert [Shard(path).rollout_id for path in list_shards(tmp_path)] == [0, 1]
    (path,) = list_shards(tmp_path, Kind.EVAL)
    assert path.name == "eval_000001.parquet"
    assert [(row.source, row.group, row.index, row.response) for row in Shard(path).rows()] == [
        ("a/b", None, 0, "x"),
        ("a/b", None, 1, "y"),
        ("c", None, 0, "z"),
    ]


def test_the_same_samples_make_the_same_file(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        with_store(tmp_path / folder, lambda store: store.write(0, generated(*range(300)), NOTHING))
    first, second = ((tmp_path / folder / "rollout_000000.parquet").read_bytes() for folder in ("a", "b"))
    assert first == second


def test_what_came_after_a_commit_point_is_removed(tmp_path: Path) -> None:
    async def use(store: SampleStore) -> None:
        for rollout in range(4):
            await store.write_eval(rollout, {"e": [make_sample()]})
            await store.write(rollout, generated(rollout), NOTHING)
        await store.flush()
        (tmp_path / "rollout_000009.tmp").touch()
        store.rewind(2)
        assert names(tmp_path) == [
            "eval_000000.parquet",
            "eval_000001.parquet",
            "eval_000002.parquet",
            "rollout_000000.parquet",
            "rollout_000001.parquet",
        ]
        store.rewind(None)
        assert names(tmp_path) == []

    with_store(tmp_path, use)


def test_a_failed_write_is_named_at_the_next_one(tmp_path: Path) -> None:
    async def use(store: SampleStore) -> None:
        (tmp_path / "rollout_000000.tmp").mkdir()
        await store.write(0, generated(0), NOTHING)
        with pytest.raises(RunFolderError, match=r"cannot write .*rollout_000000\.parquet"):
            await store.write(1, generated(1), NOTHING)
        await store.write(1, generated(1), NOTHING)

    with_store(tmp_path, use)
    assert [path.name for path in list_shards(tmp_path)] == ["rollout_000001.parquet"]


def test_a_full_disk_is_named_and_leaves_no_half_file(tiny_disk: Path) -> None:
    async def use(store: SampleStore) -> None:
        await store.write(0, generated(0), NOTHING)
        draw = random.Random(0)
        big = [Sample(tokens=[draw.randrange(2**31) for _ in range(100_000)], source="e") for _ in range(10)]
        await store.write_eval(0, {"e": big})
        with pytest.raises(RunFolderError, match="No space left on device"):
            await store.flush()

    with_store(tiny_disk, use)
    assert names(tiny_disk) == ["rollout_000000.parquet"]


def test_a_file_that_is_no_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no parquet")
    with pytest.raises(RunFolderError, match=r"a\.parquet is not a samples file"):
        Shard(tmp_path / "a.parquet")
    with pytest.raises(RunFolderError, match=r"nowhere\.parquet no longer exists"):
        Shard(tmp_path / "nowhere.parquet")


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    with_store(tmp_path, lambda store: store.write(0, generated(*range(300)), NOTHING))
    (path,) = list_shards(tmp_path)
    whole = path.read_bytes()
    for share in (0.2, 0.5, 0.8):
        data = bytearray(whole)
        data[int(share * len(data))] ^= 4
        path.write_bytes(data)
        with pytest.raises(RunFolderError, match="is not a samples file"):
            Shard(path).groups()
