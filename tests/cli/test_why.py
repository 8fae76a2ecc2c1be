"""`slime why`: the life of a sample, as the files of its run tell it."""

from datetime import UTC, datetime

from slime_core.sample import GroupId
from slime_core.seeds import derive_seed
from tests.conftest import Project, Slime

FILTERS = """
from slime_core.roles import Drop, Keep


def no_second(group, ctx):
    return Drop("second") if group.id.draw == 1 else Keep()
"""


def group_of(project: Project, slime: Slime, state: str) -> str:
    return str(slime("ledger", project.run, "--state", state).out.split()[0])


def when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def lines_by_label(slime: Slime, *arguments: object) -> dict[str, list[str]]:
    """The lines of `slime why` by label."""
    ran = slime.ok("why", *arguments)
    found: dict[str, list[str]] = {}
    for line in ran.out.splitlines():
        found.setdefault(line[:10].strip(), []).append(line[11:])
    return found


def test_a_sample_is_told_from_its_draw_to_its_step(project: Project, slime: Slime) -> None:
    """In a run whose filter drops the second draw; then of a group whose samples are gone."""
    (project.root / "filters.py").write_text(FILTERS)
    project.write_run(group_filter={"use": "./filters.py:no_second"})
    slime.ok("train", "run.toml")
    group = group_of(project, slime, "trained")
    lines = lines_by_label(slime, project.run, f"{group}/2")
    source, epoch, row, draw = group.split(":")
    assert lines["drawn"] == [f"in rollout 0: row {row[1:]} of {source}, epoch {epoch[1:]}, draw {draw[1:]}"]
    [generated] = lines["sample 2"]
    row_of_it = slime("why", project.run, f"{group}/2", "--json").json()["samples"][0]
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
    assert row_of_it["seed"] == derive_seed(1234, *GroupId.parse(group), 2, 0, 0), "of the engine's call"

    lines = lines_by_label(slime, project.run, group_of(project, slime, "dropped"))
    assert lines["dropped"] == ["in rollout 0: second"]
    assert [f"sample {number}" in lines for number in range(4)] == [True] * 4
    assert lines["group"][0].startswith("rewards ")
    assert "prompt" not in lines

    ran = slime("why", project.run, f"{group}/9")
    assert (ran.code, f"group {group} has no sample 9: it has 0, 1, 2, 3" in ran.err) == (2, True)
    assert (
        "has no group 'prompts.jsonl:e0:r9:d99': groups are named source:eEPOCH:rROW:dDRAW, as in `slime samples"
        in slime.refused("why", project.run, "prompts.jsonl:e0:r9:d99")
    )

    for path in (project.run / "samples").glob("rollout_*.parquet"):
        path.unlink()
    lines = lines_by_label(slime, project.run, group)
    assert lines["generated"] == ["its samples are not written yet, or their file was deleted"]
    assert lines["trained"][0].startswith("in rollout 0, use 1")
