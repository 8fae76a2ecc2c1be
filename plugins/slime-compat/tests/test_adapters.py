"""Rewards, filters and reward post-processing as slime calls them; mistakes that slime ignores are reported."""

import asyncio
import logging

import pytest

from slime_compat.adapters import (
    SlimeBufferFilter,
    SlimeDynamicFilter,
    SlimeGroupReward,
    SlimeReward,
    SlimeRewardPostProcess,
    SlimeSampleFilter,
)  # fmt: skip
from slime_compat.settings import FunctionSettings, RewardSettings
from slime_core import Score, Unscored, Verdict
from slime_core.errors import ContractError
from slime_core.roles import (
    BufferContext,
    Drop,
    FilterContext,
    Keep,
    KeepIfShort,
    Removal,
    RewardContext,
    Selection,
    ShapeContext,
)  # fmt: skip
from slime_testing import make_group, make_sample
from tests.tables import table

CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)
FILTERED = FilterContext(rollout_id=0)
HELD = [make_group(draw) for draw in range(4)]


def verdict(path: str, **settings: object) -> Verdict:
    reward = SlimeReward(RewardSettings.model_validate({"path": path, **settings}))
    return asyncio.run(reward(make_sample(response="4", label="4"), CONTEXT))


def test_a_number_is_a_score(path: str) -> None:
    assert verdict(f"{path}custom_rm") == Score(1.0)


def test_args_are_read_from_the_run_file(path: str) -> None:
    assert verdict(f"{path}rm_that_reads_args", args={"right": 0.25}) == Score(0.25)


def test_missing_argument_names_the_setting(path: str) -> None:
    with pytest.raises(AttributeError, match=r"only the values of \[reward\.rm\.args\]\. Write right = \.\.\. there"):
        verdict(f"{path}rm_that_reads_args")


def test_a_dict_is_read_by_its_reward_key(path: str) -> None:
    assert verdict(f"{path}rm_with_a_dict", reward_key="score") == Score(0.5, {"acc": 1.0})
    assert verdict(f"{path}rm_with_a_dict") == Unscored("dict_reward_without_reward_key")
    assert verdict(f"{path}rm_with_a_dict", reward_key="sore") == Unscored("dict_reward_without_reward_key_sore")


@table("name, reason", [("rm_of_none", "none_reward"), ("rm_of_nan", "nan_reward"), ("rm_of_text", "str_reward")])
def test_invalid_reward_is_unscored_with_a_reason(path: str, name: str, reason: str) -> None:
    assert verdict(f"{path}{name}") == Unscored(reason)


def test_a_group_reward_answers_in_order(path: str) -> None:
    reward = SlimeGroupReward(RewardSettings(path=f"{path}group_rm"))
    samples = [make_sample(response=text) for text in ("a", "bbb", "cc")]
    assert asyncio.run(reward(samples, CONTEXT)) == [Score(0.0), Score(1.0), Score(0.0)]


def test_short_group_reward_is_an_error(path: str) -> None:
    reward = SlimeGroupReward(RewardSettings(path=f"{path}group_rm_that_forgets_one"))
    with pytest.raises(ContractError, match="expected 2 rewards in a list, got 1"):
        asyncio.run(reward([make_sample(), make_sample()], CONTEXT))


def select(path: str, want: int = 2) -> Selection:
    return SlimeBufferFilter(FunctionSettings(path=path)).select(HELD, want, BufferContext(0, 0))


def test_a_dynamic_filter_keeps_and_drops(path: str) -> None:
    chosen = SlimeDynamicFilter(FunctionSettings(path=f"{path}dynamic_filter"))
    assert chosen(make_group(rewards=(0.0, 1.0)), FILTERED) == Keep()
    assert chosen(make_group(rewards=(1.0, 1.0)), FILTERED) == Drop("zero_std_1.0")


def test_dynamic_filter_may_fall_back_or_return_a_bool(path: str) -> None:
    fallback = SlimeDynamicFilter(FunctionSettings(path=f"{path}dynamic_filter_with_fallback"))
    assert fallback(HELD[0], FILTERED) == KeepIfShort("short")
    plain = SlimeDynamicFilter(FunctionSettings(path=f"{path}dynamic_filter_that_says_false"))
    assert plain(HELD[0], FILTERED) == Drop("dynamic_filter")


def test_marked_samples_are_removed_without_changing_groups(path: str) -> None:
    chosen = SlimeSampleFilter(FunctionSettings(path=f"{path}rollout_filter"))
    assert chosen(HELD[:2], FILTERED) == [Removal(group.id, 0, "remove_sample") for group in HELD[:2]]
    assert not any(sample.remove_sample for group in HELD for sample in group.samples)


def test_buffer_filter_takes_and_drops(path: str) -> None:
    assert select(f"{path}pop_first") == Selection(take=[0, 1], drop=[])
    assert select(f"{path}newest_and_forget_the_rest") == Selection(take=[2, 3], drop=[0, 1])


def test_buffer_filter_without_deletion_warns_once(path: str, caplog: pytest.LogCaptureFixture) -> None:
    chosen = SlimeBufferFilter(FunctionSettings(path=f"{path}filter_that_does_not_delete"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert chosen.select(HELD, 2, BufferContext(0, 0)) == Selection(take=[0, 1], drop=[])
    assert [record.message.count("return them every time") for record in caplog.records] == [1]


def test_oversized_buffer_filter_result_is_cut(path: str, caplog: pytest.LogCaptureFixture) -> None:
    assert select(f"{path}filter_that_returns_too_many") == Selection(take=[0, 1], drop=[])
    assert "returned 4 groups, but 2 were requested" in caplog.text


def test_buffer_filter_copies_are_an_error(path: str) -> None:
    with pytest.raises(ContractError, match="a group that is not in the buffer"):
        select(f"{path}filter_that_returns_copies")


def test_flat_rewards_regain_group_shape(path: str) -> None:
    groups = [make_group(0, rewards=(0.0, 1.0)), make_group(1, rewards=(1.0, 2.0, 3.0))]
    shaper = SlimeRewardPostProcess(FunctionSettings(path=f"{path}post_process"))
    context = ShapeContext(0, rewards=[[0.0, 1.0], [None, 2.0, 3.0]])
    assert shaper(groups, context) == [[-1.5, -0.5], [None, 0.5, 1.5]]


def test_short_reward_list_is_an_error(path: str) -> None:
    shaper = SlimeRewardPostProcess(FunctionSettings(path=f"{path}post_process_that_drops_one"))
    with pytest.raises(ContractError, match="got 2 samples, and returned 2 raw rewards and 1 rewards"):
        shaper([make_group()], ShapeContext(0, rewards=[[0.0, 1.0]]))
