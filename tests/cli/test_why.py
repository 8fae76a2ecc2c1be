"""`slime why`: the life of a sample, as the files of its run tell it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from slime_core.sample import GroupId
from slime_core.seeds import derive_seed

Slime = Callable[..., Any]
Project = Any

FILTERS = """
from slime_core.roles import Drop, Keep


def no_second(group, ctx):
    return Drop("second") if group.id.draw == 1 else Keep()
"""


@pytest.fixture
def run(project: Project, slime: Slime) -> Project:
    """Two rollouts of four groups, the second draw of which is dropped by its filter."""
    (project.root / "filters.py").write_text(FILTERS)
    project.write_run(group_filter={"use": "./filters.py:no_second"})
    ran = slime("train", "run.toml")
    assert ran.code == 0, ran.err
    return project


def group_of(run: Project, slime: Slime, state: str) -> str:
    return str(slime("ledger", run.run, "--state", state).out.split()[0])


def when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def told(slime: Slime, *arguments: object) -> dict[str, list[str]]:
    """The lines of `slime why` by label."""
    ran = slime("why", *arguments)
    assert ran.code == 0, ran.err
    found: dict[str, list[str]] = {}
    for line in ran.out.splitlines():
        found.setdefault(line[:10].strip(), []).append(line[11:])
    return found


def test_a_trained_sample_is_told_from_its_draw_to_its_step(run: Project, slime: Slime) -> None:
    group = group_of(run, slime, "trained")
    lines = told(slime, run.run, f"{group}/2")
    source, epoch, row, draw = group.split(":")
    assert lines["drawn"] == [f"in rollout 0: row {row[1:]} of {source}, epoch {epoch[1:]}, draw {draw[1:]}"]
    [generated] = lines["sample 2"]
    row_of_it = slime("why", run.run, f"{group}/2", "--json").json()["samples"][0]
    assert f"{row_of_it['response_length']} tokens, {row_of_it['status']}, by single_turn" in generated
    assert f"seed {row_of_it['seed']}" in generated
    assert lines["scored"][0].startswith(f"{row_of_it['reward']:.4g} by ./rewards.py:digits")
    assert f"{row_of_it['response_length']} of {row_of_it['response_length']} tokens are trained on" in lines["mask"][0]
    assert lines["trained"][0].startswith("in rollout 0, use 1, weight 1, step 1, train/loss")
    [flight] = row_of_it["in_flight"]
    parts = [f"{what} {seconds:.3f} s" for what, seconds in flight["seconds"]]
    assert {"generator", "engine"} <= {what for what, _ in flight["seconds"]}
    assert lines["in flight"] == [f"{when(flight['began'])}: {', '.join(parts)}"]
    assert [lines["finished"], lines["buffered"]] == [["in rollout 0"], ["in rollout 0"]]


def test_the_seed_is_that_of_the_engines_call(run: Project, slime: Slime) -> None:
    group = group_of(run, slime, "trained")
    sample = slime("why", run.run, f"{group}/1", "--json").json()["samples"][0]
    assert sample["seed"] == derive_seed(1234, *GroupId.parse(group), 1, 0, 0)


def test_a_dropped_group_is_told_with_its_reason_and_all_its_samples(run: Project, slime: Slime) -> None:
    group = group_of(run, slime, "dropped")
    lines = told(slime, run.run, group)
    assert lines["dropped"] == ["in rollout 0: second"]
    assert [f"sample {number}" in lines for number in range(4)] == [True] * 4
    assert lines["group"][0].startswith("rewards ")
    assert "prompt" not in lines


def test_what_does_not_exist_is_said_with_what_does(run: Project, slime: Slime) -> None:
    group = group_of(run, slime, "trained")
    ran = slime("why", run.run, f"{group}/9")
    assert (ran.code, f"group {group} has no sample 9: it has 0, 1, 2, 3" in ran.err) == (2, True)
    ran = slime("why", run.run, "prompts.jsonl:e0:r9:d99")
    assert ran.code == 2
    assert (
        "has no group 'prompts.jsonl:e0:r9:d99': groups are named source:eEPOCH:rROW:dDRAW, as in `slime samples"
        in ran.err
    )


def test_a_group_is_told_as_far_as_it_is_known_where_its_samples_are_gone(run: Project, slime: Slime) -> None:
    group = group_of(run, slime, "trained")
    for path in (run.run / "samples").glob("rollout_*.parquet"):
        path.unlink()
    lines = told(slime, run.run, group)
    assert lines["generated"] == ["its samples are not kept yet, or their file was deleted"]
    assert lines["trained"][0].startswith("in rollout 0, use 1")
