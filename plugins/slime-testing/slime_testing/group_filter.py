"""GroupFilterContract: what every group filter must keep, GFL-001 to GFL-008.

Example:

    class TestNonzeroStd(GroupFilterContract):
        choice = "slime-core/nonzero_std"
"""

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from slime_core.catalog import check_decision
from slime_core.roles import Decision, Drop, FilterContext, GroupFilterSpec, KeepIfShort
from slime_core.sample import Group
from slime_testing.blocking import BLOCK_S
from slime_testing.contract import check, require
from slime_testing.groups import odd_groups, require_countable, require_quick, require_unchanged, varied_groups
from slime_testing.role import RoleContract, require_plain_def

CONTEXT = FilterContext(rollout_id=3)


class GroupFilterContract(RoleContract[GroupFilterSpec]):
    """Inherit and name the group filter."""

    kind = GroupFilterSpec
    choice: ClassVar[str | GroupFilterSpec]
    """The group filter: a name for the catalog, or a spec."""
    groups: ClassVar[Sequence[Group] | None] = None
    """Finished groups, of which it keeps at least one; the kit has its own otherwise."""

    @check("GFL-001")
    def test_the_factory_builds_a_group_filter(self) -> None:
        """The core calls `filter(group, ctx)`, a plain `def`: a decision waits for nothing."""
        require_plain_def(self.built(), "group", "ctx")

    @check("GFL-002", needs=("GFL-001", "GFL-005"))
    def test_it_answers_with_a_decision(self) -> None:
        """Return `Keep()`, `Drop(reason)` or `KeepIfShort(reason)`, and nothing else: a truth value drops nothing."""
        for group in self._given():
            check_decision(self._decide(group), plugin=self.registered.plugin, group=group)

    @check("GFL-003", needs=("GFL-002",))
    def test_it_leaves_the_group_as_it_was(self) -> None:
        """A filter decides and the core removes: do not sort, pop or write to what is given."""
        for group in self._given():
            require_unchanged([group], lambda given: self._filter()(given[0], CONTEXT))

    @check("GFL-004", needs=("GFL-002",))
    def test_the_same_group_gets_the_same_decision(self) -> None:
        """A resumed run asks again and must get the same: keep nothing between calls, and draw from `setup.seed`."""
        made, groups = self._filter(), self._given()
        first, second = ([made(copy.deepcopy(group), CONTEXT) for group in groups] for _ in range(2))
        backwards = [self._decide(group) for group in groups[::-1]][::-1]
        require(first == second == backwards, "asked again about the same groups, it decided otherwise")

    @check("GFL-005", needs=("GFL-001",))
    def test_it_decides_quickly(self) -> None:
        """It runs on the event loop, once a group: compute little, and read no file and no network."""
        made, group = self._filter(), self._given()[0]
        require_quick(lambda: made(copy.deepcopy(group), CONTEXT), BLOCK_S)

    @check("GFL-006", needs=("GFL-002",))
    def test_odd_groups_are_decided_about_too(self) -> None:
        """Samples may be unscored, failed or empty: `group.rewards` holds the scored ones, and may be empty."""
        for group in odd_groups():
            check_decision(self._decide(group), plugin=self.registered.plugin, group=group)

    @check("GFL-007", needs=("GFL-002",))
    def test_reasons_can_be_counted(self) -> None:
        """A reason becomes a metric: name the kind of thing ("zero_std"), without numbers of the group."""
        decisions = [self._decide(group) for group in [*self._given(), *varied_groups()]]
        require_countable([each.reason for each in decisions if isinstance(each, Drop | KeepIfShort)])

    @check("GFL-008", needs=("GFL-002",))
    def test_something_is_kept(self) -> None:
        """Of groups of many kinds it must keep one, or a run would draw prompts for ever. Give it its own `groups`."""
        groups = self._given()
        kept = any(not isinstance(self._decide(group), Drop) for group in groups)
        require(kept, f"{len(groups)} groups of many kinds were dropped, every one")

    def _filter(self) -> Callable[[Group, FilterContext], Decision]:
        return cast(Callable[[Group, FilterContext], Decision], self.built())

    def _decide(self, group: Group) -> Decision:
        return self._filter()(copy.deepcopy(group), CONTEXT)

    def _given(self) -> list[Group]:
        return list(self.groups or varied_groups())
