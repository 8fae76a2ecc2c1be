"""RolloutPolicy: what nobody chose is as the run file's keys say, and names are those of the run file."""

from slime_core.config import RolloutArgs
from slime_core.roles import RewardGrain, SamplingParams
from slime_core.rollout import RewardOnError, RolloutPolicy, Scoring, UsedReward
from slime_core.score import Score


async def nobody(sample: object, ctx: object) -> Score:
    raise AssertionError("it is not asked")


def test_what_is_not_chosen_is_as_the_keys_of_the_run_file_say() -> None:
    policy, keys = RolloutPolicy(seed=0, sampling=SamplingParams(1)), RolloutArgs.model_fields
    same = ("over_sampling_batch_size", "max_filter_waves", "max_error_rate", "partial_rollout")
    for name in (*same, "mask_offpolicy_in_partial_rollout"):
        assert getattr(policy, name) == keys[name].default, name
    assert policy.max_staleness == 1  # as the key's description says
    assert policy.reward_on_error is RewardOnError(keys["reward_on_error"].default)


def test_every_way_of_the_run_file_is_known() -> None:
    assert [RewardOnError(each) for each in ("drop", "mask", "raise")] == list(RewardOnError)


def test_rewards_are_asked_about_executions_unless_they_say_otherwise() -> None:
    assert UsedReward("a", "tests", nobody).grain is RewardGrain.EXECUTION


def test_a_generators_own_score_is_read_where_a_reward_reads_it() -> None:
    other, own = UsedReward("a", "tests", nobody), UsedReward("b", "tests", nobody, reads_own=True)
    assert not Scoring().reads_own
    assert not Scoring([other]).reads_own
    assert Scoring([other, own]).reads_own
