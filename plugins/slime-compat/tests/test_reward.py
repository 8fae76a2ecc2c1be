"""Rewards as slime calls them; what slime swallows has a name here."""

import asyncio

import pytest

from slime_compat.adapters import SlimeGroupReward, SlimeReward
from slime_compat.plugin import RewardSettings
from slime_core import Score, Unscored, Verdict
from slime_core.errors import ContractError
from slime_core.roles import RewardContext
from slime_testing import make_sample

CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)


def verdict(path: str, **settings: object) -> Verdict:
    reward = SlimeReward(RewardSettings.model_validate({"path": path, **settings}))
    return asyncio.run(reward(make_sample(response="4", label="4"), CONTEXT))


def test_a_number_is_a_score(path: str) -> None:
    assert verdict(f"{path}custom_rm") == Score(1.0)


def test_args_come_from_the_run_file(path: str) -> None:
    assert verdict(f"{path}rm_that_reads_args", args={"right": 0.25}) == Score(0.25)


def test_an_argument_that_is_missing_says_what_to_write(path: str) -> None:
    with pytest.raises(AttributeError, match=r"stands under \[reward\.rm\.args\] .* Write right = \.\.\. there"):
        verdict(f"{path}rm_that_reads_args")


def test_a_dict_is_read_by_its_reward_key(path: str) -> None:
    assert verdict(f"{path}rm_with_a_dict", reward_key="score") == Score(0.5, {"acc": 1.0})
    assert verdict(f"{path}rm_with_a_dict") == Unscored("dict_reward_without_reward_key")
    assert verdict(f"{path}rm_with_a_dict", reward_key="sore") == Unscored("dict_reward_without_reward_key_sore")


@pytest.mark.parametrize(
    ("name", "reason"), [("rm_of_none", "none_reward"), ("rm_of_nan", "nan_reward"), ("rm_of_text", "str_reward")]
)
def test_what_is_no_reward_is_unscored_with_its_reason(path: str, name: str, reason: str) -> None:
    assert verdict(f"{path}{name}") == Unscored(reason)


def test_a_group_reward_answers_in_order(path: str) -> None:
    reward = SlimeGroupReward(RewardSettings(path=f"{path}group_rm"))
    samples = [make_sample(response=text) for text in ("a", "bbb", "cc")]
    assert asyncio.run(reward(samples, CONTEXT)) == [Score(0.0), Score(1.0), Score(0.0)]


def test_a_group_reward_that_forgets_a_sample_is_an_error(path: str) -> None:
    reward = SlimeGroupReward(RewardSettings(path=f"{path}group_rm_that_forgets_one"))
    with pytest.raises(ContractError, match="expected 2 rewards in a list, got 1"):
        asyncio.run(reward([make_sample(), make_sample()], CONTEXT))
