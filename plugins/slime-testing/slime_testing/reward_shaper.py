"""RewardShaperContract: what every reward shaper must keep, SHP-001 to SHP-007.

Example:

    class TestOverlong(RewardShaperContract):
        choice = "slime-shaper-overlong/overlong"
"""

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from slime_core.batching.prepare import check_shaped
from slime_core.roles import RewardShaperSpec, ShapeContext
from slime_core.sample import Group, Sample, scalar_reward
from slime_testing.contract import check, require
from slime_testing.groups import odd_groups, require_quick, require_unchanged, varied_groups
from slime_testing.role import RoleContract, require_plain_def

Rewards = list[list[float | None]]


class RewardShaperContract(RoleContract[RewardShaperSpec]):
    """Inherit and name the reward shaper."""

    kind = RewardShaperSpec
    choice: ClassVar[str | RewardShaperSpec]
    """The reward shaper: a name for the catalog, or a spec."""

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
