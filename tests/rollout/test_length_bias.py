"""LengthBias: how much shorter what is trained on is, also after a resume."""

import json

import pytest

from slime_core.rollout.metrics import LengthBias
from slime_core.sample import Group, GroupId
from slime_testing.samples import make_sample


def group(draw: int, *lengths: int) -> Group:
    samples = [
        make_sample(response="4" * length, group_index=draw, index=index) for index, length in enumerate(lengths)
    ]
    return Group(GroupId("kit", 0, draw, draw), samples)


def test_it_is_the_ratio_of_the_mean_lengths_of_samples_less_one() -> None:
    bias = LengthBias()
    short, long = group(0, 2, 4), group(1, 6, 6, 6)
    bias.finished(short)
    bias.finished(long)
    bias.handed_over(short)
    assert bias.value == pytest.approx(3 / (24 / 5) - 1)
    bias.handed_over(long)
    assert bias.value == 0.0


def test_a_single_token_counts() -> None:
    bias = LengthBias()
    bias.finished(group(0, 3))
    bias.finished(group(1, 1))
    bias.handed_over(group(1, 1))
    assert bias.value == pytest.approx(-0.5)


def test_it_goes_on_after_a_resume() -> None:
    bias, again = LengthBias(), LengthBias()
    bias.finished(group(0, 2, 4))
    bias.finished(group(1, 6, 8))
    bias.handed_over(group(0, 2, 4))
    again.load_state_dict(json.loads(json.dumps(bias.state_dict())))
    assert again.value == bias.value == pytest.approx(3 / 5 - 1)
    for each in (bias, again):
        each.handed_over(group(1, 6, 8))
        assert each.value == 0.0
