"""Contracts of filters (GFL, SFL, BFL), shapers (SHP) and transforms (BTR): roles that decide or compute at once.

Example:

    class TestNonzeroStd(GroupFilterContract):
        choice = "slime-train/nonzero_std"

Group filters, sample filters, reward shapers and batch transforms are pure, fast functions. Each check that they share
is a function here; each contract gives it a number.
"""

import copy
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar
from unittest import SkipTest

from slime_core.batching.prepare import check_columns, check_shaped
from slime_core.catalog import check_decision, check_selection
from slime_core.catalog.checks import check_removals
from slime_core.roles import (
    BatchTransformSpec,
    BufferContext,
    BufferFilter,
    BufferFilterSpec,
    Drop,
    FilterContext,
    GroupFilterSpec,
    KeepIfShort,
    RewardShaperSpec,
    SampleFilterSpec,
    Selection,
    ShapeContext,
    Spec,
)
from slime_core.sample import Group, scalar_reward
from slime_testing.blocking import BLOCK_S, STALL_S
from slime_testing.contract import Contract, check, require
from slime_testing.role import RoleContract, require_plain_def
from slime_testing.samples import (
    make_group,
    odd_groups,
    require_countable,
    require_quick,
    require_unchanged,
    varied_groups,
)

SpecT = TypeVar("SpecT", bound=Spec[object])
ContractT = TypeVar("ContractT", bound=Contract)
Rewards = list[list[float | None]]
CONTEXT = FilterContext(rollout_id=3)


class DecisionContract(RoleContract[SpecT]):
    """Base of the contracts of pure, fast functions."""

    arguments: ClassVar[tuple[str, ...]]
    """Names of the arguments that the core passes."""
    limit_s: ClassVar[float] = STALL_S
    """Seconds that one call may take."""

    def questions(self) -> list[list[Group]]:
        """The kit's calls: a list of groups for each."""
        return [varied_groups()]

    def odd_questions(self) -> list[list[Group]]:
        """Calls with groups that are rare in a run."""
        return [[], odd_groups()]

    def ask(self, made: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401  # what a factory made
        """The function's answer, unchecked."""
        raise NotImplementedError

    def require_good(self, answer: object, groups: Sequence[Group]) -> object:
        """The answer, checked as in a run."""
        raise NotImplementedError

    def reasons(self, answer: Any) -> list[str]:  # noqa: ANN401  # of each contract's own kind
        """The reasons in an answer."""
        raise NotImplementedError

    def _answer(self, groups: Sequence[Group]) -> object:
        return self.require_good(self.ask(self.built(), copy.deepcopy(groups)), groups)


Deciding = DecisionContract[Any]


def test_the_factory_builds_a_plain_function(self: Deciding) -> None:
    """The core calls it as a plain `def`: it computes without waiting."""
    require_plain_def(self.built(), *self.arguments)


def test_the_return_value_is_valid(self: Deciding) -> None:
    """Return what the role's Protocol names, for the given groups, and nothing else: a bare bool drops nothing."""
    for groups in self.questions():
        self._answer(groups)


def test_it_does_not_change_its_arguments(self: Deciding) -> None:
    """The function answers, and the core acts: do not sort, pop or change its arguments."""
    for groups in self.questions():
        require_unchanged(groups, lambda given: self.ask(self.built(), given))


def test_the_same_arguments_get_the_same_result(self: Deciding) -> None:
    """A resumed run repeats the call: keep no state between calls, and draw from `setup.seed`."""
    made, asked = self.built(), self.questions()
    first, second = ([repr(self.ask(made, copy.deepcopy(groups))) for groups in asked] for _ in range(2))
    fresh = [repr(self.ask(self.built(), copy.deepcopy(groups))) for groups in asked[::-1]][::-1]
    require(first == second == fresh, "asked again about the same groups, it answered otherwise")


def test_a_call_is_fast(self: Deciding) -> None:
    """The run waits for the answer: compute little, and read no file and no network."""
    made, groups = self.built(), self.questions()[0]
    require_quick(lambda: self.ask(made, copy.deepcopy(groups)), self.limit_s)


def test_it_accepts_unusual_groups(self: Deciding) -> None:
    """Accept an empty list of groups; unscored, failed, empty or removed samples; and rewards that are dicts."""
    for groups in self.odd_questions():
        self._answer(groups)


def test_reasons_are_few_and_short(self: Deciding) -> None:
    """Reasons become metrics: name the kind of fault ("zero_std"), without numbers of the group."""
    require_countable([reason for groups in self.questions() for reason in self.reasons(self._answer(groups))])


_SHARED: Sequence[Callable[[Deciding], None]] = (
    test_the_factory_builds_a_plain_function,
    test_the_return_value_is_valid,
    test_it_does_not_change_its_arguments,
    test_the_same_arguments_get_the_same_result,
    test_a_call_is_fast,
    test_it_accepts_unusual_groups,
    test_reasons_are_few_and_short,
)


def numbered(prefix: str, count: int) -> Callable[[type[ContractT]], type[ContractT]]:
    """Decorator: add the first `count` shared checks from PREFIX-001 on, except for overridden ones."""

    def add(contract: type[ContractT]) -> type[ContractT]:
        for number, method in enumerate(_SHARED[:count], 1):
            needs = {1: (), 2: (f"{prefix}-001", f"{prefix}-005"), 5: (f"{prefix}-001",)}
            if method.__name__ not in vars(contract):
                numbering = check(f"{prefix}-{number:03}", needs=needs.get(number, (f"{prefix}-002",)))
                setattr(contract, method.__name__, numbering(method))
        return contract

    return add


@numbered("GFL", 7)
class GroupFilterContract(DecisionContract[GroupFilterSpec]):
    """Inherit and name the group filter."""

    kind = GroupFilterSpec
    arguments = ("group", "ctx")
    limit_s = BLOCK_S
    groups: ClassVar[Sequence[Group] | None] = None
    """Finished groups, of which the filter keeps at least one; None: the kit's groups."""

    @check("GFL-007", needs=("GFL-002",))
    def test_reasons_are_few_and_short(self) -> None:
        """Reasons become metrics: name the kind of fault ("zero_std"), without numbers of the group."""
        asked = [*self.questions(), *([group] for group in varied_groups())]
        require_countable([reason for groups in asked for reason in self.reasons(self._answer(groups))])

    @check("GFL-008", needs=("GFL-002",))
    def test_it_keeps_at_least_one_group(self) -> None:
        """Keep at least one of many different groups: otherwise a run would draw prompts endlessly. Or set `groups`."""
        asked = self.questions()
        kept = any(not isinstance(self._answer(groups), Drop) for groups in asked)
        require(kept, f"{len(asked)} groups of many kinds were dropped, every one")

    def questions(self) -> list[list[Group]]:
        """One call for each group."""
        return [[group] for group in self.groups or varied_groups()]

    def odd_questions(self) -> list[list[Group]]:
        """One call for each odd group."""
        return [[group] for group in odd_groups()]

    def ask(self, made: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The filter's decision."""
        return made(groups[0], CONTEXT)

    def require_good(self, answer: object, groups: Sequence[Group]) -> object:
        """See `check_decision`."""
        return check_decision(answer, plugin=self.registered.plugin, group=groups[0])

    def reasons(self, answer: Any) -> list[str]:  # noqa: ANN401
        """The reason to drop the group, if any."""
        return [answer.reason] if isinstance(answer, Drop | KeepIfShort) else []


@numbered("SFL", 7)
class SampleFilterContract(DecisionContract[SampleFilterSpec]):
    """Inherit and name the sample filter."""

    kind = SampleFilterSpec
    arguments = ("groups", "ctx")

    def odd_questions(self) -> list[list[Group]]:
        """Calls with no groups, with odd ones, and with a sample that is removed already."""
        removed = varied_groups()[:2]
        removed[0].samples[0].remove_sample = True
        return [*super().odd_questions(), removed]

    def ask(self, made: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The filter's removals."""
        return made(groups, CONTEXT)

    def require_good(self, answer: object, groups: Sequence[Group]) -> object:
        """See `check_removals`."""
        return check_removals(answer, plugin=self.registered.plugin, groups=groups)

    def reasons(self, answer: Any) -> list[str]:  # noqa: ANN401
        """The reason for each removed sample."""
        return [removal.reason for removal in answer]


@numbered("SHP", 6)
class RewardShaperContract(DecisionContract[RewardShaperSpec]):
    """Inherit and name the reward shaper."""

    kind = RewardShaperSpec
    arguments = ("groups", "ctx")

    @check("SHP-003", needs=("SHP-002",))
    def test_it_does_not_change_its_arguments(self) -> None:
        """Raw rewards stay in the samples, for metrics: return new rewards, and change no argument."""
        before = raw(varied_groups())
        ctx = ShapeContext(rollout_id=3, rewards=before)
        require_unchanged(varied_groups(), lambda given: self._shaper()(given, ctx))
        require(before == raw(varied_groups()), "it changed ctx.rewards")

    @check("SHP-007", needs=("SHP-002",))
    def test_it_starts_from_the_previous_rewards(self) -> None:
        """Several shapers run in a chain: start from `ctx.rewards`, not from `sample.reward`."""
        groups = varied_groups()
        other = raw(groups)
        for row in other:
            for position, reward in enumerate(row):
                row[position] = None if reward is None else (position + 1) * reward + position**2
        shaped = self._shaper()(groups, ShapeContext(rollout_id=3, rewards=copy.deepcopy(other)))
        shaped = check_shaped(shaped, plugin=self.registered.plugin, groups=groups, before=other)
        require(shaped != self._answer(groups), "other ctx.rewards gave the same answer: it does not start from them")

    def ask(self, made: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The shaped rewards of the samples."""
        return made(groups, ShapeContext(rollout_id=3, rewards=raw(groups)))

    def require_good(self, answer: object, groups: Sequence[Group]) -> object:
        """See `check_shaped`."""
        return check_shaped(answer, plugin=self.registered.plugin, groups=groups, before=raw(groups))

    def _shaper(self) -> Callable[[Sequence[Group], ShapeContext], object]:
        made: Any = self.built()
        return made  # type: ignore[no-any-return]  # SHP-001 has checked its signature


def raw(groups: Sequence[Group]) -> Rewards:
    """The rewards that the first shaper gets."""
    return [[None if sample.reward is None else scalar_reward(sample) for sample in group.samples] for group in groups]


@numbered("BTR", 6)
class BatchTransformContract(DecisionContract[BatchTransformSpec]):
    """Inherit and name the batch transform."""

    kind = BatchTransformSpec
    arguments = ("sample", "group", "ctx")
    groups: ClassVar[Sequence[Group] | None] = None
    """Finished groups that the transform can read; None: the kit's groups."""

    @check("BTR-005", needs=("BTR-001",))
    def test_a_call_is_fast(self) -> None:
        """It runs in the driver, once per sample: compute little, and read no file and no network."""
        made: Any = self.built()
        (group,) = self.questions()[0]
        ctx = ShapeContext(rollout_id=3, rewards=raw([group]))
        require_quick(lambda: made(copy.deepcopy(group.samples[0]), group, ctx), self.limit_s)

    def questions(self) -> list[list[Group]]:
        """One call for each group, for all its samples."""
        asked = [[group] for group in self.groups or varied_groups()]
        if self.automatic:
            try:
                self.ask(self.built(), copy.deepcopy(asked[0]))
            except SkipTest:
                raise
            except Exception as error:
                raise SkipTest(f"needs the author's `groups`: the kit's own raised {error!r}") from error
        return asked

    def odd_questions(self) -> list[list[Group]]:
        """Calls with odd groups.

        Raises:
            SkipTest: the author has set `groups`.
        """
        if self.groups is not None:
            raise SkipTest("the contract gives its own groups")
        return [[group] for group in odd_groups()]

    def ask(self, made: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The columns of each sample."""
        (group,) = groups
        return [made(sample, group, ShapeContext(rollout_id=3, rewards=raw(groups))) for sample in group.samples]

    def require_good(self, answer: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """See `check_columns`."""
        for columns, sample in zip(answer, groups[0].samples, strict=True):
            check_columns(columns, plugin=self.registered.plugin, sample=sample, grains=self.spec.columns)
        return answer


VERSION = 9
"""Current weight version in the calls."""
FIRST_DRAW = 1_000
"""Offset of draws, which count over a whole run: a draw is not a position in the buffer."""
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
    def test_a_selection_contains_only_valid_positions(self) -> None:
        """Return at most `want` positions of the given sequence, each once, and drop no selected one.

        A position is an index into that sequence; `group.id.draw` counts over the whole run. Groups may have any size
        and age, and be unscored, partly scored or all alike.
        """
        for groups, want in (*_situations(), *((odd_groups(), want) for want in WANT), (varied_groups(), 3)):
            returned = self._select(groups, want)
            check_selection(returned, plugin=self.registered.plugin, held=len(groups), want=want)

    @check("BFL-003", needs=("BFL-001",))
    def test_it_does_not_change_its_arguments(self) -> None:
        """A filter chooses and the buffer removes: do not sort, pop or change the arguments."""
        for groups, want in _situations():
            given, before = list(groups), _snapshot(groups)
            self._select(given, want)
            require(given == groups, "select changed the sequence of groups that it was given")
            require(_snapshot(given) == before, "select changed a group")

    @check("BFL-004", needs=("BFL-001",))
    def test_the_same_arguments_get_the_same_result(self) -> None:
        """A resumed run repeats the call: keep no state, and draw from `setup.seed`."""
        for groups, want in _situations():
            asked = self._build()
            first, second = (asked.select(groups, want, _context()) for _ in range(2))
            fresh = self._select(groups, want)
            same = _positions(first) == _positions(second) == _positions(fresh)
            require(same, f"asked for {want} of {len(groups)} groups: {first}, then {second}, a new one {fresh}")

    @check("BFL-005", needs=("BFL-001",))
    def test_fresh_groups_are_selected(self) -> None:
        """Select something from 64 groups of the current weights with `want = 8`: otherwise training stops."""
        groups = [make_group(FIRST_DRAW + draw, weight_version=VERSION) for draw in range(64)]
        require(len(self._select(groups, 8).take) > 0, "64 fresh groups are held, 8 are wanted, none is taken")

    def _build(self) -> BufferFilter:
        return self.spec.factory(self.validated(), self.setup())

    def _select(self, groups: Sequence[Group], want: int) -> Selection:
        return self._build().select(groups, want, _context())


def _context() -> BufferContext:
    return BufferContext(rollout_id=VERSION, weight_version=VERSION)


def _situations() -> Iterator[tuple[list[Group], int]]:
    for held, want in itertools.product(HELD, WANT):
        draws = [FIRST_DRAW + 29 * number % 67 for number in range(held)]  # unsorted
        yield [make_group(draw, weight_version=draw % (VERSION + 1)) for draw in draws], want
        yield [make_group(draw, rewards=(draw % 4, 1.0, 0.0), weight_version=VERSION) for draw in draws], want


def _positions(selection: Selection) -> tuple[list[int], list[int]]:
    return list(selection.take), list(selection.drop)


def _snapshot(groups: Sequence[Group]) -> str:
    return json.dumps([group.to_dict() for group in groups])
