"""AdvantageContract: what every advantage estimator must keep, ADV-001 to ADV-012.

Example:

    class TestLeaveOneOut(AdvantageContract):
        choice = "slime-advantage-rloo/rloo"
"""

import copy
from collections.abc import Callable
from dataclasses import fields
from threading import BrokenBarrierError
from typing import TYPE_CHECKING, ClassVar
from unittest import SkipTest

from slime_core.roles import Advantage, AdvantageInput, AdvantageSpec, ValueAdvantage
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_plain_def
from slime_testing.tensors.batches import (
    GROUPS,
    LENGTHS,
    REWARDS,
    advantage_input,
    describe,
    equal,
    finite,
    is_column,
    need_torch,
)
from slime_testing.tensors.ranks import Ranks

if TYPE_CHECKING:
    import torch

    from slime_testing.tensors.ranks import Work


class AdvantageContract(RoleContract[AdvantageSpec]):
    """Inherit and name the estimator."""

    kind = AdvantageSpec
    choice: ClassVar[str | AdvantageSpec]
    """The estimator: a name for the catalog, or a spec."""
    independent_groups: ClassVar[bool] = True
    """Whether a group's advantages depend on its own rewards alone; False for estimators that whiten a whole batch."""
    monotone: ClassVar[bool] = True
    """Whether, of two samples of a group, the better rewarded one never has the lower advantage."""

    @check("ADV-001")
    def test_the_factory_builds_a_plain_function(self) -> None:
        """Ranks are synchronous: the factory returns an object that is called, not awaited."""
        need_torch()
        require_plain_def(self._build(), "batch")

    @check("ADV-002", needs=("ADV-001",))
    def test_it_gives_one_finite_number_a_token(self) -> None:
        """Return a float tensor [T], T the tokens of all samples, of whatever length each of them has."""
        for batch in (self._batch(), self._batch(masked=True)):
            self._estimate(batch)

    @check("ADV-003", needs=("ADV-002",))
    def test_groups_are_told_by_identity_not_by_position(self) -> None:
        """Samples arrive in any order and number: use `group_index_S`. Reshaping to [groups, n] mixes them up."""
        import torch

        order = (3, 1, 4, 0, 2)
        mixed = self._batch(
            tuple(REWARDS[each] for each in order),
            tuple(GROUPS[each] for each in order),
            tuple(LENGTHS[each] for each in order),
        )
        expected = torch.split(self._estimate(self._batch()), list(LENGTHS))
        apart = torch.cat([expected[each] for each in order])
        require(equal(self._estimate(mixed), apart), "the same samples in another order got other advantages")

    @check("ADV-004", needs=("ADV-002",))
    def test_a_group_is_judged_by_itself(self) -> None:
        """Which groups share a step is chance. If it needs the whole batch, set independent_groups = False."""
        if not self.independent_groups:
            raise SkipTest("the contract says independent_groups = False")
        first = sum(length for length, group in zip(LENGTHS, GROUPS, strict=True) if group == 0)
        changed = self._batch((*REWARDS[:3], 9.0, 2.0))
        same = equal(self._estimate(self._batch())[:first], self._estimate(changed)[:first])
        require(same, "other rewards in group 1 changed the advantages of group 0")

    @check("ADV-005", needs=("ADV-001",))
    def test_lone_samples_and_equal_rewards_are_no_division_by_zero(self) -> None:
        """A group of one, or of equal rewards, has a standard deviation of 0: its advantage is small, never NaN."""
        for name, rewards, groups in (
            ("a group of one sample", (1.0, 0.0, 1.0), (0, 1, 1)),
            ("a group of equal rewards", (1.0, 1.0, 1.0), (0, 0, 0)),
        ):
            given = self._build()(self._batch(rewards, groups, LENGTHS[:3]))
            require(finite(given), f"{name} got {given.tolist()}")

    @check("ADV-006", needs=("ADV-001",))
    def test_it_leaves_the_batch_as_it_was(self) -> None:
        """Metrics and the loss read the same tensors: no in-place operation on what was given."""
        batch = self._batch()
        before = copy.deepcopy(batch)
        self._build()(batch)
        for field in fields(AdvantageInput):
            one, other = getattr(before, field.name), getattr(batch, field.name)
            if isinstance(one, dict):
                require(one.keys() == other.keys(), f"it changed {field.name}")
            elif one is not None and not callable(one):
                require(equal(one, other), f"it changed {field.name}")

    @check("ADV-007", needs=("ADV-002",))
    def test_the_same_batch_gets_the_same_advantages(self) -> None:
        """A resumed run must go on exactly: draw nothing, keep nothing between calls."""
        estimator = self._build()
        first, second = estimator(self._batch()), estimator(self._batch())
        require(equal(first, second), "a second call gave other advantages")
        require(equal(first, self._estimate(self._batch())), "a fresh estimator gave other advantages")

    @check("ADV-008", needs=("ADV-002",))
    def test_a_better_reward_is_never_a_lower_advantage(self) -> None:
        """Upside down, it teaches the opposite. If rewards are not meant to be ordered so, set monotone = False."""
        if not self.monotone:
            raise SkipTest("the contract says monotone = False")
        import torch

        firsts = [float(part[0]) for part in torch.split(self._estimate(self._batch()), list(LENGTHS))]
        for one, (reward, group) in enumerate(zip(REWARDS, GROUPS, strict=True)):
            for other, (less, same) in enumerate(zip(REWARDS, GROUPS, strict=True)):
                if group == same and reward > less:
                    told = f"reward {reward} got advantage {firsts[one]:g}, reward {less} got {firsts[other]:g}"
                    require(firsts[one] >= firsts[other], told)

    @check("ADV-009", needs=("ADV-001",))
    def test_a_rank_without_samples_takes_part(self) -> None:
        """A step may have fewer groups than ranks: of no samples it makes no advantages, without an error."""
        given = self._build()(self._batch((), (), ()))
        require(is_column(given, 0), f"expected a float tensor [0] of an empty batch, got {describe(given)}")

    @check("ADV-010", needs=("ADV-002", "ADV-009"))
    def test_what_is_of_the_whole_step_is_the_same_on_any_ranks(self) -> None:
        """Which rank has which groups is chance: moments over the step go through `sum_over_ranks`, on every rank."""
        import torch

        first = sum(group == 0 for group in GROUPS)
        parts = (slice(0, first), slice(first, None), slice(0, 0))

        def share(part: slice) -> "Work":
            return lambda sum_over_ranks: self._build()(
                self._batch(REWARDS[part], GROUPS[part], LENGTHS[part], sum_over_ranks=sum_over_ranks)
            )

        try:
            apart = torch.cat(Ranks(len(parts)).run([share(part) for part in parts]))
        except BrokenBarrierError:
            raise AssertionError("one rank called sum_over_ranks more often than another; all call it alike") from None
        require(equal(self._estimate(self._batch()), apart), "on three ranks it gave other advantages than on one")

    @check("ADV-011", needs=("ADV-001",))
    def test_an_estimator_of_values_says_what_they_are_to_become(self) -> None:
        """The critic learns from `returns`: with `uses_values` in the spec, define it, one finite number a token."""
        if not self.spec.uses_values:
            raise SkipTest("the spec says uses_values = False")
        estimator = self._build()
        if not isinstance(estimator, ValueAdvantage):
            raise AssertionError(
                f"{type(estimator).__name__} has no method returns(batch), though its spec uses_values"
            )
        for batch in (self._batch(), self._batch(masked=True), self._batch((), (), ())):
            given, count = estimator.returns(batch), len(batch.sample_index_T)
            require(is_column(given, count), f"expected a float tensor [{count}], got {describe(given)}")
            require(finite(given), f"returns are not finite: {given.tolist()}")

    @check("ADV-012", needs=("ADV-002",))
    def test_it_computes_where_its_batch_is(self) -> None:
        """GPUs refuse tensors of the CPU: make new ones by `zeros_like`, `new_zeros` or `device=`, never bare."""
        from slime_testing.tensors.elsewhere import back, moved

        given = back(self._build()(moved(self._batch(masked=True))))
        require(equal(given, self._estimate(self._batch(masked=True))), "on another device it gave other advantages")

    def _batch(
        self,
        rewards: tuple[float, ...] = REWARDS,
        groups: tuple[int, ...] = GROUPS,
        lengths: tuple[int, ...] = LENGTHS,
        *,
        masked: bool = False,
        sum_over_ranks: "Callable[[torch.Tensor], torch.Tensor] | None" = None,
    ) -> AdvantageInput:
        keys = self.spec.reward_keys(self.validated())
        return advantage_input(
            rewards,
            groups,
            lengths,
            masked=masked,
            sum_over_ranks=sum_over_ranks,
            reward_keys=keys,
            token_columns=self.spec.token_columns,
        )

    def _build(self) -> Advantage:
        return self.spec.factory(self.validated(), self.setup())

    def _estimate(self, batch: AdvantageInput) -> "torch.Tensor":
        given = self._build()(batch)
        count = len(batch.sample_index_T)
        require(is_column(given, count), f"expected a float tensor [{count}], got {describe(given)}")
        require(finite(given), f"advantages are not finite: {given.tolist()}")
        return given
