r"""RewardContract: what every reward must keep, REW-001 to REW-019.

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

A slow reward needs no patience: each call gets the time that its spec allows.
"""

import asyncio
import contextlib
import copy
import time
from collections.abc import Iterable
from functools import partial
from typing import ClassVar, cast
from unittest import SkipTest

from slime_core.catalog import check_verdict
from slime_core.catalog.checks import as_verdict
from slime_core.processes import isolation_of
from slime_core.roles import Isolation, RewardContext, RewardSpec
from slime_core.sample import Sample
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_testing._forked import fails_in_a_fork
from slime_testing.blocking import BLOCK_S, blocks
from slime_testing.calling import (
    HANG_S,
    LEAK_BYTES,
    RAISED,
    Act,
    call,
    in_thread,
    leaked_bytes,
    left_behind,
    printed,
    refused_network,
    refuses_cancellation,
)
from slime_testing.contract import check, require
from slime_testing.hostile import HOSTILE
from slime_testing.protected import samples_of_the_kit
from slime_testing.role import RoleContract, require_called_as
from slime_testing.samples import make_sample
from slime_testing.spied import FIELDS, InjectedError, spied

CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)
REASON_CHARACTERS = 200
"""Longest reason and name of a component."""
COMPONENTS = 64
"""Most components of one score."""
FORK_S = 5.0
"""How much longer than its own time limit a call may take before its process is ended."""
INJECTED = ("response", "label", "prompt", "tokens", "metadata")
"""Fields that the kit makes unreadable, one after another."""


class RewardContract(RoleContract[RewardSpec]):
    """Inherit, name the reward, give it a good and a bad sample."""

    kind = RewardSpec
    choice: ClassVar[str | RewardSpec]
    """The reward: a name for the catalog, or a spec."""
    good: ClassVar[Sample | None] = None
    """A finished sample that it must like better than `bad`."""
    bad: ClassVar[Sample | None] = None
    """A finished sample."""
    deterministic: ClassVar[bool] = True
    """Whether the same sample and seed always get the same score; False for judges that sample."""
    needs_label: ClassVar[bool] = True
    """Whether a sample without a label has no score; False where the label is read, but can be done without."""

    @check("REW-001")
    def test_the_factory_builds_a_reward(self) -> None:
        """The core calls `reward(sample, ctx)`: an `async def` that awaits, or a plain `def`, isolated by the core.

        A spec that says `isolation=Isolation.LOOP` wants an `async def`.
        """
        require_called_as(self.built(), "sample", "ctx")
        self.isolated()

    @check("REW-002", needs=("REW-001", "REW-007", "REW-017"))
    def test_it_answers_with_a_verdict(self) -> None:
        """Return a float, `Score(value)`, `Unscored(reason)` or `NotApplicable()`, and nothing else."""
        for sample in self._pair():
            check_verdict(self._answer(sample), plugin=self.registered.plugin, sample=sample)

    @check("REW-003", needs=("REW-002",))
    def test_it_leaves_the_sample_as_it_was(self) -> None:
        """Other rewards and the trainer read the same sample. Copy what you want to change (`copy.deepcopy`)."""
        for sample in self._pair():
            before, given = sample.to_dict(), copy.deepcopy(sample)
            asyncio.run(call(self.built(), given, CONTEXT))
            after = given.to_dict()
            changed = [name for name, value in before.items() if after[name] != value]
            require(not changed, f"the reward changed {', '.join(changed)} of the sample")

    @check("REW-004", needs=("REW-002",), decisive=True)
    def test_it_likes_the_good_sample_better(self) -> None:
        """A reward that does not tell the two apart teaches nothing, or the opposite of what is meant."""
        if self.automatic and not (self.good and self.bad):
            raise SkipTest(self._said_of_the_kit())
        good, bad = self._answer(self.own("good", self.good)), self._answer(self.own("bad", self.bad))
        require(isinstance(good, Score) and isinstance(bad, Score), f"expected two scores, got {good} and {bad}")
        ordered = cast(Score, good).value > cast(Score, bad).value
        require(ordered, f"the good sample got {good}, the bad one {bad}")

    @check("REW-005", needs=("REW-002",))
    def test_the_same_sample_gets_the_same_answer(self) -> None:
        """Draw from `ctx.seed` only; keep nothing between calls. If it must vary, say `deterministic = False`."""
        self._require_deterministic()
        reward, good = self.isolated(), self._pair()[0]

        async def thrice() -> list[object]:
            return [await self._call(reward, copy.deepcopy(good)) for _ in range(3)]

        answers = [*asyncio.run(thrice()), self._answer(good)]
        require(all(each == answers[0] for each in answers), f"four calls, different answers: {answers}")

    @check("REW-006", needs=("REW-002", "REW-005"))
    def test_samples_scored_at_once_do_not_mix(self) -> None:
        """A rollout scores hundreds of samples at once: keep what belongs to a call in local variables."""
        self._require_deterministic()
        reward, pair = self.isolated(), self._pair()
        expected = [self._answer(sample) for sample in pair] * 4

        async def together() -> list[object]:
            return await asyncio.gather(*(self._call(reward, copy.deepcopy(sample)) for sample in pair * 4))

        differing = sum(one != other for one, other in zip(asyncio.run(together()), expected, strict=True))
        require(differing == 0, f"{differing} of {len(expected)} answers differ from those given one by one")

    @check("REW-007", needs=("REW-001",))
    def test_the_event_loop_goes_on(self) -> None:
        """Every other sample waits while a reward computes: `await` what waits, and write `def` for what computes.

        A plain `def` runs in a worker process, which is killed at its time limit.
        """
        self._require_on_the_loop()
        for sample in self._given():
            if stall := blocks(self._act(sample), BLOCK_S):
                raise AssertionError(stall)

    @check("REW-008", needs=("REW-002", "REW-005"))
    def test_it_works_off_the_main_thread(self) -> None:
        """Loops run in other threads too: `signal.alarm` and signal handlers do not work there."""
        good = self._pair()[0]
        expected = self._answer(good)
        try:
            found = in_thread(lambda: self._answer(good), self.spec.timeout_s)
        except Exception as error:
            raise AssertionError(f"in another thread it raised {error!r}") from error
        require(not self.deterministic or found == expected, f"in another thread it answered {found}, not {expected}")

    @check("REW-009", needs=("REW-002", "REW-008"))
    def test_hostile_responses_are_scored_like_any_other(self) -> None:
        """A policy under training writes anything. Bound lengths and depths; do not evaluate text."""
        hostile, on_the_loop = self._hostile(), self._on_the_loop()
        # All in one fork; in one each only where that does not come back, to name what it was.
        one_by_one = on_the_loop and fails_in_a_fork(
            partial(self._answer_all, hostile.values()), self.spec.timeout_s + FORK_S
        )
        for name, sample in hostile.items():
            if one_by_one:
                why = fails_in_a_fork(partial(self._answer, sample), self.spec.timeout_s + FORK_S)
                require(not why, f"response {name!r}: {why}")
            started = time.perf_counter()
            try:
                returned = in_thread(partial(self._answer, sample), self.spec.timeout_s + 1)
            except Exception as error:
                what = f"no answer in {self.spec.timeout_s} s" if isinstance(error, TimeoutError) else repr(error)
                raise AssertionError(f"response {name!r}: {what}") from error
            check_verdict(returned, plugin=self.registered.plugin, sample=sample)
            if on_the_loop and time.perf_counter() - started > 0.2 and (stall := blocks(self._act(sample))):
                raise AssertionError(f"response {name!r}: {stall}")

    @check("REW-010", needs=("REW-002",))
    def test_it_can_be_cancelled(self) -> None:
        """Ctrl-C and time-outs cancel the call: re-raise `asyncio.CancelledError`, or do not catch it at all."""
        self._require_on_the_loop()
        refuses = refuses_cancellation(self._act(self._given()[0]))
        require(not refuses, "one second after task.cancel() the call was not cancelled")

    @check("REW-011", needs=("REW-002",))
    def test_a_missing_label_is_not_a_wrong_answer(self) -> None:
        """Without a gold answer return `Unscored(reason)`: a zero would punish the model for the data.

        A reward that reads the label, and can do without, says `needs_label = False`.
        """
        if not self.needs_label:
            raise SkipTest("the contract says needs_label = False")
        if "label" not in self._fields_read():
            raise SkipTest("it does not read the label")
        sample = copy.deepcopy(self._pair()[0])
        sample.label = None
        returned = self._answer(sample)
        require(not isinstance(returned, Score), f"label None was scored: {returned}; expected Unscored(reason)")

    @check("REW-012", needs=("REW-002",))
    def test_a_failure_is_not_a_score(self) -> None:
        """Let errors out, or return `Unscored(reason)`: `except Exception: return Score(0.0)` hides every bug."""
        for name in INJECTED:
            sample = spied(self._pair()[0], broken=(name,))
            try:
                returned = asyncio.run(call(self.built(), sample, CONTEXT))
            except InjectedError:
                continue
            hidden = name in sample.read and isinstance(returned, Score)
            require(not hidden, f"reading {name} raised RuntimeError, and the answer was {returned}")

    @check("REW-013", needs=("REW-002", "REW-005"))
    def test_a_refused_connection_is_not_a_score(self) -> None:
        """When the judge cannot be reached, let the error out or return `Unscored(reason, retryable=True)`."""
        good = self._pair()[0]
        with refused_network() as attempts:
            try:
                returned: object = asyncio.run(self._act(good)())
            except Exception as error:
                returned = Unscored(type(error).__name__)
        if not attempts:
            raise SkipTest("it opens no connection")
        require(not isinstance(returned, Score), f"every connection was refused, and the answer was {returned}")

    @check("REW-014", needs=("REW-009",))
    def test_a_verdict_is_small(self) -> None:
        """Reasons and names of components become metrics: short, few, and never made of the response."""
        for sample in (*self._pair(), *self._hostile().values()):
            match self._answer(sample):
                case Unscored(reason=reason):
                    require(len(reason) <= REASON_CHARACTERS, f"a reason of {len(reason)} characters")
                case Score(components=components):
                    require(len(components) <= COMPONENTS, f"a score of {len(components)} components")
                    longest = max(map(len, components), default=0)
                    require(longest <= REASON_CHARACTERS, f"a component's name of {longest} characters")
                case NotApplicable():
                    pass

    @check("REW-015", needs=("REW-002",))
    def test_calls_leave_nothing_running(self) -> None:
        """Thousands of calls make a run: wait for every process and thread that a call starts (`with`, `join`)."""
        left = left_behind(lambda: self._act(self._given()[0]))
        require(not left, f"{left} are still there")

    @check("REW-016", needs=("REW-002", "REW-015"))
    def test_calls_keep_no_memory(self) -> None:
        """A run scores millions of samples: bound caches (`lru_cache(maxsize=64)`), and keep no samples."""
        reward, given, number = self.built(), self._given()[0], 0

        async def another() -> object:
            nonlocal number
            number += 1
            sample = copy.deepcopy(given)
            sample.response = f"{number} {'x' * 6 * LEAK_BYTES}"
            return await call(reward, sample, CONTEXT)

        kept = leaked_bytes(another)
        require(kept < LEAK_BYTES, f"each call keeps {kept / 1024:.0f} KiB")

    @check("REW-017", needs=("REW-001", "REW-007"))
    def test_it_reads_the_fields_that_its_spec_names(self) -> None:
        """In a thread or a process a sample has `spec.fields` alone, the others are not there: name what is read."""
        if self._on_the_loop():
            raise SkipTest("it runs on the event loop, so it has every field")
        unnamed = self._fields_read() - set(self.spec.fields)
        require(not unnamed, f"it reads {', '.join(sorted(unnamed))}; fields names {', '.join(self.spec.fields)}")

    @check("REW-018", needs=("REW-002",))
    def test_it_prints_nothing(self) -> None:
        """Standard output belongs to the command (`slime train --json`): use `logging`."""
        text = printed(self._act(self._given()[0]))
        require(not text, f"it printed {text[:80]!r}")

    @check("REW-019", needs=("REW-002",))
    def test_a_call_changes_nothing_that_others_use(self) -> None:
        """Driver and other plugins share the process: seed no `random`, replace no function, set nothing for all."""
        self._require_on_the_loop()
        self._require_nothing_changed(self._act(self._given()[0]))

    def verdict_of(self, sample: Sample, **settings: object) -> Verdict:
        """What the reward says of a sample, with these settings: for tests of your own, `def` or `async def`."""
        reward = self.spec.factory(self.validated(**settings), self.setup())
        return cast(Verdict, as_verdict(asyncio.run(call(reward, sample, CONTEXT))))

    def _said_of_the_kit(self) -> str:
        """Why it cannot be told whether it judges well, and that it may not judge at all."""
        answers = [self._answer(sample) for sample in self._pair()]
        scored = any(isinstance(each, Score) for each in answers)
        told = "needs the author's `good` and `bad`: inherit RewardContract and set them"
        return told if scored else f"{told}; the kit's own got no score at all, but {answers[0]} and {answers[1]}"

    async def _call(self, reward: object, sample: Sample) -> object:
        """The answer of a reward where the run has it."""
        return await call(reward, sample, CONTEXT)

    def _answer_all(self, samples: Iterable[Sample]) -> None:
        """Ask for each; what it raises is not of interest here."""
        for sample in samples:
            with contextlib.suppress(BaseException):
                self._answer(sample)

    def _act(self, sample: Sample) -> Act:
        """Fresh calls of one reward, in this process."""
        reward = self.built()

        async def act() -> object:
            async with asyncio.timeout(self.spec.timeout_s):
                return await call(reward, copy.deepcopy(sample), CONTEXT)

        return act

    def _answer(self, sample: Sample) -> Verdict:
        """The verdict of a fresh reward in a fresh loop, where the run has it."""
        return cast(Verdict, asyncio.run(self._call(self.isolated(), copy.deepcopy(sample))))

    def _given(self) -> tuple[Sample, Sample]:
        """The author's samples, or the kit's."""
        return self.good or make_sample("4"), self.bad or make_sample("5")

    def _pair(self) -> tuple[Sample, Sample]:
        """The same; skips where there is no author and the kit's samples are not of the kind that it scores."""
        pair = self._given()
        if self.automatic:
            with samples_of_the_kit("`good` and `bad`"):
                self._answer(pair[0])
        return pair

    def _hostile(self) -> dict[str, Sample]:
        """Hostile samples by name."""
        good = self._pair()[0]
        samples = {name: copy.deepcopy(good) for name in HOSTILE}
        for name, sample in samples.items():
            sample.response = HOSTILE[name]
        return samples

    def _fields_read(self) -> set[str]:
        """Fields of a sample that one call reads."""
        sample = spied(self._given()[0])
        limit_s = min(self.spec.timeout_s, HANG_S)
        with contextlib.suppress(*RAISED):
            in_thread(lambda: asyncio.run(call(self.built(), sample, CONTEXT)), limit_s)
        return sample.read & FIELDS

    def _on_the_loop(self) -> bool:
        return isolation_of(self.spec, self.built()) is Isolation.LOOP

    def _require_on_the_loop(self) -> None:
        if not self._on_the_loop():
            raise SkipTest("it is a plain `def`, which does not run on the event loop")

    def _require_deterministic(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")
