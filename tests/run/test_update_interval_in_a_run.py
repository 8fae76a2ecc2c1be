"""Weights that are published every so many rollouts, in real runs of the local backend: who generated what, counted."""

from pathlib import Path

from slime_core.sample import Json
from slime_view.samples.shard import Shard, list_shards
from tests.conftest import Project, Slime
from tests.run.reading import weights


def made_by(path: Path) -> set[str]:
    return {each for row in Shard(path).rows() for each in row.weight_versions}


def versions(run: Path) -> list[set[str]]:
    """Of each rollout, the versions that made its tokens."""
    return [made_by(path) for path in list_shards(run / "samples")]


def test_a_run_that_is_resumed_at_a_checkpoint_is_as_if_it_had_not_stopped(project: Project, slime: Slime) -> None:
    """The checkpoint after 3 rollouts publishes as well, so both serve version 3 from there."""
    keys: dict[str, Json] = {"update_weights_interval": 2, "save_interval": 3, "lr": 1e-3}
    keys |= {"correction": {"use": "tis"}, "keep_old_actor": True}
    project.write_run(num_rollout=6, **keys)
    assert slime("train", "run.toml").code == 0
    whole = project.run.rename(project.root / "whole")
    stops = (
        "from slime_core.errors import StopRun\nfrom slime_core.hookspecs import hookimpl\n\nSLIME_API = '1'\n\n\n"
        "@hookimpl\ndef slime_rollout_start(event):\n    if event.rollout_id == 2:\n        raise StopRun('enough')\n"
    )
    (project.root / "stops.py").write_text(stops)
    assert slime("train", "run.toml", "--plugin", "./stops.py").code == 0
    slime.ok("resume", project.run, "--accept-changed-plugins")
    assert versions(project.run) == versions(whole)
    assert versions(whole) == [{"0"}, {"0"}, {"2"}, {"3"}, {"4"}, {"4"}]
    assert weights(project.run) == weights(whole)


def test_an_evaluation_is_of_the_weights_that_are_trained(project: Project, slime: Slime) -> None:
    project.write_run(
        num_rollout=4, update_weights_interval=4, eval_prompt_data={"held": "prompts.jsonl"}, eval_interval=2
    )
    assert slime("train", "run.toml").code == 0
    evaluated = [made_by(path) for path in sorted((project.run / "samples").glob("eval_*.parquet"))]
    assert evaluated == [{"0"}, {"2"}, {"4"}]
    assert versions(project.run) == [{"0"}, {"0"}, {"2"}, {"2"}]
