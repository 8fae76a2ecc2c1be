"""Trainer and engine of the local backend agree to rounding; one that does not stops the run."""

from slime_view.samples.shard import Shard
from tests.conftest import Project, Slime
from tests.run.reading import metrics

OTHERWISE = '''
from slime_core import Sample
from slime_core.roles import GenerateContext
from slime_core.rollout import SingleTurn


async def otherwise(sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """One token of each sample is another tenth of a nat away from what the engine said."""
    made = await SingleTurn()(sample, ctx)
    for each in made:
        each.rollout_log_probs = [each.rollout_log_probs[0] - 0.1, *each.rollout_log_probs[1:]]
    return made
'''


def test_in_float32_the_local_backends_log_probs_are_the_engines(project: Project, slime: Slime) -> None:
    limits = {"max_logprob_abs_diff": 1e-4, "max_mean_logprob_abs_diff": 1e-6}
    project.write_run(num_rollout=4, rollout_max_response_len=48, **limits)
    slime.ok("train", "run.toml")
    for row in metrics(project.run):
        assert row["train/train_rollout_logprob_abs_diff_max"] <= 1e-4
        assert row["train/train_rollout_logprob_abs_diff"] <= 1e-6


def test_in_bf16_both_round_alike(project: Project, slime: Slime) -> None:
    project.write_run(num_rollout=1, rollout_max_response_len=24)
    assert slime("train", "run.toml").code == 0
    slime.ok("train", "run.toml", "--bf16", "--save", "runs/bf16")
    exact, rounded = (
        [
            (sample.tokens[sample.prompt_length], sample.rollout_log_probs[0])
            for group in Shard(run / "samples" / "rollout_000000.parquet").groups().kept
            for sample in group.samples
        ]
        for run in (project.run, project.root / "runs" / "bf16")
    )
    apart = [abs(a - b) for (token, a), (same, b) in zip(exact, rounded, strict=True) if token == same]
    [row] = metrics(project.root / "runs" / "bf16")
    rounding = sum(apart) / len(apart)
    assert rounding > 0
    assert row["train/train_rollout_logprob_abs_diff"] < rounding / 10


def test_a_sampler_that_says_otherwise_stops_the_run(project: Project, slime: Slime) -> None:
    (project.root / "wrong.py").write_text(OTHERWISE)
    project.write_run(generator={"use": "./wrong.py:otherwise"}, max_logprob_abs_diff=0.05)
    ran = slime("train", "run.toml")
    assert ran.code == 1
    assert "rollout 0, first optimizer step: train/train_rollout_logprob_abs_diff_max is 0.1 nats" in ran.err
    assert "over max_logprob_abs_diff = 0.05" in ran.err
    assert metrics(project.run) == []
