r"""The contracts of rewards (REW-001 to REW-019) and of group rewards (GRW-001 to GRW-016).

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

    class TestShortest(GroupRewardContract):
        choice = "slime-reward-rank/shortest"
        samples = [make_sample("4"), make_sample("It is 4"), make_sample("four")]

A check that both contracts share is a function here; each contract gives it a number. Slow rewards need no
`patience`: each call may take as long as its spec allows.
"""

import asyncio
import contextlib
import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Generic, TypeVar, cast
from unittest import SkipTest

from slime_core.catalog import check_verdict
from slime_core.catalog.checks import as_verdict, check_verdicts
from slime_core.processes import isolation_of
from slime_core.roles import GroupRewardSpec, Isolation, RewardContext, RewardSpec
from slime_core.sample import Sample
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_testing.blocking import BLOCK_S, blocks
from slime_testing.calling import (
    FIELDS,
    HANG_S,
    LEAK_BYTES,
    RAISED,
    CallFactory,
    InjectedError,
    block_network,
    call,
    capture_stdout,
    failure_in_fork,
    find_leaks,
    ignores_cancellation,
    in_thread,
    leaked_bytes,
    spy_on,
)
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_called_as, samples_of_the_kit
from slime_testing.samples import HOSTILE, make_sample

SpecT = TypeVar("SpecT", RewardSpec, GroupRewardSpec)
CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)
REASON_CHARACTERS = 200
"""Maximum characters of a reason, and of a component's name."""
COMPONENTS = 64
"""Most components of a score."""
FORK_S = 5.0
"""Seconds after a call's time limit until its process is killed."""
INJECTED = ("response", "label", "prompt", "tokens", "metadata")
"""Fields whose reading the kit makes fail, one at a time."""
RESPONSES = ("4", "It is 4.", "5", "", "4")
"""Responses in the kit's group."""


class ScorerContract(RoleContract[SpecT], Generic[SpecT]):
    """Base of the contracts of rewards and group rewards. For a reward, each group has one sample."""

    deterministic: ClassVar[bool] = True
    """Whether the same samples and seed always get the same verdicts. Set False for judges that sample."""

    def _groups(self) -> list[list[Sample]]:
        raise NotImplementedError

    def _subject(self, samples: list[Sample]) -> object:
        raise NotImplementedError

    def _verdicts(self, returned: object, samples: list[Sample]) -> list[Verdict]:
        raise NotImplementedError

    def _usable(self) -> list[list[Sample]]:
        groups = self._groups()
        if self.automatic:
            with samples_of_the_kit("`good` and `bad`" if self.kind is RewardSpec else "`samples`"):
                self._answer(groups[0])
        return groups

    async def _ask(self, scorer: object, samples: list[Sample]) -> list[Verdict]:
        group = copy.deepcopy(samples)
        return self._verdicts(await call(scorer, self._subject(group), CONTEXT), group)

    def _answer(self, samples: list[Sample]) -> list[Verdict]:
        return asyncio.run(self._ask(self.build_isolated(), samples))

    def _call_factory(self, samples: list[Sample] | None = None) -> CallFactory:
        scorer, group = self.build(), samples or self._groups()[0]

        async def make_call() -> object:
            async with asyncio.timeout(self.spec.timeout_s):
                return await call(scorer, self._subject(copy.deepcopy(group)), CONTEXT)

        return make_call

    def _hostile(self) -> dict[str, list[Sample]]:
        groups = {name: copy.deepcopy(self._usable()[0]) for name in HOSTILE}
        for name, samples in groups.items():
            samples[0].response = HOSTILE[name]
        return groups

    def _on_the_loop(self) -> bool:
        return isolation_of(self.spec, self.build()) is Isolation.LOOP

    def _require_on_the_loop(self) -> None:
        if not self._on_the_loop():
            raise SkipTest("it is a plain `def`, which runs in a worker process")

    def _require_deterministic(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract sets deterministic = False")


Scorer = ScorerContract[RewardSpec] | ScorerContract[GroupRewardSpec]


def test_it_does_not_change_the_samples(self: Scorer) -> None:
    """Other rewards and the trainer read the same samples. Use `copy.deepcopy` before you change or sort them."""
    for samples in self._usable():
        group = copy.deepcopy(samples)
        order, before = list(map(id, group)), [sample.to_dict() for sample in group]
        asyncio.run(call(self.build(), self._subject(group), CONTEXT))
        require(order == list(map(id, group)), "it changed the list of samples; sort or extend a copy")
        pairs = [(one, other.to_dict()) for one, other in zip(before, group, strict=True)]
        changed = [name for one, other in pairs for name, value in one.items() if other[name] != value]
        require(not changed, f"it changed {', '.join(changed)} of a sample; change a copy")


def test_the_same_samples_get_the_same_verdict(self: Scorer) -> None:
    """Draw random numbers only from `ctx.seed`, and keep no state between calls.

    If verdicts must vary, set `deterministic = False` in the contract.
    """
    self._require_deterministic()
    scorer, samples = self.build_isolated(), self._usable()[0]

    async def repeated() -> list[list[Verdict]]:
        return [await self._ask(scorer, samples) for _ in range(3)]

    answers = [*asyncio.run(repeated()), self._answer(samples)]
    same = all(each == answers[0] for each in answers)
    require(same, f"four calls with the same samples and seed returned different verdicts: {answers}")


def test_concurrent_calls_do_not_mix(self: Scorer) -> None:
    """A rollout scores hundreds of samples concurrently. Keep the data of a call in local variables."""
    self._require_deterministic()
    scorer, groups = self.build_isolated(), self._usable()
    groups = [part for each in groups for part in ((each, each[:1], each[1:]) if len(each) > 1 else (each,))]
    expected = [self._answer(samples) for samples in groups] * 4

    async def at_once() -> list[list[Verdict]]:
        return await asyncio.gather(*(self._ask(scorer, samples) for samples in groups * 4))

    differing = sum(one != other for one, other in zip(asyncio.run(at_once()), expected, strict=True))
    require(differing == 0, f"{differing} of {len(expected)} concurrent calls returned other verdicts than alone")


def test_it_does_not_block_the_event_loop(self: Scorer) -> None:
    """All other samples wait while a reward blocks the event loop. Use `await` for I/O, and `def` for computations.

    A plain `def` runs in a worker process, which is killed at its time limit.
    """
    self._require_on_the_loop()
    for samples in self._groups():
        if stall := blocks(self._call_factory(samples), BLOCK_S):
            raise AssertionError(stall)


def test_it_works_outside_the_main_thread(self: Scorer) -> None:
    """The event loop may run in another thread. Do not use `signal.alarm` or signal handlers, which fail there."""
    samples = self._usable()[0]
    expected = self._answer(samples)
    try:
        found = in_thread(lambda: self._answer(samples), self.spec.timeout_s)
    except Exception as error:
        raise AssertionError(f"it raised {error!r} outside the main thread") from error
    same = not self.deterministic or found == expected
    require(same, f"it returned {found} outside the main thread; expected {expected}")


def test_it_handles_hostile_responses(self: Scorer) -> None:
    """A policy in training may write anything. Limit lengths and nesting depths, and do not evaluate text as code."""
    hostile, limit_s = self._hostile(), self.spec.timeout_s
    # One fork runs all responses. Only if it does not return, one fork per response finds the response at fault.
    alone = self._on_the_loop() and failure_in_fork(partial(_answer_all, self, hostile.values()), limit_s + FORK_S)
    for name, samples in hostile.items():
        if alone:
            failure = failure_in_fork(partial(self._answer, samples), limit_s + FORK_S)
            require(not failure, f"response {name!r}: {failure}")
        started = time.perf_counter()
        try:
            in_thread(partial(self._answer, samples), limit_s + 1)
        except Exception as error:
            failure = f"no verdict within {limit_s} s" if isinstance(error, TimeoutError) else f"it raised {error!r}"
            raise AssertionError(f"response {name!r}: {failure}") from error
        slow = self._on_the_loop() and time.perf_counter() - started > 0.2
        if slow and (stall := blocks(self._call_factory(samples))):
            raise AssertionError(f"response {name!r}: {stall}")


def _answer_all(self: Scorer, groups: Iterable[list[Sample]]) -> None:
    for samples in groups:
        with contextlib.suppress(BaseException):
            self._answer(samples)


def test_a_call_can_be_cancelled(self: Scorer) -> None:
    """Ctrl-C and timeouts cancel the call. Do not catch `asyncio.CancelledError`, or raise it again."""
    self._require_on_the_loop()
    refuses = ignores_cancellation(self._call_factory())
    require(not refuses, "the call still ran one second after task.cancel(); expected asyncio.CancelledError")


def test_an_error_gets_no_score(self: Scorer) -> None:
    """Let errors propagate, or return `Unscored(reason)`. `except Exception: return Score(0.0)` hides every bug."""
    for name in INJECTED:
        samples = [spy_on(sample, broken=(name,)) for sample in self._usable()[0]]
        try:
            returned = asyncio.run(call(self.build(), self._subject(cast(list[Sample], samples)), CONTEXT))
        except InjectedError:
            continue
        hidden = any(name in sample.read for sample in samples) and _all_scores(returned)
        require(not hidden, f"reading {name} raised RuntimeError, but it returned {returned}; expected no score")


def _all_scores(returned: object) -> bool:
    answers = returned if isinstance(returned, list | tuple) else [returned]
    return all(isinstance(each, Score) for each in answers)


def test_a_refused_connection_gets_no_score(self: Scorer) -> None:
    """If a server is unreachable, let the error propagate, or return `Unscored(reason, retryable=True)`."""
    samples = self._usable()[0]
    with block_network() as attempts:
        try:
            returned: object = asyncio.run(self._call_factory(samples)())
        except Exception as error:
            returned = Unscored(type(error).__name__)
    if not attempts:
        raise SkipTest("it opens no connection")
    answers = returned if isinstance(returned, list | tuple) else [returned]
    scored = any(isinstance(each, Score) for each in answers)
    require(not scored, f"every connection was refused, but it returned {returned}; expected no score")


def test_calls_leave_nothing_running(self: Scorer) -> None:
    """A run makes thousands of calls. End every task, process and thread that a call starts (`with`, `join`)."""
    left = find_leaks(self._call_factory)
    require(not left, f"it leaks {left}")


def test_calls_do_not_leak_memory(self: Scorer) -> None:
    """A run scores millions of samples. Limit caches (`lru_cache(maxsize=64)`), and keep no samples."""
    scorer, group, number = self.build(), self._groups()[0], 0

    async def another() -> object:
        nonlocal number
        number += 1
        samples = copy.deepcopy(group)
        samples[0].response = f"{number} {'x' * 6 * LEAK_BYTES}"
        return await call(scorer, self._subject(samples), CONTEXT)

    leak = leaked_bytes(another)
    require(leak < LEAK_BYTES, f"each call leaks {leak / 1024:.0f} KiB; at most {LEAK_BYTES // 1024} KiB is allowed")


def test_calls_leak_no_resources(self: Scorer) -> None:
    """A run makes thousands of calls. End processes and threads, limit caches, and keep no samples."""
    test_calls_leave_nothing_running(self)
    test_calls_do_not_leak_memory(self)


def test_it_prints_nothing(self: Scorer) -> None:
    """Standard output is for the command's own output (`slime train --json`). Use `logging` instead of `print`."""
    text = capture_stdout(self._call_factory())
    require(not text, f"it printed {text[:80]!r}; use `logging`")


def test_a_call_changes_no_global_state(self: Scorer) -> None:
    """Driver and plugins share a process. Do not seed `random`, replace functions or change global settings."""
    self._require_on_the_loop()
    self._require_nothing_changed(self._call_factory())


class RewardContract(ScorerContract[RewardSpec]):
    """Contract of rewards: inherit it, and set `choice`, a good and a bad sample."""

    kind = RewardSpec
    good: ClassVar[Sample | None] = None
    """A finished sample with a higher reward than `bad`."""
    bad: ClassVar[Sample | None] = None
    """A finished sample with a lower reward than `good`."""
    needs_label: ClassVar[bool] = True
    """Whether a sample without a label gets no score. Set False if the reward reads labels but does not need them."""

    @check("REW-001")
    def test_the_factory_builds_a_reward(self) -> None:
        """The core calls `reward(sample, ctx)`. Write an `async def` that awaits, or a plain `def` in a worker process.

        A spec with `isolation=Isolation.LOOP` needs an `async def`.
        """
        require_called_as(self.build(), "sample", "ctx")
        self.build_isolated()

    @check("REW-002", needs=("REW-001", "REW-007", "REW-017"))
    def test_it_returns_a_verdict(self) -> None:
        """Return a float, `Score(value)`, `Unscored(reason)` or `NotApplicable()`."""
        for samples in self._usable():
            self._answer(samples)

    @check("REW-004", needs=("REW-002",), decisive=True)
    def test_the_good_sample_scores_higher(self) -> None:
        """`good` must score higher than `bad`: otherwise training learns nothing, or the opposite."""
        if self.automatic and not (self.good and self.bad):
            raise SkipTest(self._why_undecided())
        (good,), (bad,) = (self._answer([self.author_value(name, getattr(self, name))]) for name in ("good", "bad"))
        both = f"`good` got {good} and `bad` got {bad}"
        require(isinstance(good, Score) and isinstance(bad, Score), f"{both}; expected two scores")
        require(cast(Score, good).value > cast(Score, bad).value, f"{both}; expected a higher score for `good`")

    @check("REW-011", needs=("REW-002",))
    def test_a_missing_label_gets_no_score(self) -> None:
        """If the label is None, return `Unscored(reason)`. A score of 0 would punish the model for missing data.

        If the reward reads the label but does not need it, set `needs_label = False`.
        """
        if not self.needs_label:
            raise SkipTest("the contract sets needs_label = False")
        if "label" not in self._fields_read():
            raise SkipTest("it does not read the label")
        sample = copy.deepcopy(self._usable()[0][0])
        sample.label = None
        (returned,) = self._answer([sample])
        require(not isinstance(returned, Score), f"label None got {returned}; expected Unscored(reason)")

    @check("REW-014", needs=("REW-009",))
    def test_reasons_and_component_names_are_short(self) -> None:
        """Reasons and component names become metrics. Keep them few and short, without text of the response."""
        for samples in (*self._usable(), *self._hostile().values()):
            match self._answer(samples)[0]:
                case Unscored(reason=reason):
                    self._require_at_most(REASON_CHARACTERS, len(reason), "characters of a reason")
                case Score(components=components):
                    self._require_at_most(COMPONENTS, len(components), "components of a score")
                    longest = max(map(len, components), default=0)
                    self._require_at_most(REASON_CHARACTERS, longest, "characters of a component's name")
                case NotApplicable():
                    pass

    @check("REW-017", needs=("REW-001", "REW-007"))
    def test_it_reads_only_the_declared_fields(self) -> None:
        """A worker process receives only the fields in `spec.fields`. List there all fields that the reward reads."""
        if self._on_the_loop():
            raise SkipTest("it runs on the event loop, where samples have all fields")
        missing = ", ".join(sorted(self._fields_read() - set(self.spec.fields)))
        require(not missing, f"it reads {missing}; `fields` of its spec lists only {', '.join(self.spec.fields)}")

    def verdict_of(self, sample: Sample, **settings: object) -> Verdict:
        """The reward's verdict on a sample, with these settings, for additional tests."""
        reward = self.spec.factory(self.make_settings(**settings), self.setup())
        return cast(Verdict, as_verdict(asyncio.run(call(reward, sample, CONTEXT))))

    @staticmethod
    def _require_at_most(limit: int, count: int, what: str) -> None:
        require(count <= limit, f"{count} {what}; at most {limit} are allowed")

    def _why_undecided(self) -> str:
        answers = [self._answer(samples)[0] for samples in self._usable()]
        scored = any(isinstance(each, Score) for each in answers)
        why = "needs the author's `good` and `bad`: inherit RewardContract and set them"
        return why if scored else f"{why}; the kit's samples got no score, but {answers[0]} and {answers[1]}"

    def _groups(self) -> list[list[Sample]]:
        return [[self.good or make_sample("4")], [self.bad or make_sample("5")]]

    def _subject(self, samples: list[Sample]) -> object:
        return samples[0]

    def _verdicts(self, returned: object, samples: list[Sample]) -> list[Verdict]:
        return [check_verdict(returned, plugin=self.registered.plugin, sample=samples[0])]

    def _fields_read(self) -> set[str]:
        sample = spy_on(self._groups()[0][0])
        limit_s = min(self.spec.timeout_s, HANG_S)
        with contextlib.suppress(*RAISED):
            in_thread(lambda: asyncio.run(call(self.build(), sample, CONTEXT)), limit_s)
        return sample.read & FIELDS


class GroupRewardContract(ScorerContract[GroupRewardSpec]):
    """Contract of group rewards: inherit it, and set `choice` and `samples`."""

    kind = GroupRewardSpec
    samples: ClassVar[Sequence[Sample] | None] = None
    """Finished samples of one group; None: samples of the kit."""
    order_matters: ClassVar[bool] = False
    """Whether a sample's verdict may depend on its position in the group."""

    @check("GRW-001")
    def test_the_factory_builds_a_group_reward(self) -> None:
        """The core calls `reward(samples, ctx)`. Write an `async def` that awaits, or a plain `def`."""
        require_called_as(self.build(), "samples", "ctx")
        self.build_isolated()

    @check("GRW-002", needs=("GRW-001", "GRW-006"))
    def test_it_returns_one_verdict_per_sample(self) -> None:
        """For groups of any size, return a list with one `Score`, `Unscored` or `NotApplicable` per sample."""
        (samples,) = self._usable()
        for group in (samples, samples[:1], [*samples, *samples]):
            self._answer(group)

    @check("GRW-016", needs=("GRW-002",), decisive=True)
    def test_it_scores_at_least_one_sample(self) -> None:
        """A group without scores is not trained on. Return `Unscored` only for samples that cannot be judged."""
        answers = self._answer(self._usable()[0])
        if any(isinstance(each, Score) for each in answers):
            return
        if self.samples is None:
            raise SkipTest(f"needs the author's `samples`: the kit's samples got no score, but {answers[0]}")
        require(False, f"no sample of `samples` got a score, but {answers[0]}; expected at least one Score")

    @check("GRW-005", needs=("GRW-002", "GRW-004"))
    def test_verdicts_do_not_depend_on_the_order_of_samples(self) -> None:
        """Return each verdict at its sample's position; the order of samples in a group is arbitrary.

        If verdicts must depend on the order, set `order_matters = True`.
        """
        self._require_deterministic()
        if self.order_matters:
            raise SkipTest("the contract sets order_matters = True")
        (samples,) = self._usable()
        backwards = self._answer(samples[::-1])[::-1]
        require(backwards == self._answer(samples), "samples in reverse order got other verdicts; expected the same")

    def verdicts_of(self, samples: Sequence[Sample], **settings: object) -> list[Verdict]:
        """The group reward's verdicts on a group, with these settings, for additional tests."""
        reward = self.spec.factory(self.make_settings(**settings), self.setup())
        return list(cast(Sequence[Verdict], asyncio.run(call(reward, samples, CONTEXT))))

    def _groups(self) -> list[list[Sample]]:
        return [list(self.samples or [make_sample(each, index=index) for index, each in enumerate(RESPONSES)])]

    def _subject(self, samples: list[Sample]) -> object:
        return samples

    def _verdicts(self, returned: object, samples: list[Sample]) -> list[Verdict]:
        return list(check_verdicts(returned, plugin=self.registered.plugin, samples=samples))


_NUMBERS: Mapping[Callable[[Scorer], None], Sequence[str]] = {
    test_it_does_not_change_the_samples: ("REW-003 REW-002", "GRW-003 GRW-002"),
    test_the_same_samples_get_the_same_verdict: ("REW-005 REW-002", "GRW-004 GRW-002"),
    test_concurrent_calls_do_not_mix: ("REW-006 REW-002 REW-005", "GRW-007 GRW-002 GRW-004"),
    test_it_does_not_block_the_event_loop: ("REW-007 REW-001", "GRW-006 GRW-001"),
    test_it_works_outside_the_main_thread: ("REW-008 REW-002 REW-005", "GRW-008 GRW-002"),
    test_it_handles_hostile_responses: ("REW-009 REW-002 REW-008", "GRW-009 GRW-002 GRW-008"),
    test_a_call_can_be_cancelled: ("REW-010 REW-002", "GRW-010 GRW-002"),
    test_an_error_gets_no_score: ("REW-012 REW-002", "GRW-011 GRW-002"),
    test_a_refused_connection_gets_no_score: ("REW-013 REW-002 REW-005", "GRW-012 GRW-002"),
    test_calls_leave_nothing_running: ("REW-015 REW-002",),
    test_calls_do_not_leak_memory: ("REW-016 REW-002 REW-015",),
    test_it_prints_nothing: ("REW-018 REW-002", "GRW-014 GRW-002"),
    test_a_call_changes_no_global_state: ("REW-019 REW-002", "GRW-015 GRW-002"),
    test_calls_leak_no_resources: ("GRW-013 GRW-002",),
}
"""Shared checks: for each contract, the check's number and the numbers of checks that it needs."""

for _method, _texts in _NUMBERS.items():
    for _text in _texts:
        _identity, *_needs = _text.split()
        _contract = RewardContract if _identity.startswith("REW") else GroupRewardContract
        setattr(_contract, _method.__name__, check(_identity, needs=tuple(_needs))(_method))
