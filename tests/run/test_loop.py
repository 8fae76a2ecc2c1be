"""The loop end to end: dynamic sampling, the buffer, hooks, guards; each on a run of a few seconds."""

from collections import Counter

from slime_core.run import list_checkpoints, verify
from slime_view.samples.shard import Shard
from tests.conftest import Install, Project, Slime, workers
from tests.run.reading import ledger, metrics

KEEP_ALL = """
from slime_core.roles import Keep


def keep_all(group, ctx):
    return Keep()
"""
NAN = """
from slime_core.hookspecs import hookimpl
from slime_core.roles import LossOutput, LossSpec

SLIME_API = "1"


class TurnsNan:
    def __init__(self, settings, setup):
        self.calls = 0

    def __call__(self, batch):
        self.calls += 1
        return LossOutput(batch.log_probs_T * (1.0 if self.calls == 1 else float("nan")))


@hookimpl
def slime_losses():
    yield LossSpec("turns_nan", TurnsNan)
"""


def test_dynamic_sampling_trains_only_groups_whose_rewards_differ(project: Project, slime: Slime) -> None:
    slime.ok("train", "run.toml", "--group-filter", "nonzero_std", "--num-rollout", 3, "--rollout-max-response-len", 3)
    accounts = ledger(project.run)
    dropped = [line["reason"] for line in accounts if line["state"] == "dropped"]
    assert dropped
    assert set(dropped) <= {"zero_std_0.0", "zero_std_0.3", "zero_std_0.7", "zero_std_1.0"}
    counted = Counter[str]()
    for row in metrics(project.run):
        for name, value in row.items():
            if name.startswith("rollout/dynamic_filter/drop_"):
                counted[name.removeprefix("rollout/dynamic_filter/drop_")] += int(value)
    assert counted == Counter(dropped)
    trained = [line["id"] for line in accounts if line["state"] == "trained"]
    assert len(trained) == len(set(trained)) == 12
    for file in (project.run / "samples").iterdir():
        by_group: dict[str | None, set[object]] = {}
        for sample in Shard(file).rows():
            if sample.drop_reason is None:
                by_group.setdefault(sample.group, set()).add(sample.reward)
            else:
                assert sample.drop_reason in dropped
        assert all(len(rewards) > 1 for rewards in by_group.values())


def test_surplus_groups_wait_in_the_buffer_across_steps_and_a_resume(project: Project, slime: Slime) -> None:
    (project.root / "filters.py").write_text(KEEP_ALL)
    flags = ["--group-filter", "./filters.py:keep_all", "--over-sampling-batch-size", 6]
    whole, parts = project.root / "whole", project.root / "parts"
    assert slime("train", "run.toml", *flags, "--num-rollout", 3, "--save", whole).code == 0
    assert slime("train", "run.toml", *flags, "--num-rollout", 1, "--save", parts).code == 0
    buffered = Counter(line["state"] for line in ledger(parts))
    assert buffered == {"drawn": 6, "finished": 6, "buffered": 6, "trained": 4}
    ran = slime.ok("resume", parts, "--num-rollout", 3, "--no-progress")
    assert "continuing after rollout 1 of 3" in ran.out
    assert ledger(parts) == ledger(whole)
    # Wave by wave: 6 drawn, 4 trained; 6 drawn with 2 held, 4 trained; the last 4 are held already.
    drawn = Counter(line["rollout_id"] for line in ledger(whole) if line["state"] == "drawn")
    trained = Counter(line["rollout_id"] for line in ledger(whole) if line["state"] == "trained")
    assert drawn == {0: 6, 1: 6}
    assert trained == {0: 4, 1: 4, 2: 4}


def test_epochs_count_rollouts_and_too_few_prompts_are_refused(project: Project, slime: Slime) -> None:
    project.write_run(num_rollout=None, num_epoch=3)
    project.write_prompts("prompts.jsonl", 3)
    assert slime("train", "run.toml").code == 0
    assert len(metrics(project.run)) == 2  # 9 prompts in all, 4 a rollout
    again = [line["id"] for line in ledger(project.run) if line["state"] == "drawn"]
    assert [name.split(":")[1] for name in again] == ["e0", "e0", "e0", "e1", "e1", "e1", "e2", "e2"]
    project.write_prompts("prompts.jsonl", 1)
    assert "num_epoch = 3 over 1 prompts is less than one rollout" in slime.refused(
        "train", "run.toml", "--save", "other"
    )


def test_a_loss_that_is_not_finite_stops_the_run_before_the_weights_change(
    project: Project, slime: Slime, install_plugin: Install
) -> None:
    install_plugin("slime-nan", {"slime_nan.py": NAN}, entry_points={"nan": "slime_nan"})
    flags = ["--loss", "turns_nan", "--save-interval", 1, "--num-rollout", 3, "--trainer.local.ranks=2"]
    ran = slime("train", "run.toml", *flags)
    assert ran.code == 1
    assert "optimizer step 1: rank 0: the loss of a micro-batch of" in ran.err
    assert "is nan; the weights are unchanged" in ran.err
    checkpoints = list_checkpoints(project.run / "checkpoints")
    assert [path.name for path in checkpoints] == ["rollout_000000", "rollout_000001"]
    assert [verify(path).rollout_id for path in checkpoints] == [0, 1]
    assert workers() == []
