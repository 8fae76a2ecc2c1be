"""What a sample filter left out: its reward is one of its group's, its tokens are in no sum and no denominator."""

import math
from pathlib import Path
from statistics import fmean, stdev

import pytest
import torch

from slime_core.batching.prepare import Preparation
from slime_core.batching.split import split_step
from slime_core.catalog.catalog import Used
from slime_core.roles import Draw, FilterContext
from slime_core.rollout import Truncated
from slime_core.sample import Group, Status
from slime_testing.samples import make_group
from slime_train import Algorithm, GrpoSettings, PolicyLossSettings
from slime_train.estimators.grpo import Grpo
from slime_train.losses import PolicyLoss
from tests.ranks import rank_setup
from tests.tables import table

REWARDS = ((1.0, 0.0, 0.5), (0.0, 0.0, 1.0))
LENGTHS = ((2, 5, 3), (4, 1, 2))
CUT = {(0, 1), (1, 2)}
OVER_SAMPLES: dict[str, object] = {"calculate_per_token_loss": False}
WAYS = [OVER_SAMPLES, {"calculate_per_token_loss": True}, {**OVER_SAMPLES, "constant_loss_length": 6}]


def groups() -> list[Group]:
    """Two groups of three samples; those of `CUT` were cut off, and the filter has seen it."""
    made = [make_group(draw, rewards=rewards) for draw, rewards in enumerate(REWARDS)]
    for draw, group in enumerate(made):
        for at, sample in enumerate(group.samples):
            sample.tokens = [11, 12, *range(20, 20 + LENGTHS[draw][at])]
            sample.response_length = LENGTHS[draw][at]
            sample.loss_mask, sample.rollout_log_probs = [1] * LENGTHS[draw][at], [-0.5] * LENGTHS[draw][at]
            sample.status = Status.TRUNCATED if (draw, at) in CUT else Status.COMPLETED
    for removal in Truncated()(made, FilterContext(rollout_id=0)):
        made[removal.group.draw].samples[removal.position].remove_sample = True
    return made


def grpo(way: dict[str, object]) -> Algorithm:
    """GRPO and its clipped loss, on one rank."""
    return Algorithm(
        rank_setup(Path(), Path(), **way),  # type: ignore[arg-type]
        Used("grpo", "tests", Grpo(GrpoSettings())),
        Used("policy_loss", "tests", PolicyLoss(PolicyLossSettings())),
        None,
        zero_without_advantage=True,
        sum_over_shares=lambda tensor: tensor,
    )


def gradient(draw: int, at: int, way: dict[str, object]) -> float:
    """Of the step's loss by a token's log-prob, where the policy is the sampler: -A times the token's weight."""
    if (draw, at) in CUT:
        return 0.0
    left = [LENGTHS[one][other] for one in range(2) for other in range(3) if (one, other) not in CUT]
    advantage = (REWARDS[draw][at] - fmean(REWARDS[draw])) / (stdev(REWARDS[draw]) + 1e-6)
    if way["calculate_per_token_loss"]:
        return -advantage / sum(left)
    return -advantage / int(str(way.get("constant_loss_length", LENGTHS[draw][at]))) / len(left)


@table("way", WAYS)
@table("shares", [1, 2])
def test_a_truncated_sample_counts_in_its_groups_baseline_alone(way: dict[str, object], shares: int) -> None:
    prepared = Preparation().of(Draw(groups(), [1.0, 1.0]), rollout_id=0)
    for batch in split_step(prepared, shares, rollout_id=0):
        algorithm = grpo(way)
        (share,) = algorithm.estimate([algorithm.share(batch)])
        live = share.samples_with(algorithm.signal(share))
        assert all((batch.group_index_S[each], each % 3) not in CUT for each in live)
        leaf_T = torch.full((len(batch.tokens_T),), -0.5, requires_grad=True)
        everything = range(len(share.lengths_S))
        part = algorithm.micro_batch(share, list(everything), leaf_T, torch.zeros_like(leaf_T))
        part.loss.backward()  # type: ignore[no-untyped-call]
        assert leaf_T.grad is not None
        expected = [
            gradient(batch.group_index_S[each], each % 3, way)
            for each in everything
            for _ in range(batch.response_lengths_S[each])
        ]
        assert leaf_T.grad.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-9)
        assert part.tokens == sum(
            LENGTHS[batch.group_index_S[each]][each % 3]
            for each in everything
            if (batch.group_index_S[each], each % 3) not in CUT
        )


def test_a_step_of_truncated_samples_alone_has_no_loss() -> None:
    cut = groups()
    for group in cut:
        for sample in group.samples:
            sample.remove_sample = True
    (batch,) = split_step(Preparation().of(Draw(cut, [1.0, 1.0]), rollout_id=0), 1, rollout_id=0)
    assert (batch.step_tokens, batch.step_samples) == (0, 0)
    algorithm = grpo({})
    (share,) = algorithm.estimate([algorithm.share(batch)])
    assert not share.samples_with(algorithm.signal(share))
    assert math.isclose(float(share.weight_T.sum()), 0.0)
