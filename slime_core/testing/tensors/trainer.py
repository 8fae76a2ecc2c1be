"""TrainerContract: what every trainer's rank must keep, TRN-001 to TRN-009; one rank, in this process, on a tiny model.

Example:

    class TestMine(TrainerContract):
        choice = "slime-trainer-mine/mine"

        def rank_setup(self) -> RankSetup:
            return RankSetup(hf_checkpoint=TINY_MODEL, ...)
"""

import math
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast
from unittest import SkipTest

from slime_core.errors import ContractError, NonFiniteError
from slime_core.roles import RankSetup, StepResult, TrainBatch, TrainerFactory, TrainerRank, TrainerSpec
from slime_core.testing.contract import check, require
from slime_core.testing.role import RoleContract
from slime_core.testing.tensors.batches import equal, finite, need_torch

if TYPE_CHECKING:
    import torch

METHODS = ("weight_slots", "train_step", "weights", "save", "load")


class TrainerContract(RoleContract[TrainerSpec]):
    """Inherit, name the trainer, say what a rank is built from."""

    kind = TrainerSpec
    choice: ClassVar[str | TrainerSpec]
    """The trainer: a name for the catalog, or a spec."""
    exact: ClassVar[bool] = True
    """Whether a loaded rank goes on bit for bit; False for kernels that add in any order."""

    def rank_setup(self) -> RankSetup:
        """What a rank of a tiny model is built from; weight decay 0, `lr` above 0.

        Raises:
            SkipTest: the author has not said, and the kit has no model of its own.
        """
        raise SkipTest("needs the author's `rank_setup`: inherit TrainerContract and define it")

    @check("TRN-001")
    def test_the_factory_builds_a_rank(self) -> None:
        """The core calls `factory(rank, world_size, setup)` in the rank's process, then these methods, plain `def`."""
        rank: object = self._rank()
        missing = [name for name in METHODS if not callable(getattr(rank, name, None))]
        require(not missing, f"{type(rank).__name__} has no {', '.join(missing)}")

    @check("TRN-002", needs=("TRN-001",))
    def test_the_slots_describe_the_weights(self) -> None:
        """`weight_slots` is the layout of the flat vector: names, shapes, offsets without gaps, in `weights`' order."""
        rank = self._rank()
        offset = 0
        slots = list(rank.weight_slots())
        require(slots, "there are no slots")
        for slot, (name, tensor) in zip(slots, rank.weights(), strict=True):
            require(slot.name == name, f"slot {slot.name!r} is followed by the weights of {name!r}")
            require(slot.shape == tuple(tensor.shape), f"{name}: slot {slot.shape}, weights {tuple(tensor.shape)}")
            require(slot.offset == offset, f"{name}: offset {slot.offset}; the slots before it end at {offset}")
            offset += slot.numel

    @check("TRN-003", needs=("TRN-001",))
    def test_a_step_changes_the_weights_and_reports(self) -> None:
        """`train_step` applies one optimizer step: sums over the tokens it computed, equal scalars, finite."""
        rank = self._rank()
        before = _copied(rank)
        result = self._step(rank, batch())
        require(not all(equal(one, other) for one, other in zip(before, _copied(rank), strict=True)), "nothing changed")
        for name, value in {**result.metrics, **result.scalars}.items():
            require(math.isfinite(value), f"{name} is {value}")
        wanted = sum(batch().loss_mask_T)
        require(0 < result.tokens <= wanted, f"it reports {result.tokens} tokens of {wanted} trained ones")

    @check("TRN-004", needs=("TRN-003",))
    def test_a_saved_rank_goes_on_where_it_was(self) -> None:
        """Weights, moments, schedule and step count are one state: a resume must not be told from no interruption."""
        one, other = self._rank(), self._rank()
        self._step(one, batch())
        with tempfile.TemporaryDirectory() as folder:
            one.save(Path(folder))
            self._step(one, batch())
            other.load(Path(folder))
            self._step(other, batch())
        for (name, mine), (_, theirs) in zip(one.weights(), other.weights(), strict=True):
            same = bool((mine == theirs).all()) if self.exact else equal(mine, theirs)
            require(same, f"after save, load and one step {name} is not as without the interruption")

    @check("TRN-005", needs=("TRN-003",))
    def test_what_is_not_finite_stops_before_the_weights(self) -> None:
        """Raise `NonFiniteError` (or name the role it came from) before the optimizer moves: NaN weights end a run."""
        rank = self._rank()
        before = _copied(rank)
        poisoned = replace(batch(), rewards_S=array("d", [math.nan, 1.0, 0.0, 0.0]))
        try:
            rank.train_step(self._with_fields(poisoned))
        except (NonFiniteError, ContractError):
            pass
        else:
            raise AssertionError("a reward of NaN went through; expected NonFiniteError")
        after = _copied(rank)
        require(all(finite(each) for each in after), "the weights are not finite any more")
        require(all(equal(one, other) for one, other in zip(before, after, strict=True)), "the weights changed")

    @check("TRN-006", needs=("TRN-001",))
    def test_a_rank_without_samples_takes_part(self) -> None:
        """A step may have fewer groups than ranks: an empty share is a step with a gradient of zero."""
        result = self._step(self._rank(), empty_batch())
        require(result.tokens == 0, f"it reports {result.tokens} tokens of an empty share")

    @check("TRN-007", needs=("TRN-003",))
    def test_masked_tokens_are_not_trained_on(self) -> None:
        """The loss mask decides: with a mask of zeros the gradient is zero, and without decay nothing moves."""
        rank = self._rank()
        before = _copied(rank)
        masked = replace(batch(), loss_mask_T=array("b", [0] * len(batch().tokens_T)))
        self._step(rank, replace(masked, step_tokens=1, step_samples=1))
        same = all(equal(one, other) for one, other in zip(before, _copied(rank), strict=True))
        require(same, "a step without a single trained token changed the weights")

    @check("TRN-008", needs=("TRN-003",))
    def test_every_group_gets_its_score(self) -> None:
        """Buffers learn from `scores`: the mean absolute advantage of each of the rank's groups, by `group_index_S`."""
        result = self._step(self._rank(), batch())
        groups = set(batch().group_index_S)
        require(set(result.scores) == groups, f"scores of groups {sorted(result.scores)}; expected {sorted(groups)}")
        require(all(map(math.isfinite, result.scores.values())), f"scores are not finite: {dict(result.scores)}")

    @check("TRN-009", needs=("TRN-001",))
    def test_it_saves_a_model_that_others_read(self) -> None:
        """A checkpoint's `hf/` is the model in Hugging Face format: config.json and safetensors, no pickle."""
        with tempfile.TemporaryDirectory() as folder:
            self._rank().save(Path(folder))
            names = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
        require("hf/config.json" in names, f"there is no hf/config.json among {', '.join(names) or 'nothing'}")
        require(
            any(name.startswith("hf/") and name.endswith(".safetensors") for name in names), "no safetensors in hf/"
        )
        pickled = [name for name in names if name.endswith((".pt", ".pth", ".bin", ".pkl"))]
        require(not pickled, f"pickle can run code when it is read: {', '.join(pickled)}")

    def _rank(self) -> TrainerRank:
        need_torch()
        return cast(TrainerFactory, self.spec.factory)(0, 1, self.rank_setup())

    def _step(self, rank: TrainerRank, share: TrainBatch) -> StepResult:
        result: object = rank.train_step(self._with_fields(share))
        require(isinstance(result, StepResult), f"train_step returned a {type(result).__name__}; expected a StepResult")
        return cast(StepResult, result)

    def _with_fields(self, share: TrainBatch) -> TrainBatch:
        """What the spec says that the trainer reads, of samples that bring none of it."""
        none = (None,) * len(share.rewards_S)
        return replace(share, fields_S=dict.fromkeys(self.spec.reads, none))


def batch() -> TrainBatch:
    """Two groups of two samples, one prompt each, ids below 16."""
    return TrainBatch(
        prompts_P=((3, 4, 5), (6, 7)),
        prompt_index_S=array("i", [0, 0, 1, 1]),
        group_index_S=array("i", [0, 0, 1, 1]),
        rollout_index_S=array("i", [0, 1, 2, 3]),
        response_lengths_S=array("i", [2, 3, 1, 2]),
        rewards_S=array("d", [1.0, 0.0, 0.0, 1.0]),
        weights_S=array("d", [1.0] * 4),
        tokens_T=array("i", [8, 9, 10, 11, 12, 13, 14, 15]),
        loss_mask_T=array("b", [1, 1, 1, 0, 1, 1, 1, 1]),
        rollout_log_probs_T=array("f", [-2.0] * 8),
        step_tokens=7,
        step_samples=4,
    )


def empty_batch() -> TrainBatch:
    """A share without samples."""
    nothing, none = array("i"), array("d")
    return TrainBatch((), nothing, nothing, nothing, nothing, none, none, nothing, array("b"), array("f"), 7, 4)


def _copied(rank: TrainerRank) -> "list[torch.Tensor]":
    return list(_clones(rank))


def _clones(rank: TrainerRank) -> "Iterator[torch.Tensor]":
    for _, tensor in rank.weights():
        yield tensor.detach().clone()
