"""LossContract: what every loss must keep, LOS-001 to LOS-010.

Example:

    class TestReinforce(LossContract):
        choice = "slime-loss-reinforce/reinforce"
"""

from dataclasses import fields
from typing import TYPE_CHECKING, ClassVar
from unittest import SkipTest

from slime_core.roles import Loss, LossInput, LossOutput, LossSpec
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_plain_def
from slime_testing.tensors.batches import describe, equal, finite, is_column, loss_input, need_torch

if TYPE_CHECKING:
    import torch

FAR = 20.0
"""How far a log-prob may have moved, in nats, in a run that goes badly."""


class LossContract(RoleContract[LossSpec]):
    """Inherit and name the loss."""

    kind = LossSpec
    choice: ClassVar[str | LossSpec]
    """The loss: a name for the catalog, or a spec."""
    policy_gradient: ClassVar[bool | None] = None
    """Whether a positive advantage makes its token likelier, as most do; False for likelihood training and the like."""

    @check("LOS-001")
    def test_the_factory_builds_a_plain_function(self) -> None:
        """Ranks are synchronous: the factory returns an object that is called, not awaited."""
        need_torch()
        require_plain_def(self._build(), "batch")

    @check("LOS-002", needs=("LOS-001",))
    def test_it_gives_one_finite_loss_a_token(self) -> None:
        """Return `LossOutput(loss_T)`, a float tensor [T], not reduced: only the trainer knows the denominators."""
        self._loss(loss_input())

    @check("LOS-003", needs=("LOS-002",))
    def test_the_gradient_reaches_the_log_probs(self) -> None:
        """Whatever is detached does not learn: `loss_T` is a function of `log_probs_T`, with a finite gradient."""
        gradient = self._gradient(loss_input(drift=0.0))
        require(finite(gradient), f"the gradient is not finite: {gradient.tolist()}")
        require(bool(gradient.abs().sum() > 0), "the gradient of log_probs_T is zero everywhere")

    @check("LOS-004", needs=("LOS-002",))
    def test_samples_do_not_influence_each_other(self) -> None:
        """Which samples share a micro-batch is chance: the losses of two samples are those of each alone."""
        import torch

        together = self._loss(loss_input((0, 2)))
        alone = torch.cat([self._loss(loss_input((sample,))) for sample in (0, 2)])
        require(equal(together, alone), "samples in one micro-batch got other losses than alone")

    @check("LOS-005", needs=("LOS-002",))
    def test_zero_without_advantage_is_true(self) -> None:
        """Where the spec says so, the trainer does not compute such samples at all: loss and gradient must be 0."""
        if not self.spec.zero_without_advantage(self.validated()):
            raise SkipTest("the spec's zero_without_advantage is False with these settings")
        batch = loss_input(advantage=0.0)
        loss = self._loss(batch)
        require(not loss.detach().abs().sum(), f"at advantage 0 the loss is {loss.tolist()}")
        gradient = self._gradient(loss_input(advantage=0.0))
        require(not gradient.abs().sum(), f"at advantage 0 the gradient is {gradient.tolist()}")

    @check("LOS-011", needs=("LOS-006",))
    def test_metrics_that_are_zero_without_an_advantage_are(self) -> None:
        """`LossOutput.zero_without_advantage` names metrics whose means count tokens that nobody computed, as 0."""
        output = self._build()(loss_input(advantage=0.0))
        unknown = sorted(output.zero_without_advantage - output.metrics_T.keys())
        require(not unknown, f"zero_without_advantage names {', '.join(unknown)}, which is not among its metrics")
        for name in sorted(output.zero_without_advantage):
            values = output.metrics_T[name]
            require(not values.detach().abs().sum(), f"at advantage 0 metric {name} is {values.tolist()}")

    @check("LOS-006", needs=("LOS-002",))
    def test_metrics_are_one_number_a_token(self) -> None:
        """The trainer averages `metrics_T` over trained tokens: give tensors [T], finite, named in plain letters."""
        batch = loss_input()
        for name, values in self._build()(batch).metrics_T.items():
            require(name.replace("_", "").isalnum(), f"metric {name!r}: use letters, digits and '_'")
            count = len(batch.log_probs_T)
            require(
                is_column(values, count), f"metric {name}: expected a float tensor [{count}], got {describe(values)}"
            )
            require(finite(values), f"metric {name} is not finite: {values.tolist()}")

    @check("LOS-007", needs=("LOS-001",))
    def test_it_leaves_the_batch_as_it_was(self) -> None:
        """Corrections and metrics read the same tensors: no in-place operation on what was given."""
        batch, before = loss_input(), loss_input()
        self._build()(batch)
        for field in fields(LossInput):
            one, other = getattr(before, field.name), getattr(batch, field.name)
            same = one == other if isinstance(one, dict) else equal(one.detach(), other.detach())
            require(same, f"it changed {field.name}")

    @check("LOS-008", needs=("LOS-003",), decisive=True)
    def test_a_good_token_becomes_likelier(self) -> None:
        """On policy, a positive advantage needs a negative gradient. For other losses set policy_gradient = False.

        Without an author a loss is judged by it whose gradient follows the advantage at all.
        """
        if self.policy_gradient is False:
            raise SkipTest("the contract says policy_gradient = False")
        totals = {
            advantage: float(self._gradient(loss_input(drift=0.0, advantage=advantage)).sum())
            for advantage in (1.0, -1.0)
        }
        told = f"the gradient of log_probs_T is {totals[1.0]:g} at advantage 1 and {totals[-1.0]:g} at advantage -1"
        require(totals[1.0] <= totals[-1.0], f"{told}; a better token must become likelier: expected it the other way")
        if self.automatic and not totals[1.0] < 0 < totals[-1.0]:
            raise SkipTest(f"needs the author's `policy_gradient`, as {told}")
        require(totals[1.0] < 0 < totals[-1.0], f"{told}; expected it negative, then positive")

    @check("LOS-009", needs=("LOS-002",))
    def test_far_off_policy_it_stays_finite(self) -> None:
        """In a bad step ratios reach exp(20): bound what is exponentiated, or the run ends with NaN weights."""
        for drift in (FAR, -FAR):
            gradient = self._gradient(loss_input(drift=drift))
            require(finite(gradient), f"with log-probs {drift:+g} nats off the gradient is not finite")

    @check("LOS-010", needs=("LOS-003", "LOS-006"))
    def test_it_computes_where_its_batch_is(self) -> None:
        """GPUs refuse tensors of the CPU: make new ones by `zeros_like`, `new_zeros` or `device=`, never bare."""
        from slime_testing.tensors.elsewhere import back, moved

        output = self._build()(moved(loss_input()))
        here = self._build()(loss_input())
        require(equal(back(output.loss_T), here.loss_T.detach()), "on another device it gave other losses")
        for values in output.metrics_T.values():
            back(values)
        gradient = back(self._gradient(moved(loss_input())))
        require(equal(gradient, self._gradient(loss_input())), "on another device the gradient is another")

    def _build(self) -> Loss:
        return self.spec.factory(self.validated(), self.setup())

    def _loss(self, batch: LossInput) -> "torch.Tensor":
        output: object = self._build()(batch)
        require(isinstance(output, LossOutput), f"expected a LossOutput, got {describe(output)}")
        assert isinstance(output, LossOutput)
        count = len(batch.log_probs_T)
        loss = output.loss_T
        require(is_column(loss, count), f"expected loss_T as a float tensor [{count}], got {describe(loss)}")
        if output.regularizer_T is not None:
            require(
                is_column(output.regularizer_T, count),
                f"expected regularizer_T as a float tensor [{count}], got {describe(output.regularizer_T)}",
            )
            loss = loss + output.regularizer_T
        require(finite(loss), f"losses are not finite: {loss.tolist()}")
        return loss

    def _gradient(self, batch: LossInput) -> "torch.Tensor":
        """Gradient [T] of the summed loss of the trained tokens."""
        import torch

        loss = (self._loss(batch) * batch.loss_mask_T).sum()
        require(loss.requires_grad, "loss_T does not depend on log_probs_T")
        with torch.autograd.set_multithreading_enabled(False):  # see elsewhere.register
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
        gradient = batch.log_probs_T.grad
        return torch.zeros_like(batch.log_probs_T) if gradient is None else gradient
