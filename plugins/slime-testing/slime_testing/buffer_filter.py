"""BufferFilterContract: what every buffer filter must keep, BFL-001 to BFL-006.

    class TestNewestFirst(BufferFilterContract):
        choice = "slime-buffer-newest/newest"

The filter is asked with held groups of many numbers, ages and rewards.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import ClassVar
from unittest import SkipTest

from slime_core.catalog import check_selection
from slime_core.roles import BufferContext, BufferFilter, BufferFilterSpec, Selection
from slime_core.sample import Group
from slime_testing.contract import check, require
from slime_testing.role import RoleContract
from slime_testing.samples import make_group

VERSION = 9
"""Weight version at which the filter is asked."""
FIRST_DRAW = 1_000
"""Draws are numbered over a whole run: none of them is a position among what is held."""
HELD = (0, 1, 2, 7, 64)
WANT = (0, 1, 3, 64, 1_000)


class BufferFilterContract(RoleContract[BufferFilterSpec]):
    """Inherit and name the buffer filter."""

    kind = BufferFilterSpec
    choice: ClassVar[str | BufferFilterSpec]
    """The buffer filter: a name for the catalog, or a spec."""

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
    """Held groups and how many of them are wanted: none, few, more than there are; of all ages, some alike."""
    for held, want in itertools.product(HELD, WANT):
        draws = [FIRST_DRAW + 29 * number % 67 for number in range(held)]  # in no order
        yield [make_group(draw, weight_version=draw % (VERSION + 1)) for draw in draws], want
        yield [make_group(draw, rewards=(draw % 4, 1.0, 0.0), weight_version=VERSION) for draw in draws], want


def _positions(selection: Selection) -> tuple[list[int], list[int]]:
    return list(selection.take), list(selection.drop)


def _snapshot(groups: Sequence[Group]) -> str:
    return json.dumps([group.to_dict() for group in groups])
