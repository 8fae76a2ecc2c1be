"""Several rewards in a run whose estimator takes them apart: GDPO, beside a shaper of long responses."""

from slime_core.sample import Json
from tests.conftest import Project, Slime
from tests.run.reading import metrics, samples

REWARDS = """
from slime_core import NotApplicable, RewardContext, Sample, Score


async def digits(sample: Sample, ctx: RewardContext) -> Score:
    share = sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response))
    return Score(share, {"letters": float(len(sample.response))})


async def even(sample: Sample, ctx: RewardContext) -> Score | NotApplicable:
    return Score(50.0) if sample.response_length % 2 == 0 else NotApplicable()
"""
GDPO: dict[str, Json] = {
    "reward": {"use": {"./parts.py:digits": 1.0, "./parts.py:even": 0.5}},
    "advantage": {
        "use": "gdpo",
        "gdpo": {
            "reward_weights": {"./parts.py:digits": 1.0, "./parts.py:digits/letters": 0.1, "./parts.py:even": 1.0}
        },
    },
    "reward_shaper": {"use": "overlong", "overlong": {"max_response_len": 8, "overlong_buffer_len": 4}},
    "num_rollout": 1,
}


def test_gdpo_reads_each_reward_that_the_run_adds_up(project: Project, slime: Slime) -> None:
    (project.root / "parts.py").write_text(REWARDS)
    project.write_run(**GDPO)
    slime.ok("train", "run.toml")
    for reward in (sample["reward"] for sample in samples(project.run)):
        digits, even = reward["./parts.py:digits"], reward["./parts.py:even"]
        assert reward["score"] == digits + 0.5 * even
        assert even in (0.0, 50.0)
        assert "./parts.py:digits/letters" in reward
    (row,) = metrics(project.run)
    assert row["rollout/shaped_reward"] < row["rollout/raw_reward"]
    assert row["train/grad_norm"] > 0
