r"""RewardContract: what every reward must keep, REW-001 to REW-011.

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

A slow reward needs no patience: each call gets the time that its spec allows.
"""

import asyncio
import copy
import inspect
import threading
import time
from collections.abc import Mapping
from typing import ClassVar, cast
from unittest import SkipTest

from slime_core.catalog import check_verdict
from slime_core.roles import Reward, RewardContext, RewardSpec
from slime_core.sample import Sample
from slime_core.score import Score, Verdict
from slime_core.testing.contract import check, require
from slime_core.testing.role import RoleContract

CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)
STALL_S = 0.25
"""How long a reward may keep the event loop from everything else."""
HOSTILE: Mapping[str, str] = {
    "nothing": "",
    "spaces": " " * 10_000,
    "NUL and a lone surrogate": "\0\ud800",
    "right-to-left and combining marks": "\u202e" + "e" + "\u0301" * 5_000,
    "200 000 digits": "9" * 200_000,
    "a tower of powers": "9**9**9**9",
    "5 000 nested boxes": "\\boxed{" * 5_000 + "1" + "}" * 5_000,
    "100 000 open braces": "{" * 100_000,
    "100 000 open brackets": "[" * 100_000,
    "a mebibyte of one word": "answer " * 150_000,
    "text that pretends to be code": "__import__('os')._exit(3)",
    "an end of thought that never began": "</think>" * 1_000,
}
"""Responses that a policy may well produce while it learns."""


class RewardContract(RoleContract[RewardSpec]):
    """Inherit, name the reward, give it a good and a bad sample."""

    kind = RewardSpec
    choice: ClassVar[str | RewardSpec]
    """The reward: a name for the catalog, or a spec."""
    good: ClassVar[Sample]
    """A finished sample that it must like better than `bad`."""
    bad: ClassVar[Sample]
    """A finished sample."""
    deterministic: ClassVar[bool] = True
    """Whether the same sample and seed always get the same score; False for judges that sample."""
    needs_label: ClassVar[bool] = True
    """Whether it compares with the label; False for rewards of form, length and the like."""

    @check("REW-001")
    def test_the_factory_builds_a_reward(self) -> None:
        """The core calls `await reward(sample, ctx)`: the factory returns an object with `async def __call__`."""
        reward: object = self._build()
        require(callable(reward), f"the factory returned {reward!r}, which cannot be called")
        asynchronous = inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)
        require(asynchronous, f"{type(reward).__name__} is called by a plain `def`; write `async def`")

    @check("REW-002")
    def test_it_answers_with_a_verdict(self) -> None:
        """Return `Score(value)` with a float, `Unscored(reason)` or `NotApplicable()`, and nothing else."""
        for sample in (self.good, self.bad):
            check_verdict(self._answer(sample), plugin=type(self).__name__, sample=sample)

    @check("REW-003")
    def test_it_leaves_the_sample_as_it_was(self) -> None:
        """Other rewards and the trainer read the same sample. Copy what you want to change (`copy.deepcopy`)."""
        for sample in (self.good, self.bad):
            before, given = sample.to_dict(), copy.deepcopy(sample)
            asyncio.run(self._call(self._build(), given))
            after = given.to_dict()
            changed = [name for name, value in before.items() if after[name] != value]
            require(not changed, f"the reward changed {', '.join(changed)} of the sample")

    @check("REW-004")
    def test_it_likes_the_good_sample_better(self) -> None:
        """A reward that does not tell the two apart teaches nothing, or the opposite of what is meant."""
        good, bad = self._answer(self.good), self._answer(self.bad)
        require(isinstance(good, Score) and isinstance(bad, Score), f"expected two scores, got {good} and {bad}")
        ordered = cast(Score, good).value > cast(Score, bad).value
        require(ordered, f"the good sample got {good}, the bad one {bad}")

    @check("REW-005")
    def test_the_same_sample_gets_the_same_answer(self) -> None:
        """Draw from `ctx.seed` only; keep nothing between calls. If it must vary, say `deterministic = False`."""
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")
        reward = self._build()
        answers = [asyncio.run(self._call(reward, self.good)) for _ in range(3)] + [self._answer(self.good)]
        require(all(each == answers[0] for each in answers), f"four calls, different answers: {answers}")

    @check("REW-006")
    def test_samples_scored_at_once_do_not_mix(self) -> None:
        """A rollout scores hundreds of samples at once: keep what belongs to a call in local variables."""
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")
        reward, samples = self._build(), [self.good, self.bad] * 4
        expected = [self._answer(self.good), self._answer(self.bad)] * 4

        async def together() -> list[Verdict]:
            return await asyncio.gather(*(self._call(reward, sample) for sample in samples))

        differing = sum(one != other for one, other in zip(asyncio.run(together()), expected, strict=True))
        require(differing == 0, f"{differing} of {len(samples)} answers differ from those given one by one")

    @check("REW-007")
    def test_the_event_loop_goes_on(self) -> None:
        """Every other sample waits while a reward computes: use `await`, or `asyncio.to_thread` for what blocks."""
        # A busy machine can stall the loop as well, so a stall must show three times.
        stalls = [self._stall() for _ in range(3)]
        require(min(stalls) < STALL_S, f"the event loop stood still for {min(stalls):.2f} s")

    @check("REW-008")
    def test_it_works_off_the_main_thread(self) -> None:
        """Loops run in other threads too: `signal.alarm` and signal handlers are not to be had there."""
        found: list[object] = []

        def work() -> None:
            try:
                found.append(self._answer(self.good))
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        require(not isinstance(found[0], Exception), f"in another thread it raised {found[0]!r}")
        if self.deterministic:
            require(found[0] == self._answer(self.good), f"in another thread it answered {found[0]}")

    @check("REW-009")
    def test_hostile_responses_are_scored_like_any_other(self) -> None:
        """A policy under training writes anything. Bound lengths and depths; do not evaluate text."""
        for name, response in HOSTILE.items():
            sample = copy.deepcopy(self.good)
            sample.response = response
            try:
                returned = self._answer(sample)
            except TimeoutError:
                raise AssertionError(f"response {name!r}: no answer in {self.spec.timeout_s} s") from None
            except Exception as error:
                raise AssertionError(f"response {name!r}: raised {type(error).__name__}: {error}") from error
            check_verdict(returned, plugin=type(self).__name__, sample=sample)

    @check("REW-010")
    def test_it_can_be_cancelled(self) -> None:
        """Ctrl-C and time-outs cancel the call: re-raise `asyncio.CancelledError`, or do not catch it at all."""

        async def cancel() -> bool:
            task = asyncio.ensure_future(self._build()(copy.deepcopy(self.good), CONTEXT))
            await asyncio.sleep(0)
            if not task.cancel():
                return True
            await asyncio.wait({task}, timeout=1.0)
            return task.cancelled()

        require(asyncio.run(cancel()), "one second after task.cancel() the call was not cancelled")

    @check("REW-011")
    def test_a_missing_label_is_not_a_wrong_answer(self) -> None:
        """Without a gold answer return `Unscored(reason)`: a zero would punish the model for the data.

        A reward that does not look at the label says `needs_label = False`.
        """
        if not self.needs_label:
            raise SkipTest("the contract says needs_label = False")
        sample = copy.deepcopy(self.good)
        sample.label = None
        returned = self._answer(sample)
        require(not isinstance(returned, Score), f"label None was scored: {returned}; expected Unscored(reason)")

    def _build(self) -> Reward:
        return cast(Reward, self.spec.factory(self.validated(), self.setup()))

    def _answer(self, sample: Sample) -> Verdict:
        """The verdict of a fresh reward in a fresh loop."""
        return asyncio.run(self._call(self._build(), copy.deepcopy(sample)))

    async def _call(self, reward: Reward, sample: Sample) -> Verdict:
        async with asyncio.timeout(self.spec.timeout_s):
            return await reward(sample, CONTEXT)

    def _stall(self) -> float:
        """The longest time, in seconds, for which scoring kept another task of the loop from running."""
        reward = self._build()

        async def watched() -> float:
            longest, last, done = 0.0, time.perf_counter(), False

            async def tick() -> None:
                nonlocal longest, last
                while not done:
                    await asyncio.sleep(0.005)
                    now = time.perf_counter()
                    longest, last = max(longest, now - last), now

            ticking = asyncio.create_task(tick())
            await asyncio.sleep(0)
            for sample in (self.good, self.bad):
                await self._call(reward, copy.deepcopy(sample))
            await asyncio.sleep(0.01)
            done = True
            await ticking
            return longest

        return asyncio.run(watched())
