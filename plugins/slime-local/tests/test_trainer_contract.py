"""The trainer contract: the core's own local trainer keeps it, and ranks that are bad in one way each do not."""

import math
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import bad_trainers
import pytest
import torch
from safetensors.torch import load_file, save_file

from slime_core.errors import ModelError
from slime_core.roles import RankSetup, StepResult, TrainBatch, TrainerRank, TrainerSpec, WeightSlot
from slime_local.optimizer import FlatAdamW
from slime_local.rank import LocalRank
from slime_testing import CheckStatus
from slime_testing.tensors.trainer import TrainerContract
from tests.ranks import rank_setup
from tests.tables import table


class WithoutSave:
    def __init__(self, rank: int, world_size: int, setup: RankSetup) -> None:
        self.weight_slots = self.train_step = self.weights = self.load = print


class PromisingMore(LocalRank):
    def weight_slots(self) -> Sequence[WeightSlot]:
        return [*super().weight_slots(), WeightSlot("lm_head.weight", (3, 4))]


class Idle(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        before = [(tensor, tensor.clone()) for _, tensor in self.weights()]
        result = super().train_step(batch)
        for tensor, value in before:
            tensor.copy_(value)
        return result


class Forgetful(LocalRank):
    def load(self, directory: Path) -> None:
        with tempfile.TemporaryDirectory() as aside:
            tensors = load_file(directory / "optim" / FlatAdamW.FILE) | {"steps": torch.tensor(0)}
            (Path(aside) / "optim").mkdir()
            save_file(tensors, Path(aside) / "optim" / FlatAdamW.FILE)
            super().load(Path(aside))


class Swallowing(LocalRank):
    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        if not any(map(math.isnan, batches[0].rewards_S)):
            super().begin_rollout(batches)

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
    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        (batch,) = batches
        ones = array("b", [1] * len(batch.loss_mask_T))
        nothing_trained = len(batch.tokens_T) and not any(batch.loss_mask_T)
        super().begin_rollout([replace(batch, loss_mask_T=ones) if nothing_trained else batch])


class Unscored(LocalRank):
    def train_step(self, batch: TrainBatch) -> StepResult:
        return replace(super().train_step(batch), scores={})


class Pickling(LocalRank):
    def save(self, directory: Path, *, hf: bool = True) -> None:
        super().save(directory, hf=hf)
        torch.save({"steps": 1}, directory / "hf" / "extra.pt")

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return super().weights()


class CopyingNothing(LocalRank):
    """Writes its files later, of the weights that it has by then."""

    def save(self, directory: Path, *, hf: bool = True) -> None:
        self._target = directory

    def finish_save(self, *, wait: bool) -> bool:
        super().save(self._target)
        return True


BAD: dict[type, str] = {
    WithoutSave: "TRN-001",
    PromisingMore: "TRN-002",
    Idle: "TRN-003",
    Unscored: "TRN-003",
    Forgetful: "TRN-004",
    CopyingNothing: "TRN-004",
    Swallowing: "TRN-005",
    NeedingSamples: "TRN-006",
    Unmasking: "TRN-007",
    Pickling: "TRN-009",
}


def contract_of(rank: type, setup: RankSetup) -> type[TrainerContract]:
    def factory(number: int, world_size: int, setup: RankSetup) -> TrainerRank:
        return rank(number, world_size, setup)  # type: ignore[no-any-return]

    class Subject(TrainerContract):
        choice = TrainerSpec("subject", factory)

        def rank_setup(self) -> RankSetup:
            return setup

    return Subject


def failing(contract: type[TrainerContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


class Local(TrainerContract):
    """The trainer as it is installed, on the kit's own model."""

    choice = "slime-local/local"
    settings: ClassVar[Mapping[str, object]] = {"ranks": 1}
    multi_rank_settings: ClassVar[Mapping[str, object]] = {"ranks": 2}
    other_layout_settings: ClassVar[Mapping[str, object] | None] = {"ranks": 1}


def test_the_local_trainer_keeps_the_contract() -> None:
    results = Local.report()
    assert {result.status for result in results} == {CheckStatus.PASSED}, results


SEVERAL: dict[str, TrainerSpec] = {
    "TRN-010": bad_trainers.DISAGREEING,
    "TRN-011": bad_trainers.KEEPING,
    "TRN-012": bad_trainers.SAVING,
    "TRN-013": bad_trainers.GOING_ON,
}


@pytest.mark.long
@pytest.mark.parametrize("identity", SEVERAL)
def test_each_mutant_of_several_ranks_is_caught_by_its_own_check(identity: str) -> None:
    class Subject(Local):
        choice = SEVERAL[identity]

    assert failing(Subject) == {identity}


def test_there_is_a_mutant_for_every_check() -> None:
    assert {*BAD.values(), *SEVERAL} == TrainerContract.checks().keys()


@table("rank", BAD)
def test_each_mutant_is_caught_by_its_own_check(rank: type, tiny_model: Path, tmp_path: Path) -> None:
    setup = rank_setup(tiny_model, Path(tempfile.mkdtemp(dir=tmp_path)))
    assert failing(contract_of(rank, setup)) == {BAD[rank]}


def test_trainer_of_other_models_is_skipped() -> None:
    def refusing(number: int, world_size: int, setup: RankSetup) -> TrainerRank:
        raise ModelError("only of bigrams")

    class Subject(TrainerContract):
        choice = TrainerSpec("refusing", refusing)
        automatic = True

    found = Subject.result("TRN-001")
    assert found.status is CheckStatus.SKIPPED
    assert found.detail == "needs the author's `rank_setup`: it does not support the kit's model: only of bigrams"
