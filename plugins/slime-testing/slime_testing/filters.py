"""The contracts of filters: groups (GFL-001 to GFL-008), samples (SFL-001 to SFL-007), buffers (BFL-001 to BFL-006).

Example:

    class TestNonzeroStd(GroupFilterContract):
        choice = "slime-core/nonzero_std"
"""

import copy
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, cast
from unittest import SkipTest

from slime_core.catalog import check_decision, check_selection
from slime_core.catalog.checks import check_removals
from slime_core.roles import (
    BufferContext,
    BufferFilter,
    BufferFilterSpec,
    Decision,
    Drop,
    FilterContext,
    GroupFilterSpec,
    KeepIfShort,
    Removal,
    SampleFilterSpec,
    Selection,
)
from slime_core.sample import Group
from slime_testing.blocking import BLOCK_S
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_plain_def
from slime_testing.samples import (
    make_group,
    odd_groups,
    require_countable,
    require_quick,
    require_unchanged,
    varied_groups,
)

CONTEXT = FilterContext(rollout_id=3)


class GroupFilterContract(RoleContract[GroupFilterSpec]):
    """Inherit and name the group filter."""

    kind = GroupFilterSpec
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


CONTEXT = FilterContext(rollout_id=3)


class SampleFilterContract(RoleContract[SampleFilterSpec]):
    """Inherit and name the sample filter."""

    kind = SampleFilterSpec

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


VERSION = 9
"""Weight version at which the filter is asked."""
FIRST_DRAW = 1_000
"""Draws are numbered over a whole run: none of them is a position among what is held."""
HELD = (0, 1, 2, 7, 64)
WANT = (0, 1, 3, 64, 1_000)


class BufferFilterContract(RoleContract[BufferFilterSpec]):
    """Inherit and name the buffer filter."""

    kind = BufferFilterSpec

    @check("BFL-001")
    def test_the_factory_builds_a_buffer_filter(self) -> None:
        """The core calls `buffer_filter.select(groups, want, ctx)`, a plain `def`."""
        built: object = self._build()
        require(isinstance(built, BufferFilter), f"the factory returned {built!r}, which has no method `select`")

    @check("BFL-002", needs=("BFL-001",))
    def test_a_selection_is_within_what_is_held_and_wanted(self) -> None:
        """Take at most `want` positions of the given sequence, each once, and drop none that is taken.

        A position is a group's place in that sequence: `group.id.draw` is its number in the whole run.
        """
        for groups, want in _situations():
            returned = self._select(groups, want)
            check_selection(returned, plugin=self.registered.plugin, held=len(groups), want=want)

    @check("BFL-003", needs=("BFL-001",))
    def test_the_held_groups_stay_as_they_were(self) -> None:
        """A filter chooses and the buffer removes: do not sort, pop or change what is given."""
        for groups, want in _situations():
            given, before = list(groups), _snapshot(groups)
            self._select(given, want)
            require(given == groups, "select changed the sequence of groups that it was given")
            require(_snapshot(given) == before, "select changed a group")

    @check("BFL-004", needs=("BFL-001",))
    def test_the_same_question_gets_the_same_answer(self) -> None:
        """A resumed run asks again and must get the same: keep no memory, and draw from `setup.seed`."""
        for groups, want in _situations():
            asked = self._build()
            first, second = (asked.select(groups, want, _context()) for _ in range(2))
            fresh = self._select(groups, want)
            same = _positions(first) == _positions(second) == _positions(fresh)
            require(same, f"asked for {want} of {len(groups)} groups: {first}, then {second}, a new one {fresh}")

    @check("BFL-005", needs=("BFL-001",))
    def test_something_fresh_is_taken(self) -> None:
        """With 64 groups of the current weights and 8 wanted, taking none would stop the training."""
        groups = [make_group(FIRST_DRAW + draw, weight_version=VERSION) for draw in range(64)]
        require(len(self._select(groups, 8).take) > 0, "64 fresh groups are held, 8 are wanted, none is taken")

    @check("BFL-006", needs=("BFL-001", "BFL-002", "BFL-005"))
    def test_any_groups_can_be_held(self) -> None:
        """Groups come in all sizes and ages, unscored, partly scored, or all alike: choose among them too.

        Hypothesis makes them up; without it (`pip install hypothesis`) the check is skipped.
        """
        try:
            from slime_testing.drawn import for_any_groups
        except ModuleNotFoundError as error:
            raise SkipTest(f"needs hypothesis: {error}") from error

        def chosen_well(groups: Sequence[Group], want: int) -> None:
            check_selection(self._select(groups, want), plugin=self.registered.plugin, held=len(groups), want=want)

        for_any_groups(chosen_well)

    def _build(self) -> BufferFilter:
        return self.spec.factory(self.validated(), self.setup())

    def _select(self, groups: Sequence[Group], want: int) -> Selection:
        return self._build().select(groups, want, _context())


def _context() -> BufferContext:
    return BufferContext(rollout_id=VERSION, weight_version=VERSION)


def _situations() -> Iterator[tuple[list[Group], int]]:
    for held, want in itertools.product(HELD, WANT):
        draws = [FIRST_DRAW + 29 * number % 67 for number in range(held)]  # in no order
        yield [make_group(draw, weight_version=draw % (VERSION + 1)) for draw in draws], want
        yield [make_group(draw, rewards=(draw % 4, 1.0, 0.0), weight_version=VERSION) for draw in draws], want


def _positions(selection: Selection) -> tuple[list[int], list[int]]:
    return list(selection.take), list(selection.drop)


def _snapshot(groups: Sequence[Group]) -> str:
    return json.dumps([group.to_dict() for group in groups])
