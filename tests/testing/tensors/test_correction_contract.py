"""The correction contract against corrections that are bad in one way each."""

from collections.abc import Callable

import torch

from slime_core.roles import Correction, CorrectionInput, CorrectionOutput, CorrectionSpec
from slime_testing import CheckStatus
from slime_testing.tensors.algorithm import CorrectionContract
from tests.tables import table


def ratio(batch: CorrectionInput) -> torch.Tensor:
    return (batch.log_probs_T - batch.rollout_log_probs_T).exp()


def truncated(batch: CorrectionInput) -> CorrectionOutput:
    return CorrectionOutput(ratio(batch).clamp(max=2.0), batch.loss_mask_T, {"tis": ratio(batch).clamp(max=100.0)})


async def awaited(batch: CorrectionInput) -> CorrectionOutput:
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


def in_place(batch: CorrectionInput) -> CorrectionOutput:
    given = truncated(batch)
    batch.log_probs_T.add_(1.0)
    return given


def unbounded(batch: CorrectionInput) -> CorrectionOutput:
    return CorrectionOutput(ratio(batch), batch.loss_mask_T)


def on_the_cpu(batch: CorrectionInput) -> CorrectionOutput:
    given = truncated(batch)
    return CorrectionOutput(given.weights_T, given.loss_mask_T, {"half": torch.full((len(batch.loss_mask_T),), 0.5)})


BAD: dict[str, Callable[..., object]] = {
    "COR-001": awaited,
    "COR-002": negative,
    "COR-003": unmasks,
    "COR-004": halves,
    "COR-005": normalised,
    "COR-006": in_place,
    "COR-007": unbounded,
    "COR-008": on_the_cpu,
}


def contract_of(function: Callable[..., object]) -> type[CorrectionContract]:
    def factory(settings: object, setup: object) -> Correction:
        return function  # type: ignore[return-value]

    class Subject(CorrectionContract):
        choice = CorrectionSpec("subject", factory)

    return Subject


def failing(contract: type[CorrectionContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def test_a_good_correction_keeps_the_contract() -> None:
    assert {result.status for result in contract_of(truncated).report()} == {CheckStatus.PASSED}


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == CorrectionContract.checks().keys()


@table("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str) -> None:
    assert failing(contract_of(BAD[identity])) == {identity}
