"""The contracts of estimators, losses and corrections, against ones that are bad in one way each."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import torch

from slime_core.roles import (
    AdvantageInput,
    AdvantageSpec,
    CorrectionInput,
    CorrectionOutput,
    CorrectionSpec,
    LossInput,
    LossOutput,
    LossSpec,
    Spec,
)
from slime_testing import CheckStatus, Contract
from slime_testing.tensors.algorithm import AdvantageContract, CorrectionContract, LossContract
from tests.tables import table

Estimator = Callable[[AdvantageInput], torch.Tensor]
Function = Callable[[LossInput], LossOutput]


def centered(batch: AdvantageInput) -> torch.Tensor:
    groups = int(batch.group_index_S.max()) + 1 if len(batch.group_index_S) else 0
    count_G = batch.rewards_S.new_zeros(groups).index_add_(0, batch.group_index_S, torch.ones_like(batch.rewards_S))
    sum_G = torch.zeros_like(count_G).index_add_(0, batch.group_index_S, batch.rewards_S)
    return (batch.rewards_S - (sum_G / count_G)[batch.group_index_S])[batch.sample_index_T]


def estimate_on_the_cpu(batch: AdvantageInput) -> torch.Tensor:
    return centered(batch) * torch.ones(len(batch.sample_index_T))


async def awaited_estimate(batch: AdvantageInput) -> torch.Tensor:
    return centered(batch)


def by_position(batch: AdvantageInput) -> torch.Tensor:
    group = (torch.ones_like(batch.group_index_S).cumsum(0) - 1) // 3
    return centered(replace(batch, group_index_S=group))


def scaled_by_the_first(batch: AdvantageInput) -> torch.Tensor:
    """By what the first group of the step has, wherever it is."""
    first = batch.group_index_S == 0
    spread = batch.sum_over_ranks(batch.rewards_S[~first].square().sum())
    return centered(batch) / (spread + 1)


def by_the_groups_of_its_rank(batch: AdvantageInput) -> torch.Tensor:
    """Only several ranks tell it from a good one."""
    return centered(batch) * (1 + batch.group_index_S.unique().numel())


def divides_by_the_deviation(batch: AdvantageInput) -> torch.Tensor:
    given = torch.zeros_like(batch.rewards_S)
    for group in batch.group_index_S.unique():
        mine = batch.group_index_S == group
        given[mine] = (batch.rewards_S[mine] - batch.rewards_S[mine].mean()) / batch.rewards_S[mine].std()
    return given[batch.sample_index_T]


def estimate_in_place(batch: AdvantageInput) -> torch.Tensor:
    given = centered(batch)
    batch.rewards_S.sub_(batch.rewards_S.mean())
    return given


def counting() -> Estimator:
    calls = itertools.count(1)
    return lambda batch: centered(batch) * next(calls)


class OfValues:
    """A function as an estimator whose values are to become the rewards."""

    def __init__(self, function: Estimator) -> None:
        self._function = function

    def __call__(self, batch: AdvantageInput) -> torch.Tensor:
        return self._function(batch)

    def returns(self, batch: AdvantageInput) -> torch.Tensor:
        return batch.rewards_S[batch.sample_index_T]


def ratio(batch: CorrectionInput) -> torch.Tensor:
    return (batch.log_probs_T - batch.rollout_log_probs_T).exp()


def truncated(batch: CorrectionInput) -> CorrectionOutput:
    return CorrectionOutput(ratio(batch).clamp(max=2.0), batch.loss_mask_T, {"tis": ratio(batch).clamp(max=100.0)})


async def awaited_correction(batch: CorrectionInput) -> CorrectionOutput:
    return truncated(batch)


def negative(batch: CorrectionInput) -> CorrectionOutput:
    return CorrectionOutput(-ratio(batch).clamp(max=2.0), batch.loss_mask_T)


def unmasks(batch: CorrectionInput) -> CorrectionOutput:
    return CorrectionOutput(ratio(batch).clamp(max=2.0), torch.where(ratio(batch) == 1, batch.loss_mask_T, 1.0))


def halves(batch: CorrectionInput) -> CorrectionOutput:
    return CorrectionOutput(ratio(batch).clamp(max=2.0) / 2, batch.loss_mask_T)


def normalised(batch: CorrectionInput) -> CorrectionOutput:
    weights_T = ratio(batch).clamp(max=2.0)
    return CorrectionOutput(weights_T / weights_T.mean(), batch.loss_mask_T)


def correct_in_place(batch: CorrectionInput) -> CorrectionOutput:
    given = truncated(batch)
    batch.log_probs_T.add_(1.0)
    return given


def unbounded_weights(batch: CorrectionInput) -> CorrectionOutput:
    return CorrectionOutput(ratio(batch), batch.loss_mask_T)


def correct_on_the_cpu(batch: CorrectionInput) -> CorrectionOutput:
    given = truncated(batch)
    return CorrectionOutput(given.weights_T, given.loss_mask_T, {"half": torch.full((len(batch.loss_mask_T),), 0.5)})


def clipped(batch: LossInput) -> LossOutput:
    ratio_T = (batch.log_probs_T - batch.old_log_probs_T).clamp(-20, 20).exp()
    plain_T, held_T = -ratio_T * batch.advantages_T, -ratio_T.clamp(0.8, 1.2) * batch.advantages_T
    return LossOutput(torch.maximum(plain_T, held_T), {"ratio": ratio_T})


async def awaited(batch: LossInput) -> LossOutput:
    return clipped(batch)


def reduced(batch: LossInput) -> LossOutput:
    return LossOutput(clipped(batch).loss_T.mean())


def detached(batch: LossInput) -> LossOutput:
    return LossOutput(clipped(batch).loss_T.detach() + 0 * batch.log_probs_T)


def normalised_over_the_batch(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    return LossOutput(given.loss_T / (batch.advantages_T.abs().mean() + 1e-6), given.metrics_T)


def with_entropy(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    return LossOutput(given.loss_T + 0.1 * batch.log_probs_T, given.metrics_T)


def with_an_infinite_metric(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    return LossOutput(given.loss_T, {"loss": given.loss_T.detach() / 0})


def in_place(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    batch.loss_mask_T.mul_(0.5)
    return given


def upside_down(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    return LossOutput(-given.loss_T, given.metrics_T)


def counting_a_mean_as_zero(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    return replace(given, zero_without_advantage=frozenset({"ratio"}))


def unbounded(batch: LossInput) -> LossOutput:
    ratio_T = (5 * (batch.log_probs_T - batch.old_log_probs_T)).exp()
    return LossOutput(-ratio_T * batch.advantages_T)


def on_the_cpu(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    return LossOutput(given.loss_T * torch.ones(len(batch.log_probs_T)), given.metrics_T)


BAD: dict[str, Callable[[], object]] = {
    "ADV-001": lambda: awaited_estimate,
    "ADV-002": lambda: lambda batch: centered(batch)[:-1],
    "ADV-003": lambda: by_position,
    "ADV-004": lambda: scaled_by_the_first,
    "ADV-005": lambda: divides_by_the_deviation,
    "ADV-006": lambda: estimate_in_place,
    "ADV-007": counting,
    "ADV-008": lambda: lambda batch: -centered(batch),
    "ADV-009": lambda: lambda batch: centered(batch) + 0 * batch.rewards_S.max(),
    "ADV-010": lambda: by_the_groups_of_its_rank,
    "ADV-011": lambda: lambda batch: centered(batch),
    "ADV-012": lambda: estimate_on_the_cpu,
    "COR-001": lambda: awaited_correction,
    "COR-002": lambda: negative,
    "COR-004": lambda: halves,
    "COR-005": lambda: normalised,
    "COR-006": lambda: correct_in_place,
    "COR-007": lambda: unbounded_weights,
    "COR-008": lambda: correct_on_the_cpu,
    "LOS-001": lambda: awaited,
    "LOS-002": lambda: reduced,
    "LOS-003": lambda: detached,
    "LOS-004": lambda: normalised_over_the_batch,
    "LOS-005": lambda: with_entropy,
    "LOS-006": lambda: with_an_infinite_metric,
    "LOS-007": lambda: in_place,
    "LOS-008": lambda: upside_down,
    "LOS-009": lambda: unbounded,
    "LOS-010": lambda: on_the_cpu,
    "LOS-011": lambda: counting_a_mean_as_zero,
}
KINDS: dict[str, tuple[type[Contract], Callable[..., Spec[object]]]] = {
    "ADV": (AdvantageContract, AdvantageSpec),
    "COR": (CorrectionContract, CorrectionSpec),
    "LOS": (LossContract, LossSpec),
}


def held_to(
    contract: type[Contract], make: Callable[[], object], *, zero: bool = True, **promises: object
) -> type[Contract]:
    """The contract, of a choice whose factory calls `make`."""
    spec = dict(KINDS.values())[contract]
    promises |= {"zero_without_advantage": lambda settings: zero} if contract is LossContract else {}
    return type("Subject", (contract,), {"choice": spec("subject", lambda settings, setup: make(), **promises)})


def failing(contract: type[Contract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


@table(
    "contract",
    [
        held_to(AdvantageContract, lambda: OfValues(centered), uses_values=True),
        held_to(CorrectionContract, lambda: truncated),
        held_to(LossContract, lambda: clipped),
    ],
)
def test_a_good_one_keeps_the_contract(contract: type[Contract]) -> None:
    assert {result.status for result in contract.report()} == {CheckStatus.PASSED}


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == {identity for contract, _ in KINDS.values() for identity in contract.checks()}


@table("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str) -> None:
    promises = {"uses_values": True} if identity == "ADV-011" else {}
    assert failing(held_to(KINDS[identity[:3]][0], BAD[identity], **promises)) == {identity}


def test_a_correction_may_not_put_tokens_in() -> None:
    assert failing(held_to(CorrectionContract, lambda: unmasks)) == {"COR-002"}


def test_the_kit_gives_the_token_columns_that_an_estimator_reads() -> None:
    def reads(batch: AdvantageInput) -> torch.Tensor:
        return centered(batch) + batch.columns_T["turn"]

    assert (
        failing(held_to(AdvantageContract, lambda: reads, token_columns=("turn",)))
        == failing(held_to(AdvantageContract, lambda: centered))
        == set()
    )


def test_a_loss_that_does_not_promise_zero_is_not_held_to_it() -> None:
    results = {result.identity: result for result in held_to(LossContract, lambda: with_entropy, zero=False).report()}
    assert results["LOS-005"].status is CheckStatus.SKIPPED
    assert "zero_without_advantage is False" in results["LOS-005"].detail


def test_an_error_names_the_line_of_the_plugin_that_raised_it() -> None:
    (failed,) = (
        each for each in held_to(LossContract, lambda: on_the_cpu).report() if each.status is CheckStatus.FAILED
    )
    line = on_the_cpu.__code__.co_firstlineno + 2
    assert "aten.mul.Tensor of tensors on cpu and second_device:0" in failed.detail
    assert failed.detail.partition("\n")[0].endswith(f"(at {__file__}:{line})")


def test_indices_of_the_cpu_are_taken_as_gpus_take_them_and_nothing_else_is() -> None:
    def indexed(batch: LossInput) -> LossOutput:
        given = clipped(batch)
        kept = torch.arange(len(batch.log_probs_T))
        loss_T = given.loss_T[kept]
        loss_T[kept[:1]] = 0.0 * loss_T[:1]
        return LossOutput(loss_T, given.metrics_T)

    def numbers(batch: LossInput) -> LossOutput:
        given = clipped(batch)
        of_each = torch.ones(3)[batch.sample_index_T % 3]
        return LossOutput(given.loss_T * of_each, given.metrics_T)

    assert failing(held_to(LossContract, lambda: indexed)) == set()
    assert failing(held_to(LossContract, lambda: numbers)) == {"LOS-010"}


def likelihood(batch: LossInput) -> LossOutput:
    return LossOutput(-batch.log_probs_T)


def only_what_is_good(batch: LossInput) -> LossOutput:
    return LossOutput(-batch.advantages_T.clamp(min=0) * batch.log_probs_T)


def only_what_is_bad(batch: LossInput) -> LossOutput:
    return LossOutput(batch.advantages_T.clamp(min=0) * batch.log_probs_T)


@table(
    "function, status",
    [
        (clipped, CheckStatus.PASSED),
        (upside_down, CheckStatus.FAILED),
        (only_what_is_bad, CheckStatus.FAILED),
        (only_what_is_good, CheckStatus.SKIPPED),
        (likelihood, CheckStatus.SKIPPED),
    ],
)
def test_without_an_author_a_loss_that_follows_the_advantage_follows_it_upwards(
    function: Function, status: CheckStatus
) -> None:
    alone = type("Alone", (held_to(LossContract, lambda: function, zero=False),), {"automatic": True})
    assert alone.result("LOS-008").status is status
