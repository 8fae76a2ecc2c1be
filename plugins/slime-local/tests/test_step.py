"""LocalStep: what corrections, columns and replaced masks make of the gradient, and that skipping changes nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from slime_core.batching.prepare import ColumnMaker, Preparation
from slime_core.batching.split import split_step
from slime_core.catalog.catalog import Used
from slime_core.errors import ContractError, NonFiniteError
from slime_core.roles import (
    LOSS_MASK,
    Advantage,
    AdvantageInput,
    Correction,
    CorrectionInput,
    CorrectionOutput,
    Draw,
    Grain,
    Loss,
    LossInput,
    LossOutput,
    ShapeContext,
    StepResult,
    TrainBatch,
)
from slime_core.sample import Group, GroupId, Sample
from slime_local.demo.tiny import write_tiny_model
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


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny") / "hf"
    write_tiny_model(directory=directory, task="chain", seed=0)
    return directory


def groups() -> list[Group]:
    """Three groups, one of them of equal rewards; every fourth token is the environment's."""
    draw = torch.Generator().manual_seed(3)
    made = []
    for number, rewards in enumerate([[0.0, 1.0, 1.0], [1.0, 1.0], [0.0, 0.5, 1.0, 0.0]]):
        prompt = torch.randint(3, 200, (4 + number,), generator=draw).tolist()
        samples = []
        for index, reward in enumerate(rewards):
            length = int(torch.randint(2, 9, (1,), generator=draw))
            samples.append(
                Sample(
                    index=index,
                    group_index=number,
                    tokens=[*prompt, *torch.randint(3, 200, (length,), generator=draw).tolist()],
                    response_length=length,
                    loss_mask=[int(place % 4 != 3) for place in range(length)],
                    rollout_log_probs=(-5.5 + torch.rand(length, generator=draw)).tolist(),
                    reward=reward,
                    weight_versions=["0"],
                )
            )
        made.append(Group(GroupId("test", 0, number, number), samples))
    return made


def batch_of(*makers: ColumnMaker) -> TrainBatch:
    prepared = Preparation(makers=makers).of(Draw(groups(), [1.0, 0.5, 2.0]), rollout_id=0)
    return split_step(prepared, 1, rollout_id=0)[0]


def gradient(
    model_dir: Path,
    batch: TrainBatch,
    *,
    advantage: Advantage | None = None,
    loss: Loss | None = None,
    correction: Correction | None = None,
    skip: bool = True,
    max_tokens: int = 16384,
) -> tuple[torch.Tensor, StepResult]:
    model = load_model(model_dir)
    weights = torch.empty(model.numel)
    model.read_into(weights)
    model.bind(weights)
    algorithm = Algorithm(
        rank_setup(model_dir, model_dir, calculate_per_token_loss=False),
        Used("a", "tests", advantage or Grpo(GrpoSettings())),
        Used("l", "tests", loss or UNCLIPPED),
        None if correction is None else Used("c", "tests", correction),
        zero_without_advantage=skip,
        sum_over_shares=lambda tensor: tensor,
    )
    (share,) = algorithm.estimate([algorithm.share(batch)])
    made, sums = LocalStep(model, algorithm, temperature=1.0, max_tokens=max_tokens).run(share)
    return made, sums.result(share, {})


def assert_same(one: torch.Tensor, other: torch.Tensor) -> None:
    assert other.abs().max() > 0
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6 * float(other.abs().max()) + 1e-9)


def test_importance_sampling_weighs_the_gradient_as_the_unclipped_ratio_does(model_dir: Path) -> None:
    """The ratio to the sampler is counted once: by the loss without a correction, by the correction with one."""
    plain, _ = gradient(model_dir, batch_of())
    corrected, sums = gradient(model_dir, batch_of(), correction=UNTRUNCATED)
    assert_same(corrected, plain)
    assert sums.metrics["tis_clipfrac"] == 0.0
    assert sums.metrics["tis_abs"] > 0
    assert sums.metrics["ppo_kl"] == 0.0
    assert sums.metrics["train_rollout_logprob_abs_diff"] > 0


def test_a_correction_leaves_the_entropy_bonus_alone(model_dir: Path) -> None:
    def nothing(batch: CorrectionInput) -> CorrectionOutput:
        return CorrectionOutput(torch.zeros_like(batch.loss_mask_T), batch.loss_mask_T)

    with_bonus = PolicyLoss(PolicyLossSettings(entropy_coef=0.5))
    plain, _ = gradient(model_dir, batch_of(), loss=with_bonus, skip=False)
    zeroed, _ = gradient(model_dir, batch_of(), correction=nothing, skip=False)
    bonus, sums = gradient(model_dir, batch_of(), loss=with_bonus, correction=nothing, skip=False)
    assert not zeroed.any()
    assert bonus.norm() > 0
    assert sums.metrics["loss"] == pytest.approx(-0.5 * sums.metrics["entropy_loss"], rel=1e-5)
    assert not torch.allclose(plain, bonus)


def test_of_an_empty_share_the_estimator_makes_nothing_but_is_asked(model_dir: Path) -> None:
    """Its sums over ranks are collective: a rank that left them out would have the others wait for ever."""
    asked = []

    def estimate(batch: AdvantageInput) -> torch.Tensor:
        asked.append(batch.sum_over_ranks(torch.zeros(1)))
        return torch.zeros_like(batch.loss_mask_T)

    empty, sums = gradient(model_dir, split_step([], 1, rollout_id=0)[0], advantage=estimate)
    assert len(asked) == 1
    assert not empty.any()
    assert (sums.metrics, sums.tokens, sums.scores) == ({}, 0, {})


def test_truncation_takes_from_the_gradient(model_dir: Path) -> None:
    plain, _ = gradient(model_dir, batch_of())
    corrected, sums = gradient(model_dir, batch_of(), correction=Tis(TisSettings(tis_clip=1e-6)))
    assert corrected.norm() < 1e-4 * plain.norm()
    assert sums.metrics["tis_clipfrac"] == sums.tokens


class FirstTokens:
    """Masks all but the first two tokens of each sample."""

    def __call__(self, batch: CorrectionInput) -> CorrectionOutput:
        same = batch.sample_index_T[1:] == batch.sample_index_T[:-1]
        place_T = torch.zeros(len(batch.loss_mask_T), dtype=torch.int64)
        for token, follows in enumerate(same.tolist()):
            place_T[token + 1] = place_T[token] + 1 if follows else 0
        return CorrectionOutput(torch.ones_like(batch.loss_mask_T), batch.loss_mask_T * (place_T < 2))


def first_two(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    return {LOSS_MASK: [float(place < 2) for place in range(sample.response_length)]}


def test_a_corrections_mask_leaves_the_denominators_and_a_column_replaces_them(model_dir: Path) -> None:
    class Ones:
        def __call__(self, batch: AdvantageInput) -> torch.Tensor:
            return torch.ones_like(batch.loss_mask_T)

    class Likelihood:
        def __call__(self, batch: LossInput) -> LossOutput:
            return LossOutput(-batch.log_probs_T * batch.advantages_T)

    by_correction, masked = gradient(
        model_dir, batch_of(), advantage=Ones(), loss=Likelihood(), correction=FirstTokens()
    )
    replaced = ColumnMaker(Used("m", "tests", first_two), {LOSS_MASK: Grain.TOKEN})
    by_column, counted = gradient(model_dir, batch_of(replaced), advantage=Ones(), loss=Likelihood())
    assert masked.tokens == batch_of().step_tokens > batch_of(replaced).step_tokens == counted.tokens
    # A sample's mean is over 2 tokens instead of all of its own: the gradient grows by a factor of its own.
    assert by_column.norm() > 1.1 * by_correction.norm()


@table("max_tokens", [16384, 1])
def test_skipping_groups_without_advantage_changes_nothing(model_dir: Path, max_tokens: int) -> None:
    replaced = ColumnMaker(Used("m", "tests", first_two), {LOSS_MASK: Grain.TOKEN})
    given = {"correction": Tis(TisSettings(tis_clip=1.2, tis_clip_low=0.8)), "max_tokens": max_tokens}
    skipped, fewer = gradient(model_dir, batch_of(replaced), skip=True, **given)  # type: ignore[arg-type]
    whole, all_of_them = gradient(model_dir, batch_of(replaced), skip=False, **given)  # type: ignore[arg-type]
    assert_same(skipped, whole)
    assert fewer.tokens < all_of_them.tokens
    assert fewer.scores == all_of_them.scores


def own(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
    number = 10 * (sample.group_index or 0) + (sample.index or 0)
    return {"sample": number, "token": [100 * number + place for place in range(sample.response_length)]}


@table("max_tokens", [16384, 1])
def test_the_columns_of_a_micro_batch_are_its_samples_own(model_dir: Path, max_tokens: int) -> None:
    seen: list[tuple[list[float], list[float], list[int]]] = []

    class Look:
        def __call__(self, batch: LossInput) -> LossOutput:
            columns = batch.columns_S["sample"].tolist(), batch.columns_T["token"].tolist()
            seen.append((*columns, batch.sample_index_T.tolist()))
            return LossOutput(-batch.log_probs_T)

    maker = ColumnMaker(Used("own", "tests", own), {"sample": Grain.SAMPLE, "token": Grain.TOKEN})
    gradient(model_dir, batch_of(maker), loss=Look(), max_tokens=max_tokens)
    assert sum(len(samples) for samples, _, _ in seen) == 7  # those with an advantage
    for samples, tokens, sample_T in seen:
        assert [token // 100 for token in tokens] == [samples[sample] for sample in sample_T]


def test_what_breaks_a_contract_is_named(model_dir: Path) -> None:
    class Short:
        def __call__(self, batch: AdvantageInput) -> torch.Tensor:
            return batch.rewards_S

    class Negative:
        def __call__(self, batch: CorrectionInput) -> CorrectionOutput:
            return CorrectionOutput(-batch.loss_mask_T, batch.loss_mask_T)

    class Bare:
        def __call__(self, batch: LossInput) -> LossOutput:
            return batch.log_probs_T  # type: ignore[return-value]

    for parts, says in (
        ({"advantage": Short()}, "advantage of plugin tests: expected a float tensor of"),
        ({"correction": Negative()}, "correction of plugin tests, weights_T: holds -1"),
        ({"loss": Bare()}, "loss of plugin tests: expected a LossOutput"),
    ):
        with pytest.raises(ContractError, match=says):
            gradient(model_dir, batch_of(), **parts)


def test_weights_that_are_not_finite_are_no_fault_of_the_correction(model_dir: Path) -> None:
    model = load_model(model_dir)
    weights = torch.full((model.numel,), float("nan"))
    model.bind(weights)
    setup = rank_setup(model_dir, model_dir)
    grpo, loss, correction = Grpo(GrpoSettings()), UNCLIPPED, UNTRUNCATED
    algorithm = Algorithm(
        setup,
        Used("a", "tests", grpo),
        Used("l", "tests", loss),
        Used("c", "tests", correction),
        zero_without_advantage=True,
        sum_over_shares=lambda tensor: tensor,
    )
    (share,) = algorithm.estimate([algorithm.share(batch_of())])
    with pytest.raises(NonFiniteError, match="a log-prob under the trained weights is not finite"):
        LocalStep(model, algorithm, temperature=1.0, max_tokens=16384).run(share)
