"""OPO and pass@k training against loops: one by hand, the other over every draw of k from the group."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_algorithms import PassAtKSettings
from slime_algorithms.opo import Opo
from slime_algorithms.pass_at_k import PassAtK
from slime_core.roles import AdvantageInput
from tests.tables import table


@dataclass(frozen=True)
class Drawn:
    """A sample: its group, the rollout it came from, its reward, the mask of its tokens."""

    group: int
    rollout: int
    reward: float
    mask: tuple[int, ...]


REWARD = st.sampled_from([0.0, 1.0, 0.25, -1.0])
SAMPLES = st.lists(
    st.builds(Drawn, st.integers(0, 2), st.just(0), REWARD, st.lists(st.integers(0, 1), max_size=4).map(tuple)),
    min_size=1,
    max_size=9,
).map(lambda found: [Drawn(each.group, at, each.reward, each.mask) for at, each in enumerate(found)])


def batch_of(samples: Sequence[Drawn]) -> AdvantageInput:
    return AdvantageInput(
        rewards_S=torch.tensor([each.reward for each in samples], dtype=torch.float64),
        group_index_S=torch.tensor([each.group for each in samples]),
        rollout_index_S=torch.tensor([each.rollout for each in samples]),
        sample_index_T=torch.tensor([at for at, each in enumerate(samples) for _ in each.mask], dtype=torch.int64),
        loss_mask_T=torch.tensor([float(each) for it in samples for each in it.mask], dtype=torch.float64),
    )


def of_tokens(samples: Sequence[Drawn], values: Sequence[float]) -> list[float]:
    return [value for value, each in zip(values, samples, strict=True) for _ in each.mask]


def opo(samples: Sequence[Drawn]) -> list[float]:
    found = []
    for sample in samples:
        group = [each for each in samples if each.group == sample.group]
        total = sum(sum(each.mask) for each in group)
        if total:
            baseline = math.fsum(sum(each.mask) * each.reward for each in group) / total
        else:
            baseline = fmean(each.reward for each in group)
        found.append(sample.reward - baseline)
    return of_tokens(samples, found)


def pass_at_k(samples: Sequence[Drawn], k: int) -> list[float]:
    """The mean over every draw of k that a sample is in, of the draw's reward, normalised over all draws."""
    found = []
    for sample in samples:
        group = [each for each in samples if each.group == sample.group]
        draws = list(combinations(group, min(k, len(group))))
        scores = [float(any(each.reward >= 0.5 for each in draw)) for draw in draws]
        deviation = pstdev(scores)
        mine = [score for score, draw in zip(scores, draws, strict=True) if sample in draw]
        found.append((fmean(mine) - fmean(scores)) / deviation if deviation else 0.0)
    return of_tokens(samples, found)


@given(samples=SAMPLES)
def test_opo_matches_its_formula(samples: list[Drawn]) -> None:
    assert Opo()(batch_of(samples)).tolist() == pytest.approx(opo(samples), abs=1e-12)


@table("k", [1, 2, 4])
@given(samples=SAMPLES)
def test_pass_at_k_matches_all_draws(k: int, samples: list[Drawn]) -> None:
    found = PassAtK(PassAtKSettings(k=k))(batch_of(samples)).tolist()
    assert found == pytest.approx(pass_at_k(samples, k), abs=1e-9)


@given(samples=SAMPLES)
def test_equal_rewards_have_zero_advantage(samples: list[Drawn]) -> None:
    equal = [Drawn(each.group, each.rollout, 0.1, each.mask) for each in samples]
    assert not Opo()(batch_of(equal)).abs().sum()
    assert not PassAtK(PassAtKSettings(k=2))(batch_of(equal)).abs().sum()


def test_fanned_out_rollout_counts_once() -> None:
    whole = [Drawn(0, 0, 1.0, (1, 1, 1)), Drawn(0, 1, 0.0, (1,)), Drawn(0, 2, 0.0, (1, 1))]
    parts = [Drawn(0, 0, 1.0, (1,)), Drawn(0, 0, 1.0, (1, 1)), *whole[1:]]
    for estimator in (Opo(), PassAtK(PassAtKSettings(k=2))):
        assert estimator(batch_of(parts)).tolist() == pytest.approx(estimator(batch_of(whole)).tolist())


def test_pass_at_k_of_one_correct_response() -> None:
    samples = [Drawn(0, at, float(at == 0), (1,)) for at in range(4)]
    by_k = [PassAtK(PassAtKSettings(k=k))(batch_of(samples)).tolist() for k in (1, 2, 3)]
    assert by_k[0] == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3])
    assert by_k[1] == pytest.approx([1.0, *[-1 / 3] * 3])
    wrong = [row[1] for row in by_k]
    assert wrong == sorted(wrong)
    assert PassAtK(PassAtKSettings(k=4))(batch_of(samples)).tolist() == [0.0] * 4
