"""Algorithm: what advantage, loss and correction make of log-probs that no model computed, in numbers by hand."""

import dataclasses
import math
import statistics
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from slime_core.batching.split import split_step
from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import ContractError
from slime_core.roles import (
    Advantage,
    AdvantageInput,
    Correction,
    CorrectionInput,
    CorrectionOutput,
    Loss,
    LossInput,
    LossOutput,
    Reference,
    TrainBatch,
)
from slime_train import Algorithm, MicroBatch, Share
from slime_train.corrections import Tis
from slime_train.losses import PolicyLoss
from slime_train.sequences import whiten
from slime_train.settings import PolicyLossSettings, TisSettings
from tests.ranks import rank_setup
from tests.tables import table

BATCH = TrainBatch(
    prompts_P=((3, 4), (5,)),
    prompt_index_S=array("i", [0, 0, 1]),
    group_index_S=array("i", [0, 0, 1]),
    rollout_index_S=array("i", [0, 1, 2]),
    response_lengths_S=array("i", [2, 1, 2]),
    rewards_S=array("d", [1.0, -2.0, 0.5]),
    weights_S=array("d", [1.0, 1.0, 1.0]),
    tokens_T=array("i", [7, 8, 9, 10, 11]),
    loss_mask_T=array("b", [1, 1, 1, 1, 0]),
    rollout_log_probs_T=array("f", [-1.0, -2.0, -1.5, -0.5, -1.0]),
    step_tokens=4,
    step_samples=3,
)
LOG_PROBS = [-1.0, -1.5, -2.0, -0.25, -3.0]
"""The policy's, at the places of `BATCH`."""


def rewards(batch: AdvantageInput) -> torch.Tensor:
    """Each token its sample's reward."""
    return batch.rewards_S[batch.sample_index_T]


def reinforce(batch: LossInput) -> LossOutput:
    return LossOutput(-batch.advantages_T * batch.log_probs_T)


def algorithm_of(
    *,
    advantage: Advantage = rewards,
    loss: Loss = reinforce,
    correction: Correction | None = None,
    zero_without_advantage: bool = False,
    sum_over_shares: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    **fields: object,
) -> Algorithm:
    used = None if correction is None else BuiltChoice("c", "tests", correction)
    return Algorithm(
        rank_setup(Path(), Path(), **fields),  # type: ignore[arg-type]
        BuiltChoice("a", "tests", advantage),
        BuiltChoice("l", "tests", loss),
        used,
        zero_without_advantage=zero_without_advantage,
        sum_over_shares=sum_over_shares,
    )


def computed(
    algorithm: Algorithm, share: Share, log_probs: list[float] = LOG_PROBS, samples: tuple[int, ...] = (0, 1, 2)
) -> tuple[MicroBatch, list[float]]:
    """Some samples' part, and the gradient of their log-probs."""
    leaf_T = torch.tensor(log_probs)[share.tokens_of(samples)].requires_grad_()
    part = algorithm.micro_batch(share, samples, leaf_T, torch.full_like(leaf_T, 0.7))
    part.loss.backward()  # type: ignore[no-untyped-call]
    assert leaf_T.grad is not None
    return part, leaf_T.grad.tolist()


def second_token_of_the_first(batch: CorrectionInput) -> CorrectionOutput:
    """Takes out the batch's second token, and doubles the third."""
    mask_T, weights_T = batch.loss_mask_T.clone(), torch.ones_like(batch.loss_mask_T)
    mask_T[1], weights_T[2] = 0.0, 2.0
    return CorrectionOutput(weights_T, mask_T, {"kept": mask_T})


def test_the_parts_of_samples_add_up_to_the_mean_over_the_steps_tokens() -> None:
    algorithm = algorithm_of()
    (share,) = algorithm.estimate([algorithm.share(BATCH)])
    whole, gradient = computed(algorithm, share)
    # -A logp / 4 of the four trained tokens: 1.0 + 1.5 - 4.0 + 0.125
    assert whole.loss.item() == pytest.approx(-1.375 / 4)
    assert gradient == pytest.approx([-0.25, -0.25, 0.5, -0.125, 0.0])
    parts = [computed(algorithm, share, samples=samples)[0] for samples in ((2,), (0, 1))]
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item())
    assert (whole.tokens, [part.tokens for part in parts]) == (4, [1, 3])
    assert whole.metrics["loss"] == pytest.approx(-1.375)
    assert whole.metrics["train_rollout_logprob_abs_diff"] == pytest.approx(0.0 + 0.5 + 0.5 + 0.25)
    assert whole.log_ratio_T.tolist() == pytest.approx([0.0, 0.5, -0.5, 0.25])


def test_what_a_correction_masks_has_no_gradient_and_leaves_the_denominator() -> None:
    algorithm = algorithm_of(correction=second_token_of_the_first)
    (share,) = algorithm.estimate([algorithm.share(BATCH)])
    part, gradient = computed(algorithm, share)
    assert gradient == pytest.approx([-0.25, 0.0, 1.0, -0.125, 0.0])
    assert part.loss.item() == pytest.approx((1.0 - 8.0 + 0.125) / 4)
    assert (part.tokens, part.metrics["kept"]) == (4, 3.0)


def test_a_correction_leaves_the_regularizer_and_the_kl_loss_alone(tmp_path: Path) -> None:
    def with_bonus(batch: LossInput) -> LossOutput:
        return LossOutput(-batch.advantages_T * batch.log_probs_T, {}, 3.0 * batch.log_probs_T)

    def nothing(batch: CorrectionInput) -> CorrectionOutput:
        return CorrectionOutput(torch.ones_like(batch.loss_mask_T), torch.zeros_like(batch.loss_mask_T))

    near = Reference(tmp_path, use_kl_loss=True, kl_loss_coef=0.5, kl_loss_type="k2")
    algorithm = algorithm_of(loss=with_bonus, correction=nothing, reference=near)
    share = dataclasses.replace(algorithm.share(BATCH), ref_log_probs_T=torch.tensor([-2.0, -1.5, -2.0, -0.25, 9e9]))
    (share,) = algorithm.estimate([share])
    part, gradient = computed(algorithm, share)
    # The gradient of k2 is the distance to the reference: 1 at the first token. That of the masked one is not seen.
    assert gradient == pytest.approx([(3.0 + 0.5) / 4, 0.75, 0.75, 0.75, 0.0])
    assert part.metrics["kl_loss"] == pytest.approx(0.5)
    assert part.metrics["ref_log_probs"] == pytest.approx(-5.75)


def test_without_a_correction_the_ratio_is_to_the_sampler() -> None:
    seen: list[LossInput] = []

    def look(batch: LossInput) -> LossOutput:
        seen.append(batch)
        return reinforce(batch)

    algorithm = algorithm_of(loss=look)
    (share,) = algorithm.estimate([algorithm.share(BATCH)])
    computed(algorithm, share)
    assert torch.equal(seen[0].old_log_probs_T, share.rollout_log_probs_T)
    assert seen[0].rollout_log_probs_T is not seen[0].log_probs_T


def test_with_a_correction_a_rollouts_first_step_has_ratio_1() -> None:
    loss = PolicyLoss(PolicyLossSettings())
    algorithm = algorithm_of(loss=loss, correction=Tis(TisSettings(tis_clip=1.25)))
    (share,) = algorithm.estimate([algorithm.share(BATCH)])
    assert not algorithm.wants_old_log_probs(share)
    part, gradient = computed(algorithm, share)
    weights = [1.0, 1.25, math.exp(-0.5), 1.25, 0.0]
    advantages = [1.0, 1.0, -2.0, 0.5, 0.5]
    expected = [-advantage * weight / 4 for advantage, weight in zip(advantages, weights, strict=True)]
    assert gradient == pytest.approx(expected)
    assert part.metrics["ppo_kl"] == 0.0


def test_in_later_steps_ratio_and_correction_part_at_the_policy_before_the_rollout() -> None:
    """Sampler to old policy: the correction's. Old policy to that of the step: the loss's, with its clip."""
    loss = PolicyLoss(PolicyLossSettings(eps_clip=0.1, eps_clip_high=0.1))
    algorithm = algorithm_of(loss=loss, correction=Tis(TisSettings(tis_clip=4.0)))
    share = algorithm.share(dataclasses.replace(BATCH, step=1))
    assert algorithm.wants_old_log_probs(share)
    old = [-1.0, -1.5, -1.9, -0.5, -9.0]
    (share,) = algorithm.estimate([dataclasses.replace(share, old_log_probs_T=torch.tensor(old))])
    part, gradient = computed(algorithm, share)
    # Ratios 1, 1, exp(-0.1) and exp(0.25), the last one clipped; weights 1, exp(0.5), exp(-0.4) and 1.
    assert gradient == pytest.approx([-1 / 4, -math.exp(0.5) / 4, 2 * math.exp(-0.1) * math.exp(-0.4) / 4, 0.0, 0.0])
    assert part.metrics["pg_clipfrac"] == 1.0
    assert part.metrics["tis"] == pytest.approx(2 + math.exp(0.5) + math.exp(-0.4))
    assert part.metrics["train_rollout_logprob_abs_diff"] == pytest.approx(0.0 + 0.5 + 0.5 + 0.25)


def test_a_trainer_that_looks_at_no_rollout_is_told_what_a_correction_needs() -> None:
    algorithm = algorithm_of(correction=Tis(TisSettings()))
    (share,) = algorithm.estimate([algorithm.share(dataclasses.replace(BATCH, step=2))])
    with pytest.raises(ContractError, match=r"correction 'c' needs log-probs .* at step 2 of rollout 0: give"):
        computed(algorithm, share)


def test_whitening_is_over_the_trained_tokens_of_the_rollout() -> None:
    """As in slime, for any number of steps: one mean and one deviation, here over two steps."""

    def whitened(batch: AdvantageInput) -> torch.Tensor:
        return whiten(rewards(batch), batch.loss_mask_T, batch.sum_over_ranks)

    algorithm = algorithm_of(advantage=whitened)
    other = dataclasses.replace(BATCH, step=1, rewards_S=array("d", [3.0, 0.0, 4.0]))
    shares = algorithm.estimate([algorithm.share(batch) for batch in (BATCH, other)])
    trained = [1.0, 1.0, -2.0, 0.5, 3.0, 3.0, 0.0, 4.0]
    mean, deviation = statistics.mean(trained), statistics.stdev(trained)
    found = [value for share in shares for value in share.advantages_T[:4].tolist()]  # type: ignore[index]
    assert found == pytest.approx([(value - mean) / deviation for value in trained], rel=1e-5)


def test_groups_and_rollouts_of_two_steps_are_told_apart() -> None:
    """Both steps number theirs from 0, and one of them has none here."""
    asked: list[AdvantageInput] = []

    def look(batch: AdvantageInput) -> torch.Tensor:
        asked.append(batch)
        return rewards(batch)

    empty = split_step([], 1, rollout_id=0, step=1)[0]
    batches = [dataclasses.replace(BATCH, columns_S={}, columns_T={}), empty, dataclasses.replace(BATCH, step=2)]
    algorithm = algorithm_of(advantage=look)
    shares = algorithm.estimate([algorithm.share(batch) for batch in batches])
    (given,) = asked
    assert given.group_index_S.tolist() == [0, 0, 1, 2, 2, 3]
    assert given.rollout_index_S.tolist() == [0, 1, 2, 3, 4, 5]
    assert given.sample_index_T.tolist() == [0, 0, 1, 2, 2, 3, 3, 4, 5, 5]
    assert [len(share.advantages_T) for share in shares] == [5, 0, 5]  # type: ignore[arg-type]
    assert [list(share.scores()) for share in shares] == [[0, 1], [], [0, 1]]


@table("skips", [True, False])
def test_samples_without_a_signal_need_no_forward(skips: bool) -> None:
    def zero_for_the_second(batch: AdvantageInput) -> torch.Tensor:
        return (batch.sample_index_T != 1).float()

    algorithm = algorithm_of(advantage=zero_for_the_second, zero_without_advantage=skips)
    unmasked = dataclasses.replace(BATCH, loss_mask_T=array("b", [1, 1, 1, 0, 0]))
    (share,) = algorithm.estimate([algorithm.share(unmasked)])
    assert share.samples_with(algorithm.signal(share)) == ([0] if skips else [0, 1])
    assert share.scores() == {0: pytest.approx(2 / 3), 1: 0.0}
