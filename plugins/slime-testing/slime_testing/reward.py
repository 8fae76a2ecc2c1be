r"""The contracts of rewards (REW-001 to REW-019) and of group rewards (GRW-001 to GRW-016).

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

    class TestShortest(GroupRewardContract):
        choice = "slime-reward-rank/shortest"
        samples = [make_sample("4"), make_sample("It is 4"), make_sample("four")]

Each check that both contracts share is a function here; each contract gives it a number. Slow rewards need no
`patience`: each call gets the time that its spec allows.
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
    Act,
    InjectedError,
    call,
    fails_in_a_fork,
    in_thread,
    leaked_bytes,
    left_behind,
    printed,
    refused_network,
    refuses_cancellation,
    spied,
)
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_called_as, samples_of_the_kit
from slime_testing.samples import HOSTILE, make_sample

SpecT = TypeVar("SpecT", RewardSpec, GroupRewardSpec)
CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)
REASON_CHARACTERS = 200
"""Most characters of a reason, and of a component's name."""
COMPONENTS = 64
"""Most components of a score."""
FORK_S = 5.0
"""Seconds after a call's own time limit until its process is ended."""
INJECTED = ("response", "label", "prompt", "tokens", "metadata")
"""Fields that the kit makes unreadable, one at a time."""
RESPONSES = ("4", "It is 4.", "5", "", "4")
"""Responses of the kit's group."""


class ScorerContract(RoleContract[SpecT], Generic[SpecT]):
    """Base of the contracts of rewards and group rewards. A reward gets groups of one sample."""

    deterministic: ClassVar[bool] = True
    """Whether the same samples and seed always get the same verdicts; False for judges that sample."""

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
        given = copy.deepcopy(samples)
        return self._verdicts(await call(scorer, self._subject(given), CONTEXT), given)

    def _answer(self, samples: list[Sample]) -> list[Verdict]:
        return asyncio.run(self._ask(self.isolated(), samples))

    def _act(self, samples: list[Sample] | None = None) -> Act:
        scorer, given = self.built(), samples or self._groups()[0]

        async def act() -> object:
            async with asyncio.timeout(self.spec.timeout_s):
                return await call(scorer, self._subject(copy.deepcopy(given)), CONTEXT)

        return act

    def _hostile(self) -> dict[str, list[Sample]]:
        groups = {name: copy.deepcopy(self._usable()[0]) for name in HOSTILE}
        for name, samples in groups.items():
            samples[0].response = HOSTILE[name]
        return groups

    def _on_the_loop(self) -> bool:
        return isolation_of(self.spec, self.built()) is Isolation.LOOP

    def _require_on_the_loop(self) -> None:
        if not self._on_the_loop():
            raise SkipTest("it is a plain `def`, which does not run on the event loop")

    def _require_deterministic(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")


Scorer = ScorerContract[RewardSpec] | ScorerContract[GroupRewardSpec]


def test_it_does_not_change_the_samples(self: Scorer) -> None:
    """Other rewards and the trainer read the same samples: change and sort nothing (use `copy.deepcopy`)."""
    for samples in self._usable():
        given = copy.deepcopy(samples)
        order, before = list(map(id, given)), [sample.to_dict() for sample in given]
        asyncio.run(call(self.built(), self._subject(given), CONTEXT))
        require(order == list(map(id, given)), "it changed the list of samples that it was given")
        pairs = [(one, other.to_dict()) for one, other in zip(before, given, strict=True)]
        changed = [name for one, other in pairs for name, value in one.items() if other[name] != value]
        require(not changed, f"the reward changed {', '.join(changed)} of a sample")


def test_the_same_samples_get_the_same_verdict(self: Scorer) -> None:
    """Draw only from `ctx.seed`; keep no state between calls. If verdicts must vary, set `deterministic = False`."""
    self._require_deterministic()
    scorer, samples = self.isolated(), self._usable()[0]

    async def repeated() -> list[list[Verdict]]:
        return [await self._ask(scorer, samples) for _ in range(3)]

    answers = [*asyncio.run(repeated()), self._answer(samples)]
    require(all(each == answers[0] for each in answers), f"four calls, different answers: {answers}")


def test_concurrent_calls_do_not_mix(self: Scorer) -> None:
    """A rollout scores hundreds of samples at once: keep a call's data in local variables."""
    self._require_deterministic()
    scorer, groups = self.isolated(), self._usable()
    groups = [part for each in groups for part in ((each, each[:1], each[1:]) if len(each) > 1 else (each,))]
    expected = [self._answer(samples) for samples in groups] * 4

    async def at_once() -> list[list[Verdict]]:
        return await asyncio.gather(*(self._ask(scorer, samples) for samples in groups * 4))

    differing = sum(one != other for one, other in zip(asyncio.run(at_once()), expected, strict=True))
    require(differing == 0, f"{differing} of {len(expected)} answers differ from those given one by one")


def test_it_does_not_block_the_event_loop(self: Scorer) -> None:
    """All other samples wait while a reward computes: `await` I/O, and use `def` for computations.

    A plain `def` runs in a worker process, which is killed at its time limit.
    """
    self._require_on_the_loop()
    for samples in self._groups():
        if stall := blocks(self._act(samples), BLOCK_S):
            raise AssertionError(stall)


def test_it_works_outside_the_main_thread(self: Scorer) -> None:
    """Event loops also run in other threads: `signal.alarm` and signal handlers do not work there."""
    samples = self._usable()[0]
    expected = self._answer(samples)
    try:
        found = in_thread(lambda: self._answer(samples), self.spec.timeout_s)
    except Exception as error:
        raise AssertionError(f"in another thread it raised {error!r}") from error
    require(not self.deterministic or found == expected, f"in another thread it answered {found}, not {expected}")


def test_it_handles_hostile_responses(self: Scorer) -> None:
    """A policy in training may write anything: bound lengths and depths, and do not evaluate text."""
    hostile, limit_s = self._hostile(), self.spec.timeout_s
    # One fork runs all responses; only if it does not return, one fork per response shows which is at fault.
    alone = self._on_the_loop() and fails_in_a_fork(partial(_answer_all, self, hostile.values()), limit_s + FORK_S)
    for name, samples in hostile.items():
        if alone:
            why = fails_in_a_fork(partial(self._answer, samples), limit_s + FORK_S)
            require(not why, f"response {name!r}: {why}")
        started = time.perf_counter()
        try:
            in_thread(partial(self._answer, samples), limit_s + 1)
        except Exception as error:
            what = f"no answer in {limit_s} s" if isinstance(error, TimeoutError) else repr(error)
            raise AssertionError(f"response {name!r}: {what}") from error
        slow = self._on_the_loop() and time.perf_counter() - started > 0.2
        if slow and (stall := blocks(self._act(samples))):
            raise AssertionError(f"response {name!r}: {stall}")


def _answer_all(self: Scorer, groups: Iterable[list[Sample]]) -> None:
    for samples in groups:
        with contextlib.suppress(BaseException):
            self._answer(samples)


def test_a_call_can_be_cancelled(self: Scorer) -> None:
    """Ctrl-C and timeouts cancel the call: re-raise `asyncio.CancelledError`, or do not catch it at all."""
    self._require_on_the_loop()
    refuses = refuses_cancellation(self._act())
    require(not refuses, "one second after task.cancel() the call was not cancelled")


def test_an_error_gets_no_score(self: Scorer) -> None:
    """Raise errors, or return `Unscored(reason)`: `except Exception: return Score(0.0)` hides every bug."""
    for name in INJECTED:
        samples = [spied(sample, broken=(name,)) for sample in self._usable()[0]]
        try:
            returned = asyncio.run(call(self.built(), self._subject(cast(list[Sample], samples)), CONTEXT))
        except InjectedError:
            continue
        hidden = any(name in sample.read for sample in samples) and _all_scores(returned)
        require(not hidden, f"reading {name} raised RuntimeError, and the answer was {returned}")


def _all_scores(returned: object) -> bool:
    answers = returned if isinstance(returned, list | tuple) else [returned]
    return all(isinstance(each, Score) for each in answers)


def test_a_refused_connection_gets_no_score(self: Scorer) -> None:
    """If the judge is unreachable, raise the error or return `Unscored(reason, retryable=True)`."""
    samples = self._usable()[0]
    with refused_network() as attempts:
        try:
            returned: object = asyncio.run(self._act(samples)())
        except Exception as error:
            returned = Unscored(type(error).__name__)
    if not attempts:
        raise SkipTest("it opens no connection")
    answers = returned if isinstance(returned, list | tuple) else [returned]
    scored = any(isinstance(each, Score) for each in answers)
    require(not scored, f"every connection was refused, and the answer was {returned}")


def test_calls_leave_nothing_running(self: Scorer) -> None:
    """A run makes thousands of calls: wait for every process and thread that a call starts (`with`, `join`)."""
    left = left_behind(self._act)
    require(not left, f"{left} are still there")


def test_calls_do_not_leak_memory(self: Scorer) -> None:
    """A run scores millions of samples: bound caches (`lru_cache(maxsize=64)`), and keep no samples."""
    scorer, given, number = self.built(), self._groups()[0], 0

    async def another() -> object:
        nonlocal number
        number += 1
        samples = copy.deepcopy(given)
        samples[0].response = f"{number} {'x' * 6 * LEAK_BYTES}"
        return await call(scorer, self._subject(samples), CONTEXT)

    kept = leaked_bytes(another)
    require(kept < LEAK_BYTES, f"each call keeps {kept / 1024:.0f} KiB")


def test_calls_leak_no_resources(self: Scorer) -> None:
    """A run makes thousands of calls: wait for processes and threads, bound caches, and keep no samples."""
    test_calls_leave_nothing_running(self)
    test_calls_do_not_leak_memory(self)


def test_it_prints_nothing(self: Scorer) -> None:
    """Standard output belongs to the command (`slime train --json`): use `logging`."""
    text = printed(self._act())
    require(not text, f"it printed {text[:80]!r}")


def test_a_call_changes_no_global_state(self: Scorer) -> None:
    """Driver and plugins share the process: do not seed `random`, replace functions or change global settings."""
    self._require_on_the_loop()
    self._require_nothing_changed(self._act())


class RewardContract(ScorerContract[RewardSpec]):
    """Inherit, name the reward, and set a good and a bad sample."""

    kind = RewardSpec
    good: ClassVar[Sample | None] = None
    """A finished sample with a higher reward than `bad`."""
    bad: ClassVar[Sample | None] = None
    """A finished sample."""
    needs_label: ClassVar[bool] = True
    """Whether a sample without a label gets no score; False for rewards that read labels but do not need them."""

    @check("REW-001")
    def test_the_factory_builds_a_reward(self) -> None:
        """The core calls `reward(sample, ctx)`: an `async def` that awaits, or a plain `def`, which the core isolates.

        A spec with `isolation=Isolation.LOOP` needs an `async def`.
        """
        require_called_as(self.built(), "sample", "ctx")
        self.isolated()

    @check("REW-002", needs=("REW-001", "REW-007", "REW-017"))
    def test_it_returns_a_verdict(self) -> None:
        """Return a float, `Score(value)`, `Unscored(reason)` or `NotApplicable()`, and nothing else."""
        for samples in self._usable():
            self._answer(samples)

    @check("REW-004", needs=("REW-002",), decisive=True)
    def test_the_good_sample_scores_higher(self) -> None:
        """A reward that does not distinguish the two samples teaches nothing, or the opposite."""
        if self.automatic and not (self.good and self.bad):
            raise SkipTest(self._said_of_the_kit())
        (good,), (bad,) = (self._answer([self.own(name, getattr(self, name))]) for name in ("good", "bad"))
        require(isinstance(good, Score) and isinstance(bad, Score), f"expected two scores, got {good} and {bad}")
        ordered = cast(Score, good).value > cast(Score, bad).value
        require(ordered, f"the good sample got {good}, the bad one {bad}")

    @check("REW-011", needs=("REW-002",))
    def test_a_missing_label_gets_no_score(self) -> None:
        """Return `Unscored(reason)` without a gold answer: a zero would punish the model for a fault of the data.

        If the reward reads the label but does not need it, set `needs_label = False`.
        """
        if not self.needs_label:
            raise SkipTest("the contract says needs_label = False")
        if "label" not in self._fields_read():
            raise SkipTest("it does not read the label")
        sample = copy.deepcopy(self._usable()[0][0])
        sample.label = None
        (returned,) = self._answer([sample])
        require(not isinstance(returned, Score), f"label None was scored: {returned}; expected Unscored(reason)")

    @check("REW-014", needs=("REW-009",))
    def test_reasons_and_component_names_are_short(self) -> None:
        """Reasons and component names become metrics: keep them short and few, and never use the response."""
        for samples in (*self._usable(), *self._hostile().values()):
            match self._answer(samples)[0]:
                case Unscored(reason=reason):
                    require(len(reason) <= REASON_CHARACTERS, f"a reason of {len(reason)} characters")
                case Score(components=components):
                    require(len(components) <= COMPONENTS, f"a score of {len(components)} components")
                    longest = max(map(len, components), default=0)
                    require(longest <= REASON_CHARACTERS, f"a component's name of {longest} characters")
                case NotApplicable():
                    pass

    @check("REW-017", needs=("REW-001", "REW-007"))
    def test_it_reads_only_the_declared_fields(self) -> None:
        """In a worker process a sample has only the fields in `spec.fields`: name all fields that you read."""
        if self._on_the_loop():
            raise SkipTest("it runs on the event loop, so it has every field")
        unnamed = self._fields_read() - set(self.spec.fields)
        require(not unnamed, f"it reads {', '.join(sorted(unnamed))}; fields names {', '.join(self.spec.fields)}")

    def verdict_of(self, sample: Sample, **settings: object) -> Verdict:
        """The reward's verdict on a sample, with these settings, for more tests; `def` or `async def`."""
        reward = self.spec.factory(self.validated(**settings), self.setup())
        return cast(Verdict, as_verdict(asyncio.run(call(reward, sample, CONTEXT))))

    def _said_of_the_kit(self) -> str:
        answers = [self._answer(samples)[0] for samples in self._usable()]
        scored = any(isinstance(each, Score) for each in answers)
        told = "needs the author's `good` and `bad`: inherit RewardContract and set them"
        return told if scored else f"{told}; the kit's own got no score at all, but {answers[0]} and {answers[1]}"

    def _groups(self) -> list[list[Sample]]:
        return [[self.good or make_sample("4")], [self.bad or make_sample("5")]]

    def _subject(self, samples: list[Sample]) -> object:
        return samples[0]

    def _verdicts(self, returned: object, samples: list[Sample]) -> list[Verdict]:
        return [check_verdict(returned, plugin=self.registered.plugin, sample=samples[0])]

    def _fields_read(self) -> set[str]:
        sample = spied(self._groups()[0][0])
        limit_s = min(self.spec.timeout_s, HANG_S)
        with contextlib.suppress(*RAISED):
            in_thread(lambda: asyncio.run(call(self.built(), sample, CONTEXT)), limit_s)
        return sample.read & FIELDS


class GroupRewardContract(ScorerContract[GroupRewardSpec]):
    """Inherit, name the group reward, and set a group."""

    kind = GroupRewardSpec
    samples: ClassVar[Sequence[Sample] | None] = None
    """Finished samples of one group; None: the kit's group."""
    order_matters: ClassVar[bool] = False
    """Whether a sample's verdict may depend on its place in the group."""

    @check("GRW-001")
    def test_the_factory_builds_a_group_reward(self) -> None:
        """The core calls `reward(samples, ctx)`: an `async def` that awaits, or a plain `def`, isolated by the core."""
        require_called_as(self.built(), "samples", "ctx")
        self.isolated()

    @check("GRW-002", needs=("GRW-001", "GRW-006"))
    def test_it_returns_one_verdict_per_sample(self) -> None:
        """Return a list of `Score`, `Unscored` or `NotApplicable`, one per sample, for groups of every size."""
        (samples,) = self._usable()
        for group in (samples, samples[:1], [*samples, *samples]):
            self._answer(group)

    @check("GRW-016", needs=("GRW-002",), decisive=True)
    def test_it_scores_at_least_one_sample(self) -> None:
        """A group without scores is not trained on: return `Unscored` only for samples that cannot be judged."""
        answers = self._answer(self._usable()[0])
        if any(isinstance(each, Score) for each in answers):
            return
        told = f"no sample of the group got a score, but {answers[0]}"
        if self.samples is None:
            raise SkipTest(f"needs the author's `samples`: of the kit's own, {told}")
        require(False, told)

    @check("GRW-005", needs=("GRW-002", "GRW-004"))
    def test_verdicts_do_not_depend_on_the_order_of_samples(self) -> None:
        """Return verdicts in the samples' order, which is arbitrary. If it must count, set `order_matters = True`."""
        self._require_deterministic()
        if self.order_matters:
            raise SkipTest("the contract says order_matters = True")
        (samples,) = self._usable()
        backwards = self._answer(samples[::-1])[::-1]
        require(backwards == self._answer(samples), "the same samples in another order got other verdicts")

    def verdicts_of(self, samples: Sequence[Sample], **settings: object) -> list[Verdict]:
        """The group reward's verdicts on a group, with these settings, for more tests."""
        reward = self.spec.factory(self.validated(**settings), self.setup())
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
"""Number of each shared check in each contract, followed by the checks that it needs."""

for _method, _texts in _NUMBERS.items():
    for _text in _texts:
        _identity, *_needs = _text.split()
        _contract = RewardContract if _identity.startswith("REW") else GroupRewardContract
        setattr(_contract, _method.__name__, check(_identity, needs=tuple(_needs))(_method))
