"""Half a run: training on kept samples is the training that was, generating alone is the generating that was."""

import shutil

import pytest

from slime_core.sample import Json
from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard, list_shards
from tests.conftest import Install, Project, Slime
from tests.run.reading import ledger, training_metrics, weights
from tests.tables import table

SAYS_VERSIONS = """
from slime_core.hookspecs import hookimpl

SLIME_API = "1"


@hookimpl
def slime_rollout_start(event):
    print(f"rollout {event.rollout_id} starts on version {event.weight_version}")
"""
FIRST_THEN_LATER: dict[str, Json] = {
    "num_rollout": 4,
    "lr_decay_style": "linear",
    "num_steps_per_rollout": 2,
    "group_filter": {"use": "./filters.py:keep_all"},
    "over_sampling_batch_size": 6,  # so that groups wait in the buffer, and are trained on a rollout later
}


@pytest.fixture
def first(project: Project) -> Project:
    """A run file, and a filter that keeps more groups than a step takes."""
    (project.root / "filters.py").write_text(
        "from slime_core.roles import Keep\n\n\ndef keep_all(group, ctx):\n    return Keep()\n"
    )
    return project


def test_training_on_kept_samples_is_the_same_in_every_bit(first: Project, slime: Slime) -> None:
    first.write_run(**FIRST_THEN_LATER)
    assert slime("train", "run.toml").code == 0
    shards = [Shard(path) for path in list_shards(first.run / "samples")]
    assert any({each.group for each in shard.drawn} - shard.group_ids() for shard in shards), (
        "some groups come from the buffer of an earlier rollout"
    )
    (first.root / "prompts.jsonl").unlink()
    slime.ok("train", "run.toml", "--load-debug-rollout-data", first.run, "--save", "again")
    said = slime("plan", "run.toml", "--load-debug-rollout-data", first.run, "--save", "again")
    assert "has samples of 4 rollouts" in said.out
    again = first.root / "again"
    assert training_metrics(again) == training_metrics(first.run)
    assert weights(again) == weights(first.run)
    assert {path.name.partition("-")[0] for path in (again / "logs").iterdir()} == {"trainer"}
    assert not list((again / "samples").iterdir())


def test_generating_alone_keeps_what_the_first_rollout_of_a_run_would(
    first: Project, slime: Slime, install_plugin: Install
) -> None:
    install_plugin("slime-says", {"slime_says.py": SAYS_VERSIONS}, entry_points={"says": "slime_says"})
    sets: dict[str, Json] = {"eval_prompt_data": {"held": "prompts.jsonl"}, "eval_interval": 2}
    first.write_run(**sets)
    assert slime("train", "run.toml").code == 0
    ran = slime.ok("train", "run.toml", "--debug-rollout-only", "--save", "alone")
    assert [f"rollout {number} starts on version 0" in ran.out for number in range(2)] == [True, True]
    alone = first.root / "alone"
    for name in ("rollout_000000.parquet", "eval_000000.parquet"):
        assert (alone / "samples" / name).read_bytes() == (first.run / "samples" / name).read_bytes()
    versions = {tuple(row.weight_versions) for path in list_shards(alone / "samples") for row in Shard(path).rows()}
    assert versions == {("0",)}
    assert len(list_shards(alone / "samples")) == 2
    assert {path.name.partition("-")[0] for path in (alone / "logs").iterdir()} == {"engine"}
    assert not list((alone / "checkpoints").iterdir())
    assert {line["reason"] for line in ledger(alone) if line["state"] == "dropped"} == {"debug_rollout_only"}
    evaluations = [
        row.metrics["eval/held"] for row in MetricsLog.read(alone / "metrics.jsonl") if "eval/held" in row.metrics
    ]
    assert len(evaluations) == 2
    assert evaluations[0] == evaluations[1]
    again = slime("train", "run.toml", "--debug-rollout-only", "--save", "alone")
    assert "alone has no checkpoint of trained weights (save_interval = 10): it starts over" in again.out


@table(
    "flags, said",
    [
        (["--load-debug-rollout-data", "kept", "--debug-rollout-only"], "give one of them"),
        (["--load-debug-rollout-data", "kept", "--save", "./kept"], "is the run's own folder"),
        (["--load-debug-rollout-data", "nowhere", "--save", "again"], "holds no rollouts: give the run folder"),
    ],
)
def test_what_makes_no_sense_is_refused(first: Project, slime: Slime, flags: list[str], said: str) -> None:
    assert said in slime.refused("train", "run.toml", *flags)


def test_a_missing_rollout_and_a_missing_group_are_named(first: Project, slime: Slime) -> None:
    first.write_run(**FIRST_THEN_LATER)
    assert slime("train", "run.toml", "--debug-rollout-only", "--num-rollout", 3, "--save", "kept").code == 0
    (first.root / "kept/samples/rollout_000001.parquet").unlink()
    flags = ("--load-debug-rollout-data", "kept", "--save", "again")
    assert "has no samples of rollout 1, but has rollout_000002.parquet" in slime.refused("train", "run.toml", *flags)
    assert slime("train", "run.toml").code == 0
    shutil.copy(first.root / "kept/samples/rollout_000000.parquet", first.run / "samples/rollout_000000.parquet")
    shutil.copy(first.root / "kept/samples/rollout_000000.parquet", first.run / "samples/rollout_000001.parquet")
    refusal = slime.refused("train", "run.toml", "--load-debug-rollout-data", first.run, "--save", "again")
    assert "was trained on" in refusal
    assert "groups that are not in" in refusal
