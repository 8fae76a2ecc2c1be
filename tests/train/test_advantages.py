"""GRPO against a reference written as loops in float64, on ragged batches in any order."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import Advantage, AdvantageInput
from slime_core.train.advantages import Grpo
from slime_core.train.settings import GrpoSettings

SETTINGS = [GrpoSettings(), GrpoSettings(grpo_std_normalization=False), GrpoSettings(rewards_normalization=False)]
REWARD = st.sampled_from([0.0, 1.0, 0.1, -1.0]) | st.floats(-5, 5, width=32)
SAMPLES = st.lists(st.tuples(st.sampled_from([0, 3, 4, 900]), REWARD), min_size=1, max_size=24)


def reference(samples: list[tuple[int, float]], settings: GrpoSettings) -> list[float]:
    """Advantage of each (group, reward), by the formula, one sample at a time."""
    found = []
    for group, reward in samples:
        siblings = [other for number, other in samples if number == group]
        if not settings.rewards_normalization:
            found.append(reward)
            continue
        mean = math.fsum(siblings) / len(siblings)
        variance = math.fsum((each - mean) ** 2 for each in siblings) / max(1, len(siblings) - 1)
        scale = math.sqrt(variance) + 1e-6 if settings.grpo_std_normalization else 1.0
        found.append(0.0 if min(siblings) == max(siblings) else (reward - mean) / scale)
    return found


def of_samples(samples: list[tuple[int, float]], settings: GrpoSettings) -> torch.Tensor:
    groups, rewards = zip(*samples, strict=True)
    return Grpo(settings).of_samples(torch.tensor(rewards, dtype=torch.float32), torch.tensor(groups))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@given(samples=SAMPLES)
def test_it_is_the_formula(settings: GrpoSettings, samples: list[tuple[int, float]]) -> None:
    exact = [(group, float(torch.tensor(reward, dtype=torch.float32))) for group, reward in samples]
    assert of_samples(samples, settings).tolist() == pytest.approx(reference(exact, settings), rel=1e-5, abs=1e-6)


@given(samples=SAMPLES, order=st.randoms(use_true_random=False))
def test_groups_go_by_identity_never_by_position(samples: list[tuple[int, float]], order: object) -> None:
    places = list(range(len(samples)))
    order.shuffle(places)  # type: ignore[attr-defined]
    shuffled = of_samples([samples[place] for place in places], GrpoSettings())
    expected = of_samples(samples, GrpoSettings())[places]
    torch.testing.assert_close(shuffled, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", SETTINGS[:2], ids=str)
@given(reward=st.floats(-1e6, 1e6, width=32), size=st.integers(1, 9))
def test_equal_rewards_have_no_advantage_at_all(settings: GrpoSettings, reward: float, size: int) -> None:
    assert of_samples([(7, reward)] * size, settings).tolist() == [0.0] * size


def test_a_lone_sample_has_no_advantage_beside_full_groups() -> None:
    advantage = of_samples([(0, 1.0), (1, 0.0), (1, 1.0)], GrpoSettings())
    assert advantage.tolist() == pytest.approx([0.0, -math.sqrt(0.5), math.sqrt(0.5)], rel=1e-5)


def test_uneven_groups_are_not_normalised_together() -> None:
    """Groups of 3 and 5: the one whose rewards are all 5.0 has nothing to learn from the other."""
    samples = [(0, 5.0)] * 3 + [(1, float(reward)) for reward in (0, 0, 1, 1, 1)]
    assert of_samples(samples, GrpoSettings())[:3].tolist() == [0.0, 0.0, 0.0]


def test_every_token_has_its_samples_advantage() -> None:
    batch = AdvantageInput(
        rewards_S=torch.tensor([0.0, 1.0, 0.0]),
        group_index_S=torch.tensor([2, 2, 5]),
        sample_index_T=torch.tensor([0, 1, 1, 1, 2, 2]),
        loss_mask_T=torch.ones(6),
    )
    advantage_T = Grpo(GrpoSettings())(batch)
    root = math.sqrt(0.5)
    assert advantage_T.tolist() == pytest.approx([-root, root, root, root, 0.0, 0.0], rel=1e-5)
    assert advantage_T.dtype == torch.float32


def test_the_role_is_met() -> None:
    assert isinstance(Grpo(GrpoSettings()), Advantage)
