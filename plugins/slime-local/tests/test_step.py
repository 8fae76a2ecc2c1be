"""LocalStep: what corrections, columns and replaced masks make of the gradient, and that skipping changes nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from test_rank import group

from slime_core.batching.prepare import ColumnMaker, Preparation
from slime_core.batching.split import split_step
from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import NonFiniteError
from slime_core.roles import (
    LOSS_MASK,
    Advantage,
    AdvantageInput,
    Correction,
    Draw,
    Grain,
    Loss,
    LossInput,
    LossOutput,
    ShapeContext,
    StepResult,
    TrainBatch,
)
from slime_core.sample import Group, Sample
from slime_local.model import load_model
from slime_local.step import LocalStep
from slime_train import Algorithm
from slime_train.corrections import Tis
from slime_train.estimators.grpo import Grpo, GrpoSettings
from slime_train.losses import PolicyLoss
from slime_train.settings import PolicyLossSettings, TisSettings
from tests.ranks import rank_setup
from tests.tables import table

UNCLIPPED = PolicyLoss(PolicyLossSettings(eps_clip=0.999999, eps_clip_high=1e9))
UNTRUNCATED = Tis(TisSettings(tis_clip=1e9))


def groups() -> list[Group]:
    """Three groups, one of them of equal rewards; every fourth token is the environment's."""
    rewards = ([0.0, 1.0, 1.0], [1.0, 1.0], [0.0, 0.5, 1.0, 0.0])
    return [group(number, given, 3 + number, masked=True) for number, given in enumerate(rewards)]


def batch_of(*makers: ColumnMaker) -> TrainBatch:
    prepared = Preparation(makers=makers).prepare(Draw(groups(), [1.0, 0.5, 2.0]), rollout_id=0)
    return split_step(prepared, 1, rollout_id=0)[0]


def gradient(
    tiny_model: Path,
    batch: TrainBatch,
    *,
    advantage: Advantage | None = None,
    loss: Loss | None = None,
    correction: Correction | None = None,
    skip: bool = True,
    max_tokens: int = 16384,
) -> tuple[torch.Tensor, StepResult]:
    model = load_model(tiny_model)
    weights = torch.empty(model.numel)
    model.read_into(weights)
    model.bind(weights)
    algorithm = Algorithm(
        rank_setup(tiny_model, tiny_model, calculate_per_token_loss=False),
        BuiltChoice("a", "tests", advantage or Grpo(GrpoSettings())),
        BuiltChoice("l", "tests", loss or UNCLIPPED),
        None if correction is None else BuiltChoice("c", "tests", correction),
        zero_without_advantage=skip,
        sum_over_shares=lambda tensor: tensor,
    )
    (share,) = algorithm.estimate([algorithm.share(batch)])
    made, sums = LocalStep(model, algorithm, temperature=1.0, max_tokens=max_tokens).run(share)
    return made, sums.result(share, {})


def assert_same(one: torch.Tensor, other: torch.Tensor) -> None:
    assert other.abs().max() > 0
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6 * float(other.abs().max()) + 1e-9)


def test_importance_sampling_equals_the_unclipped_ratio(tiny_model: Path) -> None:
    """The ratio to the sampler is counted once: by the loss without a correction, by the correction with one."""
    plain, _ = gradient(tiny_model, batch_of())
    corrected, sums = gradient(tiny_model, batch_of(), correction=UNTRUNCATED)
    assert_same(corrected, plain)
    assert sums.metrics["tis_clipfrac"] == 0.0
    assert sums.metrics["tis_abs"] > 0
    assert sums.metrics["ppo_kl"] == 0.0
    assert sums.metrics["train_rollout_logprob_abs_diff"] > 0


def test_empty_share_still_calls_the_estimator(tiny_model: Path) -> None:
    """Its sums over ranks are collective: a rank that left them out would block the others."""
    asked = []

    def estimate(batch: AdvantageInput) -> torch.Tensor:
        asked.append(batch.sum_over_ranks(torch.zeros(1)))
        return torch.zeros_like(batch.loss_mask_T)

    empty, sums = gradient(tiny_model, split_step([], 1, rollout_id=0)[0], advantage=estimate)
    assert len(asked) == 1
    assert not empty.any()
    assert (sums.metrics, sums.tokens, sums.scores) == ({}, 0, {})


def first_two(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    return {LOSS_MASK: [float(place < 2) for place in range(sample.response_length)]}


@table("max_tokens", [16384, 1])
def test_skipping_groups_without_advantage_changes_nothing(tiny_model: Path, max_tokens: int) -> None:
    replaced = ColumnMaker(BuiltChoice("m", "tests", first_two), {LOSS_MASK: Grain.TOKEN})
    given = {"correction": Tis(TisSettings(tis_clip=1.2, tis_clip_low=0.8)), "max_tokens": max_tokens}
    skipped, fewer = gradient(tiny_model, batch_of(replaced), skip=True, **given)  # type: ignore[arg-type]
    whole, all_of_them = gradient(tiny_model, batch_of(replaced), skip=False, **given)  # type: ignore[arg-type]
    assert_same(skipped, whole)
    assert fewer.tokens < all_of_them.tokens
    assert fewer.scores == all_of_them.scores


def own(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    number = 10 * (sample.group_index or 0) + (sample.index or 0)
    return {"sample": number, "token": [100 * number + place for place in range(sample.response_length)]}


@table("max_tokens", [16384, 1])
def test_micro_batch_columns_belong_to_its_samples(tiny_model: Path, max_tokens: int) -> None:
    seen: list[tuple[list[float], list[float], list[int]]] = []

    class Look:
        def __call__(self, batch: LossInput) -> LossOutput:
            columns = batch.columns_S["sample"].tolist(), batch.columns_T["token"].tolist()
            seen.append((*columns, batch.sample_index_T.tolist()))
            return LossOutput(-batch.log_probs_T)

    maker = ColumnMaker(BuiltChoice("own", "tests", own), {"sample": Grain.SAMPLE, "token": Grain.TOKEN})
    gradient(tiny_model, batch_of(maker), loss=Look(), max_tokens=max_tokens)
    assert sum(len(samples) for samples, _, _ in seen) == 7  # those with an advantage
    for samples, tokens, sample_T in seen:
        assert [token // 100 for token in tokens] == [samples[sample] for sample in sample_T]


def test_non_finite_weights_are_not_blamed_on_the_correction(tiny_model: Path) -> None:
    model = load_model(tiny_model)
    weights = torch.full((model.numel,), float("nan"))
    model.bind(weights)
    setup = rank_setup(tiny_model, tiny_model)
    grpo, loss, correction = Grpo(GrpoSettings()), UNCLIPPED, UNTRUNCATED
    algorithm = Algorithm(
        setup,
        BuiltChoice("a", "tests", grpo),
        BuiltChoice("l", "tests", loss),
        BuiltChoice("c", "tests", correction),
        zero_without_advantage=True,
        sum_over_shares=lambda tensor: tensor,
    )
    (share,) = algorithm.estimate([algorithm.share(batch_of())])
    with pytest.raises(NonFiniteError, match="a log-prob under the trained weights is not finite"):
        LocalStep(model, algorithm, temperature=1.0, max_tokens=16384).run(share)
