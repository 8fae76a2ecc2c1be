"""Contracts of filters (GFL, SFL, BFL), reward shapers (SHP) and batch transforms (BTR).

Example:

    class TestNonzeroStd(GroupFilterContract):
        choice = "slime-train/nonzero_std"

Group filters, sample filters, reward shapers and batch transforms are pure, fast functions. A check that they share is
a function here; each contract gives it a number.
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
    """Base of the contracts of pure functions."""

    arguments: ClassVar[tuple[str, ...]]
    """Names of the arguments that the core passes."""
    limit_s: ClassVar[float] = STALL_S
    """Seconds that one call may take."""

    def inputs(self) -> list[list[Group]]:
        """Groups for the kit's calls: a list for each call."""
        return [varied_groups()]

    def unusual_inputs(self) -> list[list[Group]]:
        """Groups that are rare in a run: a list for each call."""
        return [[], odd_groups()]

    def invoke(self, function: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401  # what a factory returned
        """The function's result, unchecked."""
        raise NotImplementedError

    def require_valid(self, result: object, groups: Sequence[Group]) -> object:
        """The result, validated as in a run."""
        raise NotImplementedError

    def reasons(self, result: Any) -> list[str]:  # noqa: ANN401  # each contract has its own type
        """The reasons in a result."""
        raise NotImplementedError

    def _result_for(self, groups: Sequence[Group]) -> object:
        return self.require_valid(self.invoke(self.build(), copy.deepcopy(groups)), groups)


Deciding = DecisionContract[Any]


def test_the_factory_builds_a_plain_function(self: Deciding) -> None:
    """The factory returns a plain `def` with the arguments of its role: it computes, and awaits nothing."""
    require_plain_def(self.build(), *self.arguments)


def test_the_return_value_is_valid(self: Deciding) -> None:
    """Return the type that the role's Protocol specifies, about the given groups only. A plain bool is not valid."""
    for groups in self.inputs():
        self._result_for(groups)


def test_it_does_not_change_its_arguments(self: Deciding) -> None:
    """The core applies the result. Do not sort, pop or change the arguments."""
    for groups in self.inputs():
        require_unchanged(groups, lambda passed: self.invoke(self.build(), passed))


def test_the_same_arguments_get_the_same_result(self: Deciding) -> None:
    """A resumed run repeats calls. Keep no state between calls, and draw random numbers from `setup.seed`."""
    function, inputs = self.build(), self.inputs()
    first, second = ([repr(self.invoke(function, copy.deepcopy(groups))) for groups in inputs] for _ in range(2))
    fresh = [repr(self.invoke(self.build(), copy.deepcopy(groups))) for groups in inputs[::-1]][::-1]
    require(first == second == fresh, "a second call with the same groups returned another result; expected the same")


def test_a_call_is_fast(self: Deciding) -> None:
    """The run waits for the result. Compute little, and do not read files or the network."""
    function, groups = self.build(), self.inputs()[0]
    require_quick(lambda: self.invoke(function, copy.deepcopy(groups)), self.limit_s)


def test_it_accepts_unusual_groups(self: Deciding) -> None:
    """Accept an empty list of groups, rewards that are dicts, and unscored, failed, empty or removed samples."""
    for groups in self.unusual_inputs():
        self._result_for(groups)


def test_reasons_are_few_and_short(self: Deciding) -> None:
    """Reasons become metrics. Name the type of problem ("zero_std"), without values of the group."""
    require_countable([reason for groups in self.inputs() for reason in self.reasons(self._result_for(groups))])


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
    """Decorator: add the first `count` shared checks, numbered from PREFIX-001, unless the class defines them."""

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
    """Contract of group filters: inherit it and set `choice`."""

    kind = GroupFilterSpec
    arguments = ("group", "ctx")
    limit_s = BLOCK_S
    groups: ClassVar[Sequence[Group] | None] = None
    """Finished groups, of which the filter keeps at least one; None: groups of the kit."""

    @check("GFL-007", needs=("GFL-002",))
    def test_reasons_are_few_and_short(self) -> None:
        """Reasons become metrics. Name the type of problem ("zero_std"), without values of the group."""
        inputs = [*self.inputs(), *([group] for group in varied_groups())]
        require_countable([reason for groups in inputs for reason in self.reasons(self._result_for(groups))])

    @check("GFL-008", needs=("GFL-002",))
    def test_it_keeps_at_least_one_group(self) -> None:
        """If a filter drops every group, a run draws prompts forever. If it keeps only special groups, set `groups`."""
        inputs = self.inputs()
        keeps_one = any(not isinstance(self._result_for(groups), Drop) for groups in inputs)
        require(keeps_one, f"it dropped all of {len(inputs)} different groups; expected at least one to be kept")

    def inputs(self) -> list[list[Group]]:
        """One call for each group."""
        return [[group] for group in self.groups or varied_groups()]

    def unusual_inputs(self) -> list[list[Group]]:
        """One call for each unusual group."""
        return [[group] for group in odd_groups()]

    def invoke(self, function: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The filter's decision."""
        return function(groups[0], CONTEXT)

    def require_valid(self, result: object, groups: Sequence[Group]) -> object:
        """See `check_decision`."""
        return check_decision(result, plugin=self.registered.plugin, group=groups[0])

    def reasons(self, result: Any) -> list[str]:  # noqa: ANN401
        """The reason to drop the group, if any."""
        return [result.reason] if isinstance(result, Drop | KeepIfShort) else []


@numbered("SFL", 7)
class SampleFilterContract(DecisionContract[SampleFilterSpec]):
    """Contract of sample filters: inherit it and set `choice`."""

    kind = SampleFilterSpec
    arguments = ("groups", "ctx")

    def unusual_inputs(self) -> list[list[Group]]:
        """Calls without groups, with unusual groups, and with a sample that is already removed."""
        removed = varied_groups()[:2]
        removed[0].samples[0].remove_sample = True
        return [*super().unusual_inputs(), removed]

    def invoke(self, function: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The filter's removals."""
        return function(groups, CONTEXT)

    def require_valid(self, result: object, groups: Sequence[Group]) -> object:
        """See `check_removals`."""
        return check_removals(result, plugin=self.registered.plugin, groups=groups)

    def reasons(self, result: Any) -> list[str]:  # noqa: ANN401
        """The reason for each removed sample."""
        return [removal.reason for removal in result]


@numbered("SHP", 6)
class RewardShaperContract(DecisionContract[RewardShaperSpec]):
    """Contract of reward shapers: inherit it and set `choice`."""

    kind = RewardShaperSpec
    arguments = ("groups", "ctx")

    @check("SHP-003", needs=("SHP-002",))
    def test_it_does_not_change_its_arguments(self) -> None:
        """Samples keep their raw rewards, for metrics. Return new rewards, and change no argument."""
        before = raw(varied_groups())
        ctx = ShapeContext(rollout_id=3, rewards=before)
        require_unchanged(varied_groups(), lambda passed: self._shaper()(passed, ctx))
        require(before == raw(varied_groups()), "it changed ctx.rewards; return new lists")

    @check("SHP-007", needs=("SHP-002",))
    def test_it_starts_from_the_previous_rewards(self) -> None:
        """Several shapers run in a chain. Compute from `ctx.rewards`, not from `sample.reward`."""
        groups = varied_groups()
        other = raw(groups)
        for row in other:
            for position, reward in enumerate(row):
                row[position] = None if reward is None else (position + 1) * reward + position**2
        shaped = self._shaper()(groups, ShapeContext(rollout_id=3, rewards=copy.deepcopy(other)))
        shaped = check_shaped(shaped, plugin=self.registered.plugin, groups=groups, before=other)
        same = shaped == self._result_for(groups)
        require(not same, "different ctx.rewards gave the same result; compute it from ctx.rewards")

    def invoke(self, function: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The shaped rewards of the samples."""
        return function(groups, ShapeContext(rollout_id=3, rewards=raw(groups)))

    def require_valid(self, result: object, groups: Sequence[Group]) -> object:
        """See `check_shaped`."""
        return check_shaped(result, plugin=self.registered.plugin, groups=groups, before=raw(groups))

    def _shaper(self) -> Callable[[Sequence[Group], ShapeContext], object]:
        function: Any = self.build()
        return function  # type: ignore[no-any-return]  # SHP-001 has checked its signature


def raw(groups: Sequence[Group]) -> Rewards:
    """The rewards that the first shaper of a chain receives."""
    return [[None if sample.reward is None else scalar_reward(sample) for sample in group.samples] for group in groups]


@numbered("BTR", 6)
class BatchTransformContract(DecisionContract[BatchTransformSpec]):
    """Contract of batch transforms: inherit it and set `choice`."""

    kind = BatchTransformSpec
    arguments = ("sample", "group", "ctx")
    groups: ClassVar[Sequence[Group] | None] = None
    """Finished groups that the transform can read; None: groups of the kit."""

    @check("BTR-005", needs=("BTR-001",))
    def test_a_call_is_fast(self) -> None:
        """It runs in the driver, once per sample. Compute little, and do not read files or the network."""
        function: Any = self.build()
        (group,) = self.inputs()[0]
        ctx = ShapeContext(rollout_id=3, rewards=raw([group]))
        require_quick(lambda: function(copy.deepcopy(group.samples[0]), group, ctx), self.limit_s)

    def inputs(self) -> list[list[Group]]:
        """One call for each sample of each group."""
        inputs = [[group] for group in self.groups or varied_groups()]
        if self.automatic:
            try:
                self.invoke(self.build(), copy.deepcopy(inputs[0]))
            except SkipTest:
                raise
            except Exception as error:
                raise SkipTest(f"needs the author's `groups`: the kit's groups raised {error!r}") from error
        return inputs

    def unusual_inputs(self) -> list[list[Group]]:
        """Calls with unusual groups.

        Raises:
            SkipTest: the author has set `groups`.
        """
        if self.groups is not None:
            raise SkipTest("the contract sets `groups`")
        return [[group] for group in odd_groups()]

    def invoke(self, function: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """The columns of each sample."""
        (group,) = groups
        return [function(sample, group, ShapeContext(rollout_id=3, rewards=raw(groups))) for sample in group.samples]

    def require_valid(self, result: Any, groups: Sequence[Group]) -> object:  # noqa: ANN401
        """See `check_columns`."""
        for columns, sample in zip(result, groups[0].samples, strict=True):
            check_columns(columns, plugin=self.registered.plugin, sample=sample, grains=self.spec.columns)
        return result


VERSION = 9
"""Current weight version in the calls."""
FIRST_DRAW = 1_000
"""Number of the first draw. Draws are counted over a whole run, so that they differ from positions in the buffer."""
HELD = (0, 1, 2, 7, 64)
WANT = (0, 1, 3, 64, 1_000)


class BufferFilterContract(RoleContract[BufferFilterSpec]):
    """Contract of buffer filters: inherit it and set `choice`."""

    kind = BufferFilterSpec

    @check("BFL-001")
    def test_the_factory_builds_a_buffer_filter(self) -> None:
        """The core calls `buffer_filter.select(groups, want, ctx)`, which is a plain `def`."""
        built: object = self._build()
        require(isinstance(built, BufferFilter), f"the factory returned {built!r}, which has no method `select`")

    @check("BFL-002", needs=("BFL-001",))
    def test_a_selection_contains_only_valid_positions(self) -> None:
        """Select at most `want` distinct positions in `groups`, and do not drop a selected one.

        A position is an index into `groups`, not `group.id.draw`, which counts over the whole run. Groups may have any
        size and age, equal rewards, or missing rewards.
        """
        for groups, want in (*_situations(), *((odd_groups(), want) for want in WANT), (varied_groups(), 3)):
            returned = self._select(groups, want)
            check_selection(returned, plugin=self.registered.plugin, held=len(groups), want=want)

    @check("BFL-003", needs=("BFL-001",))
    def test_it_does_not_change_its_arguments(self) -> None:
        """The filter selects groups, and the buffer removes them. Do not sort, pop or change the arguments."""
        for groups, want in _situations():
            passed, before = list(groups), _snapshot(groups)
            self._select(passed, want)
            require(passed == groups, "select() changed the sequence of groups; sort a copy")
            require(_snapshot(passed) == before, "select() changed a group; change a copy")

    @check("BFL-004", needs=("BFL-001",))
    def test_the_same_arguments_get_the_same_result(self) -> None:
        """A resumed run repeats calls. Keep no state between calls, and draw random numbers from `setup.seed`."""
        for groups, want in _situations():
            built = self._build()
            first, second = (built.select(groups, want, _context()) for _ in range(2))
            fresh = self._select(groups, want)
            same = _positions(first) == _positions(second) == _positions(fresh)
            calls = f"{first}, then {second}; a new filter returned {fresh}"
            require(same, f"select({len(groups)} groups, want={want}) returned {calls}; expected the same each time")

    @check("BFL-005", needs=("BFL-001",))
    def test_fresh_groups_are_selected(self) -> None:
        """If the buffer holds 64 groups of the current weights, select at least one: otherwise training stops."""
        groups = [make_group(FIRST_DRAW + draw, weight_version=VERSION) for draw in range(64)]
        require(len(self._select(groups, 8).take) > 0, "it selected none of 64 groups of the current weights, want=8")

    def _build(self) -> BufferFilter:
        return self.spec.factory(self.make_settings(), self.setup())

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
