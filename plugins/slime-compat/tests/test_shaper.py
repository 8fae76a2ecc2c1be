"""slime's reward post-processing in the shape of the groups."""

import pytest

from slime_compat.adapters import SlimeRewardPostProcess
from slime_compat.plugin import FunctionSettings
from slime_core.errors import ContractError
from slime_core.roles import ShapeContext
from slime_testing import make_group


def test_flat_rewards_come_back_in_the_groups_shape_without_those_that_have_none(path: str) -> None:
    groups = [make_group(0, rewards=(0.0, 1.0)), make_group(1, rewards=(1.0, 2.0, 3.0))]
    shaper = SlimeRewardPostProcess(FunctionSettings(path=f"{path}post_process"))
    context = ShapeContext(0, rewards=[[0.0, 1.0], [None, 2.0, 3.0]])
    assert shaper(groups, context) == [[-1.5, -0.5], [None, 0.5, 1.5]]


def test_a_list_that_lost_a_reward_is_an_error(path: str) -> None:
    shaper = SlimeRewardPostProcess(FunctionSettings(path=f"{path}post_process_that_drops_one"))
    with pytest.raises(ContractError, match="2 samples, 2 raw rewards, 1 rewards"):
        shaper([make_group()], ShapeContext(0, rewards=[[0.0, 1.0]]))
