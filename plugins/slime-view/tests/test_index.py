"""The index and the search, against every row of the files read and looked at one by one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slime_core.errors import ConfigError
from slime_view.index import Place, Query, SampleIndex, Sort, search
from slime_view.samples import SampleRow
from slime_view.samples.shard import Kind, Shard, list_shards

MakeRun = Callable[..., "Made"]  # noqa: F821  # of conftest.py
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ORDERS = {
    Sort.NEWEST: lambda row: 0,
    Sort.OLDEST: lambda row: row.rollout_id,
    Sort.BEST: lambda row: float("inf") if row.reward is None else -row.reward,
    Sort.WORST: lambda row: float("inf") if row.reward is None else row.reward,
    Sort.LONGEST: lambda row: -row.response_length,
    Sort.SHORTEST: lambda row: row.response_length,
}


def everything(folder: Path) -> list[tuple[Place, Kind, SampleRow]]:
    """Every sample, the newest file first."""
    shards = [Shard(path) for kind in Kind for path in list_shards(folder, kind)]
    shards.sort(key=lambda shard: (-shard.rollout_id, shard.kind is Kind.EVAL))
    return [(Place(shard.path, at), shard.kind, row) for shard in shards for at, row in enumerate(shard.rows())]


def fits(query: Query, kind: Kind, row: SampleRow) -> bool:
    reason = row.failure_reason or row.drop_reason
    said = {None: True, "none": reason is None, "any": reason is not None}.get(query.reason, reason == query.reason)
    ranges = ((row.rollout_id, query.rollout_min, query.rollout_max), (row.reward, query.reward_min, query.reward_max))
    return (
        said
        and query.kind in (None, kind.value)
        and query.source in (None, row.source)
        and query.status in (None, row.status)
        and (not query.text or query.text.lower() in f"{row.prompt}\n{row.response}".lower())
        and all((low is None and high is None) or value is not None for value, low, high in ranges)
        and all(low is None or value >= low for value, low, _ in ranges)
        and all(high is None or value <= high for value, _, high in ranges)
    )


queries = st.builds(
    Query,
    kind=st.sampled_from([None, "rollout", "eval"]),
    rollout_min=st.sampled_from([None, 0, 1, 9]),
    rollout_max=st.sampled_from([None, 0, 1, 9]),
    reward_min=st.sampled_from([None, 0.0, 0.5]),
    reward_max=st.sampled_from([None, 0.0, 0.5]),
    source=st.sampled_from([None, "train", "held out", "none such"]),
    status=st.sampled_from([None, "completed", "failed"]),
    reason=st.sampled_from([None, "none", "any", "zero_std_1.0", "reward_timeout"]),
    sort=st.sampled_from(Sort),
    offset=st.sampled_from([0, 3]),
)


def read(folder: Path) -> SampleIndex:
    index = SampleIndex(folder / "samples")
    while index.refresh(limit_s=0):
        assert index.waiting
    return index


@FEW
@given(query=queries)
def test_index_equals_a_full_scan(make_run: MakeRun, tmp_path: Path, query: Query) -> None:
    folder = tmp_path / "first" if (tmp_path / "first").exists() else make_run().folder
    found = read(folder).find(query)
    rows = everything(folder / "samples")
    wanted = [each for each in rows if fits(query, each[1], each[2])]
    assert found.count == len(wanted)
    ordered = sorted(wanted, key=lambda each: ORDERS[query.sort](each[2]))
    assert list(found.places) == [place for place, _, _ in ordered][query.offset :]


@FEW
@given(
    query=queries, text=st.sampled_from(["FOUR", "what is 2", "+3?", "(", "none such"]), limit_s=st.sampled_from([0, 9])
)
def test_paged_search_equals_a_full_scan(
    make_run: MakeRun, tmp_path: Path, query: Query, text: str, limit_s: float
) -> None:
    folder = tmp_path / "first" if (tmp_path / "first").exists() else make_run().folder
    asked, index = replace(query, text=text, sort=Sort.NEWEST, offset=0), read(folder)
    hits = search(index, asked, limit_s)
    found, searched = list(hits.places), hits.searched
    while hits.after:
        hits = search(index, replace(asked, after=hits.after), limit_s)
        found, searched = found + list(hits.places), searched + hits.searched
    rows = everything(folder / "samples")
    assert found == [place for place, kind, row in rows if fits(asked, kind, row)]
    assert searched == sum(fits(replace(asked, text=None), kind, row) for _, kind, row in rows)


def test_search_stops_at_a_full_page(make_run: MakeRun) -> None:
    index = read(make_run(rollouts=12).folder)
    first = search(index, Query(text="what"))
    assert (len(first.places), first.searched) == (50, 50)
    second = search(index, Query(text="what", after=first.after))
    assert len(second.places) == 12 * 8 + 4 - 50
    assert not set(first.places) & set(second.places)


def test_search_in_a_deleted_file_is_an_error(make_run: MakeRun) -> None:
    with pytest.raises(ConfigError, match="the file was deleted: search again"):
        search(read(make_run().folder), Query(text="what", after="rollout_000007:3"))


def test_index_follows_the_folder(make_run: MakeRun) -> None:
    run = make_run(rollouts=2)
    index = read(run.folder)
    assert len(index) == 2 * 8 + 4
    run.rollout(2, ["changed"])
    index.refresh()
    assert index.find(Query(rollout_min=2)).count == 8
    (run.folder / "samples" / "rollout_000002.parquet").unlink()
    run.rollout(1, ["rewritten, and longer"])
    index.refresh()
    assert index.find(Query()).count == 2 * 8 + 4
    (place, *_) = index.find(Query(sort=Sort.LONGEST)).places
    assert place.path.stem == "rollout_000001"


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"rollout_min": "x"}, "rollout_min = 'x' is not a whole number"),
        ({"reward_max": "x"}, "reward_max = 'x' is not a number"),
        ({"sort": "fast"}, "is not one of newest, oldest"),
        ({"statsu": "failed"}, "unknown condition 'statsu'. Did you mean 'status'?"),
    ],
)
def test_invalid_query_is_refused(given_: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        Query.parse(given_)


def test_empty_condition_is_ignored() -> None:
    assert Query.parse({"status": "", "reward_min": "0.5"}) == Query(reward_min=0.5)
