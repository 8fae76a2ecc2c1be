"""Contracts of losses (LOS), corrections (COR) and advantage estimators (ADV)."""

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from threading import BrokenBarrierError
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast
from unittest import SkipTest

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
    ValueAdvantage,
)
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_plain_def
from slime_testing.tensors.batches import (
    GROUPS,
    LENGTHS,
    REWARDS,
    advantage_input,
    correction_input,
    equal,
    finite,
    loss_input,
    need_torch,
)

if TYPE_CHECKING:
    import torch

    Total: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
    Work: TypeAlias = Callable[[Total], torch.Tensor]


class Ranks:
    """Runs several ranks as threads, and implements their `sum_over_ranks`."""

    def __init__(self, size: int) -> None:
        self._tensors: dict[int, torch.Tensor] = {}
        self._barrier = threading.Barrier(size, timeout=10)

    def run(self, works: "Sequence[Work]") -> "list[torch.Tensor]":
        """Results of the ranks' work; each work receives its `sum_over_ranks`.

        Raises:
            BrokenBarrierError: a rank called `sum_over_ranks` more often than another.
        """
        with ThreadPoolExecutor(len(works)) as pool:
            jobs = [pool.submit(self._job, rank, work) for rank, work in enumerate(works)]
        return [job.result() for job in jobs]

    def _job(self, rank: int, work: "Work") -> "torch.Tensor":
        def sum_over_ranks(tensor: "torch.Tensor") -> "torch.Tensor":
            self._tensors[rank] = tensor.clone()
            self._barrier.wait()
            first, *others = [self._tensors[each] for each in sorted(self._tensors)]
            self._barrier.wait()
            return sum(others, first)

        try:
            return work(sum_over_ranks)
        except Exception:
            self._barrier.abort()
            raise


SpecT = TypeVar("SpecT", bound=Spec[object])
FAR = 20.0
"""Change of log-probs in an unstable run, in nats."""


class TensorContract(RoleContract[SpecT]):
    """Base of the contracts of roles that compute on the trainer's ranks."""

    def _build(self) -> Callable[[Any], Any]:
        return cast(Callable[[Any], Any], self.spec.factory(self.make_settings(), self.setup()))

    def _require_plain(self) -> None:
        need_torch(and_train=True)
        require_plain_def(self._build(), "batch")

    def _require_unchanged(self, batch: Any) -> None:  # noqa: ANN401  # any of the roles' batches
        before = copy.deepcopy(batch)
        self._build()(batch)
        for field in fields(before):
            one, other = getattr(before, field.name), getattr(batch, field.name)
            if isinstance(one, dict):
                require(one.keys() == other.keys(), f"it changed batch.{field.name}")
            elif one is not None and not callable(one):
                require(equal(one.detach(), other.detach()), f"it changed batch.{field.name} in place")


class LossContract(TensorContract[LossSpec]):
    """Contract of losses: inherit it and set `choice`."""

    kind = LossSpec
    policy_gradient: ClassVar[bool | None] = None
    """Whether a positive advantage makes its token more likely. Set False for likelihood training, for example."""

    @check("LOS-001")
    def test_the_factory_builds_a_plain_function(self) -> None:
        """Ranks are synchronous. The factory returns a plain `def` with one argument, `batch`."""
        self._require_plain()

    @check("LOS-002", needs=("LOS-001",))
    def test_it_returns_one_finite_loss_per_token(self) -> None:
        """Return `LossOutput(loss_T)`, a float tensor [T], without reduction: the trainer knows the denominators."""
        self._loss(loss_input())

    @check("LOS-003", needs=("LOS-002",))
    def test_the_gradient_reaches_the_log_probs(self) -> None:
        """Compute `loss_T` from `log_probs_T` without `detach`, so that it has a finite gradient."""
        gradient = self._gradient(loss_input(drift=0.0))
        require(finite(gradient), f"the gradient of log_probs_T is not finite: {gradient.tolist()}")
        require(bool(gradient.abs().sum() > 0), "the gradient of log_probs_T is zero for every token")

    @check("LOS-004", needs=("LOS-002",))
    def test_samples_do_not_influence_each_other(self) -> None:
        """Micro-batches contain arbitrary samples. The losses of a sample must not depend on other samples."""
        import torch

        both = self._loss(loss_input((0, 2)))
        alone = torch.cat([self._loss(loss_input((sample,))) for sample in (0, 2)])
        require(equal(both, alone), "two samples in one micro-batch got other losses than each alone")

    @check("LOS-005", needs=("LOS-002",))
    def test_samples_without_advantage_have_zero_loss(self) -> None:
        """With `LossSpec.zero_without_advantage`, the trainer skips samples with advantage 0.

        So their loss and its gradient must be 0. Otherwise, do not set `zero_without_advantage`.
        """
        if not self.spec.zero_without_advantage(self.make_settings()):
            raise SkipTest("the spec's zero_without_advantage is False with these settings")
        batch = loss_input(advantage=0.0)
        loss = self._loss(batch)
        require(not loss.detach().abs().sum(), f"losses are {loss.tolist()} at advantage 0; expected 0")
        gradient = self._gradient(loss_input(advantage=0.0))
        require(not gradient.abs().sum(), f"the gradient is {gradient.tolist()} at advantage 0; expected 0")

    @check("LOS-011", needs=("LOS-006",))
    def test_declared_metrics_are_zero_without_advantage(self) -> None:
        """`LossOutput.zero_without_advantage` lists metrics that are 0 for tokens with advantage 0.

        The trainer skips such tokens and counts them as 0. Remove other metrics from the list.
        """
        output = self._build()(loss_input(advantage=0.0))
        unknown = sorted(output.zero_without_advantage - output.metrics_T.keys())
        require(not unknown, f"zero_without_advantage lists {', '.join(unknown)}, which metrics_T does not contain")
        for name in sorted(output.zero_without_advantage):
            values = output.metrics_T[name]
            require(not values.detach().abs().sum(), f"metric {name} is {values.tolist()} at advantage 0; expected 0")

    @check("LOS-006", needs=("LOS-002",))
    def test_metrics_are_finite_and_have_plain_names(self) -> None:
        """The trainer averages `metrics_T` over trained tokens. Return finite numbers; use letters, digits and `_`."""
        for name, values in self._output(loss_input()).metrics_T.items():
            require(name.replace("_", "").isalnum(), f"metric {name!r} may contain only letters, digits and '_'")
            require(finite(values), f"metric {name} is not finite: {values.tolist()}")

    @check("LOS-007", needs=("LOS-001",))
    def test_it_does_not_change_the_batch(self) -> None:
        """Corrections and metrics read the same tensors. Do not change them in place."""
        self._require_unchanged(loss_input())

    @check("LOS-008", needs=("LOS-003",), decisive=True)
    def test_a_token_with_positive_advantage_becomes_more_likely(self) -> None:
        """On policy, the gradient is negative for a positive advantage. For other losses set `policy_gradient = False`.

        `slime plugins check` applies it only to losses whose gradient has the sign of the negated advantage.
        """
        if self.policy_gradient is False:
            raise SkipTest("the contract sets policy_gradient = False")
        totals = {
            advantage: float(self._gradient(loss_input(drift=0.0, advantage=advantage)).sum())
            for advantage in (1.0, -1.0)
        }
        gradients = f"the gradient of log_probs_T is {totals[1.0]:g} at advantage 1, and {totals[-1.0]:g} at -1"
        require(totals[1.0] <= totals[-1.0], f"{gradients}; expected the opposite, so that good tokens become likelier")
        if self.automatic and not totals[1.0] < 0 < totals[-1.0]:
            raise SkipTest(f"needs the author's `policy_gradient`: {gradients}")
        require(totals[1.0] < 0 < totals[-1.0], f"{gradients}; expected a negative and a positive one")

    @check("LOS-009", needs=("LOS-002",))
    def test_it_stays_finite_far_off_policy(self) -> None:
        """In a bad step, ratios reach exp(20). Clamp exponents: otherwise weights become NaN."""
        for drift in (FAR, -FAR):
            gradient = self._gradient(loss_input(drift=drift))
            require(finite(gradient), f"the gradient is not finite if log-probs differ by {drift:+g} nats")

    @check("LOS-010", needs=("LOS-003", "LOS-006"))
    def test_it_computes_on_the_device_of_the_batch(self) -> None:
        """GPUs reject CPU tensors. Create tensors with `zeros_like`, `new_zeros` or `device=`."""
        from slime_testing.tensors.second_device import to_cpu, to_second_device

        output = self._build()(to_second_device(loss_input()))
        on_cpu = self._build()(loss_input())
        require(equal(to_cpu(output.loss_T), on_cpu.loss_T.detach()), "losses on another device differ from the CPU's")
        for values in output.metrics_T.values():
            to_cpu(values)
        gradient = to_cpu(self._gradient(to_second_device(loss_input())))
        require(equal(gradient, self._gradient(loss_input())), "the gradient on another device differs from the CPU's")

    def _output(self, batch: LossInput) -> LossOutput:
        from slime_train.checks import check_loss

        output: object = self._build()(batch)
        return check_loss(output, plugin=self.registered.plugin, tokens=len(batch.log_probs_T))

    def _loss(self, batch: LossInput) -> "torch.Tensor":
        output = self._output(batch)
        loss = output.loss_T if output.regularizer_T is None else output.loss_T + output.regularizer_T
        require(finite(loss), f"losses are {loss.tolist()}; expected finite values")
        return loss

    def _gradient(self, batch: LossInput) -> "torch.Tensor":
        import torch

        loss = (self._loss(batch) * batch.loss_mask_T).sum()
        require(loss.requires_grad, "loss_T has no gradient; compute it from log_probs_T without detach()")
        with torch.autograd.set_multithreading_enabled(False):  # see second_device.register
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own is untyped
        gradient = batch.log_probs_T.grad
        return torch.zeros_like(batch.log_probs_T) if gradient is None else gradient


class CorrectionContract(TensorContract[CorrectionSpec]):
    """Contract of corrections: inherit it and set `choice`."""

    kind = CorrectionSpec
    neutral_on_policy: ClassVar[bool] = True
    """Whether the correction changes nothing if engine and trainer compute equal log-probs."""

    @check("COR-001")
    def test_the_factory_builds_a_plain_function(self) -> None:
        """Ranks are synchronous. The factory returns a plain `def` with one argument, `batch`."""
        self._require_plain()

    @check("COR-002", needs=("COR-001",))
    def test_it_returns_a_weight_and_a_mask_per_token(self) -> None:
        """Return `CorrectionOutput(weights_T, loss_mask_T)`, float tensors [T]. Weights are finite and not negative.

        The mask contains 0 and 1. It may mask more tokens, but not unmask tokens of a tool or the prompt.
        """
        self._correct(correction_input())

    @check("COR-004", needs=("COR-002",))
    def test_it_changes_nothing_on_policy(self) -> None:
        """With equal log-probs, weights are 1. If the correction always reweights, set `neutral_on_policy = False`."""
        if not self.neutral_on_policy:
            raise SkipTest("the contract sets neutral_on_policy = False")
        batch = correction_input(drift=0.0)
        output = self._correct(batch)
        trained = batch.loss_mask_T > 0
        weights = output.weights_T[trained]
        ones = equal(weights, weights.new_ones(weights.shape))
        require(ones, f"weights are {weights.tolist()} with equal log-probs; expected 1")
        require(equal(output.loss_mask_T, batch.loss_mask_T), "it masked tokens whose log-probs are equal")

    @check("COR-005", needs=("COR-002",))
    def test_samples_do_not_influence_each_other(self) -> None:
        """Micro-batches contain arbitrary samples. The correction of a sample must not depend on other samples."""
        import torch

        both = self._correct(correction_input((0, 2)))
        alone = [self._correct(correction_input((sample,))) for sample in (0, 2)]
        for name in ("weights_T", "loss_mask_T"):
            expected = torch.cat([getattr(each, name) for each in alone])
            require(
                equal(getattr(both, name), expected), f"two samples in one micro-batch got another {name} than alone"
            )

    @check("COR-006", needs=("COR-001",))
    def test_it_does_not_change_the_batch(self) -> None:
        """The loss and the metrics read the same tensors. Do not change them in place."""
        self._require_unchanged(correction_input())

    @check("COR-007", needs=("COR-001",))
    def test_it_stays_finite_far_off_policy(self) -> None:
        """Corrections exist for this case. At ratios of exp(20), clamp the weight or mask the token."""
        for drift in (FAR, -FAR):
            output = self._build()(correction_input(drift=drift))
            trained = output.loss_mask_T > 0
            where = f"if log-probs differ by {drift:+g} nats"
            require(finite(output.weights_T[trained]), f"weights are not finite {where}")
            largest = float(output.weights_T[trained].max()) if bool(trained.any()) else 0.0
            require(largest < 1e6, f"a weight is {largest:g} {where}; expected less than 1e6")

    @check("COR-008", needs=("COR-002",))
    def test_it_computes_on_the_device_of_the_batch(self) -> None:
        """GPUs reject CPU tensors. Create tensors with `zeros_like`, `new_zeros` or `device=`."""
        from slime_testing.tensors.second_device import to_cpu, to_second_device

        on_cpu, on_device = self._correct(correction_input()), self._build()(to_second_device(correction_input()))
        for name in ("weights_T", "loss_mask_T"):
            same = equal(to_cpu(getattr(on_device, name)), getattr(on_cpu, name))
            require(same, f"{name} on another device differs from the CPU's")
        for values in on_device.metrics_T.values():
            to_cpu(values)

    def _correct(self, batch: CorrectionInput) -> CorrectionOutput:
        from slime_train.checks import check_correction

        output = check_correction(self._build()(batch), plugin=self.registered.plugin, loss_mask_T=batch.loss_mask_T)
        for name, values in output.metrics_T.items():
            require(finite(values), f"metric {name} is not finite: {values.tolist()}")
        return output


class AdvantageContract(TensorContract[AdvantageSpec]):
    """Contract of advantage estimators: inherit it and set `choice`."""

    kind = AdvantageSpec
    independent_groups: ClassVar[bool] = True
    """Whether a group's advantages depend only on its own rewards. Set False for whitening over a whole batch."""
    monotone: ClassVar[bool] = True
    """Whether a sample never gets a lower advantage than a sample of its group with a lower reward."""

    @check("ADV-001")
    def test_the_factory_builds_a_plain_function(self) -> None:
        """Ranks are synchronous. The factory returns a plain `def` with one argument, `batch`."""
        self._require_plain()

    @check("ADV-002", needs=("ADV-001",))
    def test_it_returns_one_finite_number_per_token(self) -> None:
        """Return a float tensor [T]; T is the number of tokens of all samples, whose lengths differ."""
        for batch in (self._batch(), self._batch(masked=True)):
            self._estimate(batch)

    @check("ADV-003", needs=("ADV-002",))
    def test_groups_are_identified_by_index_not_by_position(self) -> None:
        """Find a sample's group by `group_index_S`. Groups have different sizes, and samples arrive in any order.

        Do not reshape to [groups, n], which mixes groups.
        """
        import torch

        order = (3, 1, 4, 0, 2)
        mixed = self._batch(
            tuple(REWARDS[each] for each in order),
            tuple(GROUPS[each] for each in order),
            tuple(LENGTHS[each] for each in order),
        )
        expected = torch.split(self._estimate(self._batch()), list(LENGTHS))
        reordered = torch.cat([expected[each] for each in order])
        require(equal(self._estimate(mixed), reordered), "the same samples in another order got other advantages")

    @check("ADV-004", needs=("ADV-002",))
    def test_groups_do_not_influence_each_other(self) -> None:
        """Batches contain any groups. If the estimator needs the whole batch, set `independent_groups = False`."""
        if not self.independent_groups:
            raise SkipTest("the contract sets independent_groups = False")
        first = sum(length for length, group in zip(LENGTHS, GROUPS, strict=True) if group == 0)
        changed = self._batch((*REWARDS[:3], 9.0, 2.0))
        same = equal(self._estimate(self._batch())[:first], self._estimate(changed)[:first])
        require(same, "the advantages of group 0 depend on the rewards of group 1")

    @check("ADV-005", needs=("ADV-001",))
    def test_single_samples_and_equal_rewards_get_finite_advantages(self) -> None:
        """For a group of one sample or of equal rewards, the standard deviation is 0. Return finite advantages."""
        for name, rewards, groups in (
            ("a group of one sample", (1.0, 0.0, 1.0), (0, 1, 1)),
            ("a group of equal rewards", (1.0, 1.0, 1.0), (0, 0, 0)),
        ):
            advantages = self._build()(self._batch(rewards, groups, LENGTHS[:3]))
            require(finite(advantages), f"{name} got advantages {advantages.tolist()}; expected finite values")

    @check("ADV-006", needs=("ADV-001",))
    def test_it_does_not_change_the_batch(self) -> None:
        """Metrics and the loss read the same tensors. Do not change them in place."""
        self._require_unchanged(self._batch())

    @check("ADV-007", needs=("ADV-002",))
    def test_the_same_batch_gets_the_same_advantages(self) -> None:
        """A resumed run must continue exactly. Draw no random numbers, and keep no state between calls."""
        estimator = self._build()
        first, second = estimator(self._batch()), estimator(self._batch())
        require(equal(first, second), "a second call with the same batch returned other advantages")
        require(equal(first, self._estimate(self._batch())), "a new estimator returned other advantages")

    @check("ADV-008", needs=("ADV-002",))
    def test_a_better_reward_never_gets_a_lower_advantage(self) -> None:
        """Within a group, order advantages like rewards. If another order is intended, set `monotone = False`."""
        if not self.monotone:
            raise SkipTest("the contract sets monotone = False")
        import torch

        firsts = [float(part[0]) for part in torch.split(self._estimate(self._batch()), list(LENGTHS))]
        for one, (reward, group) in enumerate(zip(REWARDS, GROUPS, strict=True)):
            for other, (less, same) in enumerate(zip(REWARDS, GROUPS, strict=True)):
                if group == same and reward > less:
                    pair = f"reward {reward} got advantage {firsts[one]:g}, but reward {less} got {firsts[other]:g}"
                    require(firsts[one] >= firsts[other], pair)

    @check("ADV-009", needs=("ADV-001",))
    def test_a_rank_can_have_no_samples(self) -> None:
        """A step may have fewer groups than ranks. For a batch without samples, return an empty tensor."""
        self._estimate(self._batch((), (), ()))

    @check("ADV-010", needs=("ADV-002", "ADV-009"))
    def test_advantages_do_not_depend_on_the_number_of_ranks(self) -> None:
        """Groups are on arbitrary ranks. Compute statistics of the step with `sum_over_ranks`, called on every rank."""
        import torch

        first = sum(group == 0 for group in GROUPS)
        parts = (slice(0, first), slice(first, None), slice(0, 0))

        def share(part: slice) -> "Work":
            return lambda sum_over_ranks: self._build()(
                self._batch(REWARDS[part], GROUPS[part], LENGTHS[part], sum_over_ranks=sum_over_ranks)
            )

        try:
            of_ranks = torch.cat(Ranks(len(parts)).run([share(part) for part in parts]))
        except BrokenBarrierError:
            raise AssertionError("one rank called sum_over_ranks more often; every rank must call it equally") from None
        require(equal(self._estimate(self._batch()), of_ranks), "advantages on three ranks differ from those on one")

    @check("ADV-011", needs=("ADV-001",))
    def test_an_estimator_with_values_defines_returns(self) -> None:
        """With `AdvantageSpec.uses_values`, define `returns(batch)`: the critic's target, a finite number per token."""
        if not self.spec.uses_values:
            raise SkipTest("the spec's uses_values is False")
        estimator = self._build()
        if not isinstance(estimator, ValueAdvantage):
            raise AssertionError(f"{type(estimator).__name__} has no method returns(batch), but its spec uses values")
        for batch in (self._batch(), self._batch(masked=True), self._batch((), (), ())):
            self._checked(estimator.returns(batch), batch)

    @check("ADV-012", needs=("ADV-002",))
    def test_it_computes_on_the_device_of_the_batch(self) -> None:
        """GPUs reject CPU tensors. Create tensors with `zeros_like`, `new_zeros` or `device=`."""
        from slime_testing.tensors.second_device import to_cpu, to_second_device

        advantages = to_cpu(self._build()(to_second_device(self._batch(masked=True))))
        same = equal(advantages, self._estimate(self._batch(masked=True)))
        require(same, "advantages on another device differ from the CPU's")

    def _batch(
        self,
        rewards: tuple[float, ...] = REWARDS,
        groups: tuple[int, ...] = GROUPS,
        lengths: tuple[int, ...] = LENGTHS,
        *,
        masked: bool = False,
        sum_over_ranks: "Callable[[torch.Tensor], torch.Tensor] | None" = None,
    ) -> AdvantageInput:
        keys = self.spec.reward_keys(self.make_settings())
        return advantage_input(
            rewards,
            groups,
            lengths,
            masked=masked,
            sum_over_ranks=sum_over_ranks,
            reward_keys=keys,
            token_columns=self.spec.token_columns,
        )

    def _estimate(self, batch: AdvantageInput) -> "torch.Tensor":
        return self._checked(self._build()(batch), batch)

    def _checked(self, advantages: object, batch: AdvantageInput) -> "torch.Tensor":
        from slime_train.checks import check_advantages

        return check_advantages(advantages, plugin=self.registered.plugin, tokens=len(batch.sample_index_T))
