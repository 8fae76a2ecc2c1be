"""CorrectionContract: what every off-policy correction must keep, COR-001 to COR-008.

Example:

    class TestTruncated(CorrectionContract):
        choice = "slime-train/tis"
"""

from dataclasses import fields
from typing import ClassVar
from unittest import SkipTest

from slime_core.roles import Correction, CorrectionInput, CorrectionOutput, CorrectionSpec
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_plain_def
from slime_testing.tensors.batches import correction_input, describe, equal, finite, is_column, need_torch

FAR = 20.0
"""How far sampler and trainer may be apart, in nats, in a run that goes badly."""


class CorrectionContract(RoleContract[CorrectionSpec]):
    """Inherit and name the correction."""

    kind = CorrectionSpec
    choice: ClassVar[str | CorrectionSpec]
    """The correction: a name for the catalog, or a spec."""
    neutral_on_policy: ClassVar[bool] = True
    """Whether it does nothing where sampler and trainer agree."""

    @check("COR-001")
    def test_the_factory_builds_a_plain_function(self) -> None:
        """Ranks are synchronous: the factory returns an object that is called, not awaited."""
        need_torch()
        require_plain_def(self._build(), "batch")

    @check("COR-002", needs=("COR-001",))
    def test_it_gives_a_weight_and_a_mask_for_each_token(self) -> None:
        """Return `CorrectionOutput(weights_T, loss_mask_T)`, float tensors [T]; weights are finite and not negative."""
        self._correct(correction_input())

    @check("COR-003", needs=("COR-002",))
    def test_the_mask_only_takes_tokens_out(self) -> None:
        """A token that was masked is a tool's or the prompt's: it must not come back into the loss."""
        batch = correction_input()
        mask = self._correct(batch).loss_mask_T
        require(bool(((mask == 0) | (mask == 1)).all()), f"the mask holds other values than 0 and 1: {mask.tolist()}")
        require(bool((mask <= batch.loss_mask_T).all()), "the mask holds tokens that were not trained on before")

    @check("COR-004", needs=("COR-002",))
    def test_where_sampler_and_trainer_agree_nothing_changes(self) -> None:
        """On policy there is nothing to correct. If it always reweighs, set neutral_on_policy = False."""
        if not self.neutral_on_policy:
            raise SkipTest("the contract says neutral_on_policy = False")
        batch = correction_input(drift=0.0)
        output = self._correct(batch)
        trained = batch.loss_mask_T > 0
        weights = output.weights_T[trained]
        require(equal(weights, weights.new_ones(weights.shape)), f"weights are {weights.tolist()}; expected 1")
        require(equal(output.loss_mask_T, batch.loss_mask_T), "it masked tokens")

    @check("COR-005", needs=("COR-002",))
    def test_samples_do_not_influence_each_other(self) -> None:
        """Which samples share a micro-batch is chance: what happens to two samples is what happens to each alone."""
        import torch

        together = self._correct(correction_input((0, 2)))
        alone = [self._correct(correction_input((sample,))) for sample in (0, 2)]
        for name in ("weights_T", "loss_mask_T"):
            apart = torch.cat([getattr(each, name) for each in alone])
            require(equal(getattr(together, name), apart), f"{name} of samples in one micro-batch is not as alone")

    @check("COR-006", needs=("COR-001",))
    def test_it_leaves_the_batch_as_it_was(self) -> None:
        """The loss and the metrics read the same tensors: no in-place operation on what was given."""
        batch, before = correction_input(), correction_input()
        self._build()(batch)
        for field in fields(CorrectionInput):
            require(equal(getattr(before, field.name), getattr(batch, field.name)), f"it changed {field.name}")

    @check("COR-007", needs=("COR-001",))
    def test_far_off_policy_it_stays_finite(self) -> None:
        """This is what it is for: at ratios of exp(20) weights are bounded or the token is masked."""
        for drift in (FAR, -FAR):
            output = self._build()(correction_input(drift=drift))
            trained = output.loss_mask_T > 0
            require(finite(output.weights_T[trained]), f"{drift:+g} nats off the weights are not finite")
            largest = float(output.weights_T[trained].max()) if bool(trained.any()) else 0.0
            require(largest < 1e6, f"{drift:+g} nats off a weight is {largest:g}")

    @check("COR-008", needs=("COR-002",))
    def test_it_computes_where_its_batch_is(self) -> None:
        """GPUs refuse tensors of the CPU: make new ones by `zeros_like`, `new_zeros` or `device=`, never bare."""
        from slime_testing.tensors.elsewhere import back, moved

        here, there = self._correct(correction_input()), self._build()(moved(correction_input()))
        for name in ("weights_T", "loss_mask_T"):
            same = equal(back(getattr(there, name)), getattr(here, name))
            require(same, f"on another device it gave another {name}")
        for values in there.metrics_T.values():
            back(values)

    def _build(self) -> Correction:
        return self.spec.factory(self.validated(), self.setup())

    def _correct(self, batch: CorrectionInput) -> CorrectionOutput:
        output: object = self._build()(batch)
        require(isinstance(output, CorrectionOutput), f"expected a CorrectionOutput, got {describe(output)}")
        assert isinstance(output, CorrectionOutput)
        count = len(batch.log_probs_T)
        columns = {"weights_T": output.weights_T, "loss_mask_T": output.loss_mask_T, **output.metrics_T}
        for name, values in columns.items():
            require(is_column(values, count), f"{name}: expected a float tensor [{count}], got {describe(values)}")
            require(finite(values), f"{name} is not finite: {values.tolist()}")
        require(bool((output.weights_T >= 0).all()), f"weights are negative: {output.weights_T.tolist()}")
        return output
