"""The trainer contract: the core's own local trainer keeps it, and ranks that are bad in one way each do not."""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slime_core.local.rank import LocalRank
from slime_core.roles import (
    RankSetup,
    SampleField,
    StepResult,
    TrainBatch,
    TrainerRank,
    TrainerSpec,
    WeightSlot,
)
from slime_core.testing import CheckStatus
from slime_core.testing.tensors.trainer import TrainerContract
from tests.ranks import rank_setup


class AnsweringNothing(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        super().train_step(batch)
        return None  # type: ignore[return-value]


class WithoutSave:
    def __init__(self, rank: int, world_size: int, setup: RankSetup) -> None:
        self.weight_slots = self.train_step = self.weights = self.load = print


class WithGaps(LocalRank):
    def weight_slots(self) -> Sequence[WeightSlot]:
        first, *others = super().weight_slots()
        return [first, *(replace(slot, offset=slot.offset + 8) for slot in others)]


class Idle(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        before = [(tensor, tensor.clone()) for _, tensor in self.weights()]
        result = super().train_step(batch)
        for tensor, value in before:
            tensor.copy_(value)
        return result


class Forgetful(LocalRank):
    def load(self, directory: Path) -> None:
        super().load(directory)
        self._optimizer.steps = 0


class Swallowing(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        if any(map(math.isnan, batch.rewards_S)):
            return StepResult({}, 0, {}, {})
        return super().train_step(batch)


class NeedingSamples(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        if not len(batch.rewards_S):
            raise ValueError("an empty batch")
        return super().train_step(batch)


class Unmasking(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        ones = array("b", [1] * len(batch.loss_mask_T))
        nothing_trained = len(batch.tokens_T) and not any(batch.loss_mask_T)
        return super().train_step(replace(batch, loss_mask_T=ones) if nothing_trained else batch)


class Unscored(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        return replace(super().train_step(batch), scores={})


class Pickling(LocalRank):
    def save(self, directory: Path) -> None:
        super().save(directory)
        torch.save({"steps": 1}, directory / "optim" / "extra.pt")

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return super().weights()


BAD: dict[str, type] = {
    "TRN-001": WithoutSave,
    "TRN-002": WithGaps,
    "TRN-003": Idle,
    "TRN-004": Forgetful,
    "TRN-005": Swallowing,
    "TRN-006": NeedingSamples,
    "TRN-007": Unmasking,
    "TRN-008": Unscored,
    "TRN-009": Pickling,
}


class Reading(LocalRank):
    """Wants its field of every sample, and that samples may lack it."""

    def train_step(self, batch: TrainBatch) -> StepResult:
        brought = batch.fields_S[SampleField.ROLLOUT_ROUTED_EXPERTS]
        assert brought == (None,) * len(batch.rewards_S)
        return super().train_step(batch)


def contract_of(rank: type, setup: RankSetup, reads: frozenset[SampleField] = frozenset()) -> type[TrainerContract]:
    def factory(number: int, world_size: int, setup: RankSetup) -> TrainerRank:
        return rank(number, world_size, setup)  # type: ignore[no-any-return]

    class Subject(TrainerContract):
        choice = TrainerSpec("subject", factory, reads=reads)

        def rank_setup(self) -> RankSetup:
            return setup

    return Subject


@pytest.fixture
def setup(tiny_model: Path, tmp_path: Path) -> RankSetup:
    """Of one rank."""
    return rank_setup(tiny_model, tmp_path)


def failing(contract: type[TrainerContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def test_the_local_trainer_keeps_the_contract(setup: RankSetup) -> None:
    results = contract_of(LocalRank, setup).report()
    assert {result.status for result in results} == {CheckStatus.PASSED}, results


def test_a_trainer_is_given_the_fields_that_it_reads(setup: RankSetup) -> None:
    reads = frozenset({SampleField.ROLLOUT_ROUTED_EXPERTS})
    assert failing(contract_of(Reading, setup, reads)) == set()
    assert "TRN-003" in failing(contract_of(Reading, setup))


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == TrainerContract.checks().keys()


@pytest.mark.parametrize("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str, setup: RankSetup) -> None:
    assert failing(contract_of(BAD[identity], setup)) == {identity}


def test_a_step_that_answers_nothing_is_named(setup: RankSetup) -> None:
    results = {result.identity: result for result in contract_of(AnsweringNothing, setup).report()}
    assert "train_step returned a NoneType; expected a StepResult" in results["TRN-003"].detail


def test_without_a_setup_every_check_says_what_is_needed() -> None:
    class Subject(TrainerContract):
        choice = "slime-core/local"

    for result in Subject.report():
        assert result.status is CheckStatus.SKIPPED
        assert "define it" in result.detail or result.detail.startswith("not run")
