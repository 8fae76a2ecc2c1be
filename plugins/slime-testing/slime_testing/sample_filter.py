"""SampleFilterContract: what every sample filter must keep, SFL-001 to SFL-007.

Example:

    class TestNotTooLong(SampleFilterContract):
        choice = "slime-filter-length/not_too_long"
"""

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from slime_core.catalog.checks import check_removals
from slime_core.roles import FilterContext, Removal, SampleFilterSpec
from slime_core.sample import Group
from slime_testing.contract import check, require
from slime_testing.groups import odd_groups, require_countable, require_quick, require_unchanged, varied_groups
from slime_testing.role import RoleContract, require_plain_def

CONTEXT = FilterContext(rollout_id=3)


class SampleFilterContract(RoleContract[SampleFilterSpec]):
    """Inherit and name the sample filter."""

    kind = SampleFilterSpec
    choice: ClassVar[str | SampleFilterSpec]
    """The sample filter: a name for the catalog, or a spec."""

    @check("SFL-001")
    def test_the_factory_builds_a_sample_filter(self) -> None:
        """The core calls `filter(groups, ctx)`, a plain `def`: a decision waits for nothing."""
        require_plain_def(self.built(), "groups", "ctx")

    @check("SFL-002", needs=("SFL-001", "SFL-005"))
    def test_it_answers_with_removals(self) -> None:
        """Return a list of `Removal(group.id, position, reason)`: each sample once, of the groups that were given."""
        groups = varied_groups()
        check_removals(self._filter()(groups, CONTEXT), plugin=self.registered.plugin, groups=groups)

    @check("SFL-003", needs=("SFL-002",))
    def test_it_leaves_the_groups_as_they_were(self) -> None:
        """A filter names samples and the core sets `remove_sample`: write to nothing that is given."""
        require_unchanged(varied_groups(), lambda given: self._filter()(given, CONTEXT))

    @check("SFL-004", needs=("SFL-002",))
    def test_the_same_groups_get_the_same_answer(self) -> None:
        """A resumed run asks again and must get the same: keep nothing between calls, and draw from `setup.seed`."""
        made = self._filter()
        answers = [list(each(varied_groups(), CONTEXT)) for each in (made, made, self._filter())]
        require(answers[0] == answers[1] == answers[2], "asked again about the same groups, it answered otherwise")

    @check("SFL-005", needs=("SFL-001",))
    def test_it_answers_quickly(self) -> None:
        """It runs on the event loop, once a rollout: compute little, and read no file and no network."""
        made, groups = self._filter(), varied_groups()
        require_quick(lambda: made(copy.deepcopy(groups), CONTEXT))

    @check("SFL-006", needs=("SFL-002",))
    def test_odd_groups_are_answered_too(self) -> None:
        """There may be no group, and samples may be unscored, failed, empty or removed already."""
        removed = varied_groups()[:2]
        removed[0].samples[0].remove_sample = True
        for groups in ([], odd_groups(), removed):
            check_removals(self._filter()(groups, CONTEXT), plugin=self.registered.plugin, groups=groups)

    @check("SFL-007", needs=("SFL-002",))
    def test_reasons_can_be_counted(self) -> None:
        """A reason becomes a metric: name the kind of thing ("too_long"), without numbers of the sample."""
        require_countable([removal.reason for removal in self._filter()(varied_groups(), CONTEXT)])

    def _filter(self) -> Callable[[Sequence[Group], FilterContext], Sequence[Removal]]:
        return cast(Callable[[Sequence[Group], FilterContext], Sequence[Removal]], self.built())
