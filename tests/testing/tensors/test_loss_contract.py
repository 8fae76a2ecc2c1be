"""The loss contract against losses that are bad in one way each."""

from collections.abc import Callable
from dataclasses import replace

import torch

from slime_core.roles import Loss, LossInput, LossOutput, LossSpec
from slime_testing import CheckStatus
from slime_testing.tensors.algorithm import LossContract
from tests.tables import table

Function = Callable[[LossInput], LossOutput]


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


def with_a_scalar_metric(batch: LossInput) -> LossOutput:
    given = clipped(batch)
    return LossOutput(given.loss_T, {"loss": given.loss_T.mean()})


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


BAD: dict[str, Callable[..., object]] = {
    "LOS-001": awaited,
    "LOS-002": reduced,
    "LOS-003": detached,
    "LOS-004": normalised_over_the_batch,
    "LOS-005": with_entropy,
    "LOS-006": with_a_scalar_metric,
    "LOS-007": in_place,
    "LOS-008": upside_down,
    "LOS-009": unbounded,
    "LOS-010": on_the_cpu,
    "LOS-011": counting_a_mean_as_zero,
}


def contract_of(function: Callable[..., object], *, zero: bool = True) -> type[LossContract]:
    def factory(settings: object, setup: object) -> Loss:
        return function  # type: ignore[return-value]

    class Subject(LossContract):
        choice = LossSpec("subject", factory, zero_without_advantage=lambda settings: zero)

    return Subject


def failing(contract: type[LossContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def test_a_good_loss_keeps_the_contract() -> None:
    assert {result.status for result in contract_of(clipped).report()} == {CheckStatus.PASSED}


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == LossContract.checks().keys()


@table("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str) -> None:
    assert failing(contract_of(BAD[identity])) == {identity}


def test_a_loss_that_does_not_promise_zero_is_not_held_to_it() -> None:
    results = {result.identity: result for result in contract_of(with_entropy, zero=False).report()}
    assert results["LOS-005"].status is CheckStatus.SKIPPED
    assert "zero_without_advantage is False" in results["LOS-005"].detail


def test_an_error_names_the_line_of_the_plugin_that_raised_it() -> None:
    (failed,) = (each for each in contract_of(on_the_cpu).report() if each.status is CheckStatus.FAILED)
    line = on_the_cpu.__code__.co_firstlineno + 2
    assert "aten.mul.Tensor of tensors on cpu and elsewhere:0" in failed.detail
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

    assert failing(contract_of(indexed)) == set()
    assert failing(contract_of(numbers)) == {"LOS-010"}


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
    alone = type("Alone", (contract_of(function, zero=False),), {"automatic": True})
    assert alone.result("LOS-008").status is status
