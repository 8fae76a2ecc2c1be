"""Advantages by turn: by hand, against a loop that says the formula, and as the contract wants them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from slime_agent_openai.turn_level import TurnLevel  # noqa: E402
from slime_agent_openai.turns import TURN_INDEX, TURN_REWARDS, TurnLevelSettings  # noqa: E402
from slime_core.roles import AdvantageInput  # noqa: E402


@dataclass(frozen=True)
class Played:
    """A sample: its group, its reward at the end, and of each turn the reward and the tokens."""

    group: int
    reward: float
    turns: Sequence[tuple[float, int]]
    rollout: int | None = None


def batch_of(samples: Sequence[Played]) -> AdvantageInput:
    lengths = [sum(tokens for _, tokens in sample.turns) for sample in samples]
    values, index = [], []
    for sample in samples:
        for turn, (value, tokens) in enumerate(sample.turns, 1):
            values += [0.0] * (tokens - 1) + [value]
            index += [float(turn)] * tokens
    rollouts = [place if sample.rollout is None else sample.rollout for place, sample in enumerate(samples)]
    return AdvantageInput(
        rewards_S=torch.tensor([sample.reward for sample in samples]),
        group_index_S=torch.tensor([sample.group for sample in samples]),
        rollout_index_S=torch.tensor(rollouts),
        sample_index_T=torch.arange(len(samples)).repeat_interleave(torch.tensor(lengths)),
        loss_mask_T=torch.ones(sum(lengths)),
        columns_T={TURN_REWARDS: torch.tensor(values), TURN_INDEX: torch.tensor(index)},
    )


def advantages(samples: Sequence[Played], **settings: object) -> list[float]:
    made: list[float] = TurnLevel(TurnLevelSettings.model_validate(settings))(batch_of(samples)).tolist()
    return made


def slow(samples: Sequence[Played], gamma: float, std_normalization: bool) -> list[float]:
    """The formula, turn by turn."""

    def gain(sample: Played, turn: int) -> float:
        ahead = [gamma**place * value for place, (value, _) in enumerate(sample.turns[turn:])]
        return sum(ahead) + gamma ** (len(sample.turns) - 1 - turn) * sample.reward

    found = []
    for sample in samples:
        for turn, (_, tokens) in enumerate(sample.turns):
            others = [gain(each, turn) for each in samples if each.group == sample.group and len(each.turns) > turn]
            spread = statistics.stdev(others) if len(others) > 1 else 0.0
            by = spread + 1e-6 if std_normalization else 1.0
            found += [(gain(sample, turn) - statistics.fmean(others)) / by] * tokens
    return found


def test_advantages_by_hand() -> None:
    first = Played(0, reward=1.0, turns=[(0.5, 2), (0.0, 1)])
    second = Played(0, reward=0.0, turns=[(0.0, 1), (1.0, 2)])
    # returns with gamma 0.5: first 0.5 + 0.5 * (0 + 1) = 1 and 1; second 0 + 0.5 * (1 + 0) = 0.5 and 1
    assert advantages([first, second], gamma=0.5, std_normalization=False) == [0.25, 0.25, 0.0, -0.25, 0.0, 0.0]
    # unbiased deviation of (1, 0.5): 0.25 * sqrt(2)
    half = 0.5**0.5
    assert advantages([first, second], gamma=0.5) == pytest.approx([half, half, 0.0, -half, 0.0, 0.0], abs=1e-5)


def test_samples_of_one_execution_count_once() -> None:
    fanned = [Played(0, 1.0, [(0.0, 1)], rollout=7), Played(0, 1.0, [(0.0, 1)], rollout=7), Played(0, 0.0, [(0.0, 1)])]
    assert advantages(fanned, std_normalization=False) == [0.5, 0.5, -0.5]


VALUE = st.sampled_from([0.0, 1.0, -0.5, 0.25])
PLAYED = st.builds(
    Played, st.integers(0, 2), VALUE, st.lists(st.tuples(VALUE, st.integers(1, 3)), min_size=1, max_size=4)
)


@given(st.lists(PLAYED, min_size=1, max_size=8), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.booleans())
def test_advantages_match_the_formula(samples: list[Played], gamma: float, normalized: bool) -> None:
    made = advantages(samples, gamma=gamma, std_normalization=normalized)
    assert made == pytest.approx(slow(samples, gamma, normalized), rel=1e-4, abs=1e-4)
