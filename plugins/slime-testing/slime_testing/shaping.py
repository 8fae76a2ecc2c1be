"""The contracts of reward shapers (SHP-001 to SHP-007) and batch transforms (BTR-001 to BTR-006).

Example:

    class TestTurns(BatchTransformContract):
        choice = "slime-batch-turns/turns"
        groups = [a_group_with_turns()]
"""

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, cast
from unittest import SkipTest

from slime_core.batching.prepare import check_columns, check_shaped
from slime_core.roles import BatchTransformSpec, RewardShaperSpec, ShapeContext
from slime_core.sample import Group, Sample, scalar_reward
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_plain_def
from slime_testing.samples import odd_groups, require_quick, require_unchanged, varied_groups

Rewards = list[list[float | None]]


class RewardShaperContract(RoleContract[RewardShaperSpec]):
    """Inherit and name the reward shaper."""

    kind = RewardShaperSpec

    @check("SHP-001")
    def test_the_factory_builds_a_reward_shaper(self) -> None:
        """The core calls `shaper(groups, ctx)`, a plain `def`: it computes and waits for nothing."""
        require_plain_def(self.built(), "groups", "ctx")

    @check("SHP-002", needs=("SHP-001", "SHP-005"))
    def test_it_answers_in_the_form_of_the_rewards(self) -> None:
        """Return a row a group and a finite number a sample, of groups of any size and equal rewards too."""
        self._shape(varied_groups())

    @check("SHP-003", needs=("SHP-002",))
    def test_it_leaves_the_groups_as_they_were(self) -> None:
        """Raw rewards stay in the samples, for metrics: return new ones and write to nothing that is given."""
        before = raw(varied_groups())
        ctx = ShapeContext(rollout_id=3, rewards=before)
        require_unchanged(varied_groups(), lambda given: self._shaper()(given, ctx))
        require(before == raw(varied_groups()), "it changed ctx.rewards")

    @check("SHP-004", needs=("SHP-002",))
    def test_the_same_groups_get_the_same_rewards(self) -> None:
        """A resumed run asks again and must get the same: keep nothing between calls, and draw from `setup.seed`."""
        one, other, again = (self._shape(varied_groups()) for _ in range(3))
        require(one == other == again, "asked again about the same groups, it answered otherwise")
        made, ctx = self._shaper(), ShapeContext(rollout_id=3, rewards=raw(varied_groups()))
        first, second = (made(varied_groups(), ctx) for _ in range(2))
        require(list(map(list, first)) == list(map(list, second)), "the same shaper answered otherwise the second time")

    @check("SHP-005", needs=("SHP-001",))
    def test_it_shapes_quickly(self) -> None:
        """It runs in the driver, once a rollout: compute little, and read no file and no network."""
        made, groups = self._shaper(), varied_groups()
        ctx = ShapeContext(rollout_id=3, rewards=raw(groups))
        require_quick(lambda: made(copy.deepcopy(groups), ctx))

    @check("SHP-006", needs=("SHP-002",))
    def test_odd_groups_are_shaped_too(self) -> None:
        """There may be no group; a reward may be None and stays None; a sample's own may be a dict."""
        for groups in ([], odd_groups()):
            self._shape(groups)

    @check("SHP-007", needs=("SHP-002",))
    def test_it_builds_on_the_shaper_before(self) -> None:
        """Several shapers run one after another: start from `ctx.rewards`, never from `sample.reward`."""
        groups = varied_groups()
        first, second = raw(groups), raw(groups)
        for row in second:
            for position, reward in enumerate(row):
                row[position] = None if reward is None else (position + 1) * reward + position**2
        one, other = (self._shape(groups, rewards) for rewards in (first, second))
        require(one != other, "other ctx.rewards gave the same answer: it does not start from them")

    def _shape(self, groups: Sequence[Group], rewards: Rewards | None = None) -> Rewards:
        before = rewards or raw(groups)
        shaped = self._shaper()(groups, ShapeContext(rollout_id=3, rewards=copy.deepcopy(before)))
        return check_shaped(shaped, plugin=self.registered.plugin, groups=groups, before=before)

    def _shaper(self) -> Callable[[Sequence[Group], ShapeContext], Rewards]:
        return cast(Callable[[Sequence[Group], ShapeContext], Rewards], self.built())


def raw(groups: Sequence[Group]) -> Rewards:
    """The rewards as the first shaper is given them."""
    return [[_reward(sample) for sample in group.samples] for group in groups]


def _reward(sample: Sample) -> float | None:
    return None if sample.reward is None else scalar_reward(sample)


class BatchTransformContract(RoleContract[BatchTransformSpec]):
    """Inherit and name the batch transform."""

    kind = BatchTransformSpec
    groups: ClassVar[Sequence[Group] | None] = None
    """Finished groups that it can read; the kit has its own otherwise."""

    @check("BTR-001")
    def test_the_factory_builds_a_batch_transform(self) -> None:
        """The core calls `transform(sample, group, ctx)`, a plain `def`: it computes and waits for nothing."""
        require_plain_def(self.built(), "sample", "group", "ctx")

    @check("BTR-002", needs=("BTR-001", "BTR-005"))
    def test_it_makes_the_columns_that_its_spec_declares(self) -> None:
        """Return a value for every declared column: a finite number, or one a response token. Masks only take out."""
        for group in self._given():
            for sample in group.samples:
                self._columns(sample, group)

    @check("BTR-003", needs=("BTR-002",))
    def test_it_leaves_the_group_as_it_was(self) -> None:
        """What it adds it returns: write to nothing that is given."""
        for group in self._given():
            require_unchanged([group], lambda given: self._transform(given[0].samples[0], given[0]))

    @check("BTR-004", needs=("BTR-002",))
    def test_the_same_sample_gets_the_same_columns(self) -> None:
        """A resumed run asks again and must get the same: keep nothing between calls, and draw from `setup.seed`."""
        made, group = self._made(), self._given()[0]
        sample, ctx = group.samples[0], context(group)
        answers = [repr(each(copy.deepcopy(sample), group, ctx)) for each in (made, made, self._made())]
        require(len(set(answers)) == 1, "asked again about the same sample, it answered otherwise")

    @check("BTR-005", needs=("BTR-001",))
    def test_it_computes_quickly(self) -> None:
        """It runs in the driver, once a sample: compute little, and read no file and no network."""
        made, group = self._made(), self._given()[0]
        require_quick(lambda: made(copy.deepcopy(group.samples[0]), group, context(group)))

    @check("BTR-006", needs=("BTR-002",))
    def test_odd_samples_are_transformed_too(self) -> None:
        """Samples may be unscored, or have no response token: a token column is then empty."""
        if self.groups is not None:
            raise SkipTest("the contract gives its own groups")
        for group in odd_groups():
            for sample in group.samples:
                self._columns(sample, group)

    def _made(self) -> Callable[..., object]:
        return cast(Callable[..., object], self.built())

    def _transform(self, sample: Sample, group: Group) -> object:
        return self._made()(sample, group, context(group))

    def _columns(self, sample: Sample, group: Group) -> None:
        returned = self._transform(sample, group)
        check_columns(returned, plugin=self.registered.plugin, sample=sample, grains=self.spec.columns)

    def _given(self) -> list[Group]:
        groups = list(self.groups or varied_groups())
        if self.automatic:
            try:
                self._transform(copy.deepcopy(groups[0].samples[0]), groups[0])
            except SkipTest:
                raise
            except Exception as error:
                raise SkipTest(f"needs the author's `groups`: the kit's own raised {error!r}") from error
        return groups


def context(group: Group) -> ShapeContext:
    """The context in which the checks call a transform."""
    return ShapeContext(rollout_id=3, rewards=raw([group]))
