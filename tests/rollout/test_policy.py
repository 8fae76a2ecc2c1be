"""RolloutPolicy: what nobody chose is as the run file's keys say, and names are those of the run file."""

from slime_core.config import RolloutArgs
from slime_core.roles import SamplingParams
from slime_core.rollout import RewardOnError, RolloutPolicy


def test_what_is_not_chosen_is_as_the_keys_of_the_run_file_say() -> None:
    policy, keys = RolloutPolicy(seed=0, sampling=SamplingParams(1)), RolloutArgs.model_fields
    same = ("over_sampling_batch_size", "max_filter_waves", "max_error_rate", "partial_rollout")
    for name in (*same, "mask_offpolicy_in_partial_rollout"):
        assert getattr(policy, name) == keys[name].default, name
    assert policy.max_staleness == 1  # as the key's description says
    assert policy.reward_on_error is RewardOnError(keys["reward_on_error"].default)
