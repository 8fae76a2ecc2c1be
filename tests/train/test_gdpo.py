"""GDPO against a loop in float64; the parts of a reward that reach it; the soft penalty of overlong responses."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from pydantic import ValidationError

from slime_core.batching.prepare import Overlong, OverlongSettings, Preparation, reward_columns
from slime_core.errors import ContractError
from slime_core.roles import AdvantageInput, Draw, ShapeContext
from slime_core.sample import Group, GroupId, Sample
from slime_train.estimators.gdpo import Gdpo, GdpoSettings
from tests.tables import table


@dataclass(frozen=True)
class Parted:
    """A sample: its group, the parts of its reward, its tokens."""

    group: int
    parts: Mapping[str, float]
    tokens: int


VALUE = st.sampled_from([0.0, 1.0, 0.5, 100.0])
SAMPLES = st.lists(
    st.builds(Parted, st.integers(0, 2), st.fixed_dictionaries({"a": VALUE, "b": VALUE}), st.integers(1, 4)),
    min_size=1,
    max_size=9,
)
WEIGHTS = {"a": 1.0, "b": -0.5}


def batch_of(samples: Sequence[Parted]) -> AdvantageInput:
    count = len(samples)
    return AdvantageInput(
        rewards_S=torch.zeros(count),
        group_index_S=torch.tensor([sample.group for sample in samples]),
        rollout_index_S=torch.arange(count),
        sample_index_T=torch.arange(count).repeat_interleave(torch.tensor([sample.tokens for sample in samples])),
        loss_mask_T=torch.ones(sum(sample.tokens for sample in samples)),
        columns_S={f"reward/{key}": torch.tensor([sample.parts[key] for sample in samples]) for key in WEIGHTS},
    )


def slow(samples: Sequence[Parted]) -> list[float]:
    found = []
    for sample in samples:
        total = 0.0
        for key, weight in WEIGHTS.items():
            rewards = [each.parts[key] for each in samples if each.group == sample.group]
            mean = math.fsum(rewards) / len(rewards)
            variance = math.fsum((each - mean) ** 2 for each in rewards) / max(1, len(rewards) - 1)
            total += weight * (sample.parts[key] - mean) / (math.sqrt(variance) + 1e-6)
        found += [total] * sample.tokens
    return found


@profile(max_examples=60)
@given(samples=SAMPLES)
def test_it_is_the_sum_of_the_parts_each_relative_to_its_group(samples: list[Parted]) -> None:
    plain = Gdpo(GdpoSettings(reward_weights=WEIGHTS, normalize_advantages=False))(batch_of(samples))
    assert plain.tolist() == pytest.approx(slow(samples), rel=1e-5, abs=1e-5)
    values = slow(samples)
    mean = math.fsum(values) / len(values)
    scale = math.sqrt(math.fsum((each - mean) ** 2 for each in values) / max(1, len(values) - 1) + 1e-8)
    assume(scale > 1e-2)
    whitened = Gdpo(GdpoSettings(reward_weights=WEIGHTS))(batch_of(samples))
    assert whitened.tolist() == pytest.approx([(each - mean) / scale for each in values], rel=1e-4, abs=1e-4)


def scored(reward: float | dict[str, float] | None, length: int = 2) -> Sample:
    return Sample(index=0, group_index=3, tokens=[1, *[2] * length], response_length=length, reward=reward)


def draw_of(*samples: Sample) -> Draw:
    return Draw([Group(GroupId("made", 0, 0, 0), list(samples))], [1.0])


def test_the_parts_are_columns_of_their_samples() -> None:
    preparation = Preparation(makers=[reward_columns(["math", "math/steps"])])
    samples = scored({"score": 1.5, "math": 1.0, "math/steps": 3.0}), scored(None)
    [group] = preparation.of(draw_of(*samples), rollout_id=0)
    assert [dict(each.columns_S) for each in group.samples] == [
        {"reward/math": 1.0, "reward/math/steps": 3.0},
        {"reward/math": 0.0, "reward/math/steps": 0.0},
    ]
    assert group.samples[0].reward == 1.5


@table("reward, has", [({"score": 1.0, "math": 1.0}, "it has score, math;"), (1.0, "it has the one number 1.0;")])
def test_a_part_that_is_not_there_is_named(reward: float | dict[str, float], has: str) -> None:
    preparation = Preparation(makers=[reward_columns(["formt"])])
    with pytest.raises(ContractError, match=f"sample 0 of group 3 has no part 'formt' .*{has}"):
        preparation.of(draw_of(scored(reward)), rollout_id=0)


@given(length=st.integers(0, 300), most=st.integers(1, 200), share=st.floats(0.01, 1.0))
def test_it_is_equation_13(length: int, most: int, share: float) -> None:
    cache = max(1, int(share * most))
    if length <= most - cache:
        expected = 0.0
    elif length <= most:
        expected = (most - cache - length) / cache
    else:
        expected = -1.0
    settings = OverlongSettings(max_response_len=most, overlong_buffer_len=cache)
    assert -Overlong(settings).penalty(length) == pytest.approx(expected)
    doubled = settings.model_copy(update={"overlong_penalty_factor": 2.0})
    assert -Overlong(doubled).penalty(length) == pytest.approx(2 * expected)


def test_the_shaper_leaves_samples_without_a_reward_alone() -> None:
    use = Overlong(OverlongSettings(max_response_len=4, overlong_buffer_len=2))
    draw = draw_of(scored(1.0, 2), scored(1.0, 3), scored(1.0, 9), scored(None, 9))
    assert use(draw.groups, ShapeContext(0, [[1.0, 1.0, 1.0, None]])) == [[1.0, 0.5, 0.0, None]]


@table("rewards", [[], [[1.0]], [[1.0, 1.0, 1.0]], [[1.0, 1.0], [1.0]]])
def test_the_shaper_refuses_rewards_that_are_not_its_samples(rewards: list[list[float | None]]) -> None:
    use = Overlong(OverlongSettings(max_response_len=4, overlong_buffer_len=2))
    with pytest.raises(ValueError, match="zip"):
        use(draw_of(scored(1.0), scored(1.0)).groups, ShapeContext(0, rewards))


def test_a_buffer_above_the_budget_is_refused() -> None:
    with pytest.raises(ValidationError, match="overlong_buffer_len = 9 is above max_response_len = 8"):
        OverlongSettings(max_response_len=8, overlong_buffer_len=9)
