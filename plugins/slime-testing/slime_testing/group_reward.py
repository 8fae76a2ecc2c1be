"""GroupRewardContract: what every group reward must keep, GRW-001 to GRW-016.

Example:

    class TestShortest(GroupRewardContract):
        choice = "slime-reward-rank/shortest"
        samples = [make_sample("4"), make_sample("It is 4"), make_sample("four")]
"""

import asyncio
import copy
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, cast
from unittest import SkipTest

from slime_core.catalog.checks import check_verdicts
from slime_core.processes import isolation_of
from slime_core.roles import GroupRewardSpec, Isolation, RewardContext
from slime_core.sample import Sample
from slime_core.score import Score, Unscored, Verdict
from slime_testing._forked import fails_in_a_fork
from slime_testing.blocking import BLOCK_S, blocks
from slime_testing.calling import (
    LEAK_BYTES,
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
from slime_testing.spied import InjectedError, spied

CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=1)
FORK_S = 5.0
"""How much longer than its own time limit a call may take before its process is ended."""
RESPONSES = ("4", "It is 4.", "5", "", "4")
"""The kit's own group."""


class GroupRewardContract(RoleContract[GroupRewardSpec]):
    """Inherit, name the group reward, give it a group."""

    kind = GroupRewardSpec
    choice: ClassVar[str | GroupRewardSpec]
    """The group reward: a name for the catalog, or a spec."""
    samples: ClassVar[Sequence[Sample] | None] = None
    """Finished samples of one group; the kit has its own otherwise."""
    deterministic: ClassVar[bool] = True
    """Whether the same group and seed always get the same verdicts."""
    order_matters: ClassVar[bool] = False
    """Whether a sample's verdict may depend on its place in the group."""

    @check("GRW-001")
    def test_the_factory_builds_a_group_reward(self) -> None:
        """The core calls `reward(samples, ctx)`: an `async def` that awaits, or a plain `def`, isolated by the core."""
        require_called_as(self.built(), "samples", "ctx")
        self.isolated()

    @check("GRW-002", needs=("GRW-001", "GRW-006"))
    def test_it_answers_with_one_verdict_a_sample(self) -> None:
        """Return a list of `Score`, `Unscored` or `NotApplicable`, one a sample, for groups of every size."""
        samples = self._usable()
        for group in (samples, samples[:1], [*samples, *samples]):
            check_verdicts(self._answer(group), plugin=self.registered.plugin, samples=group)

    @check("GRW-016", needs=("GRW-002",), decisive=True)
    def test_it_scores_something(self) -> None:
        """A group that gets no score is not trained on: `Unscored` is for what could not be judged, now and then."""
        answers = self._answer(self._usable())
        if any(isinstance(each, Score) for each in answers):
            return
        told = f"no sample of the group got a score, but {answers[0]}"
        if self.samples is None:
            raise SkipTest(f"needs the author's `samples`: of the kit's own, {told}")
        require(False, told)

    @check("GRW-003", needs=("GRW-002",))
    def test_it_leaves_the_samples_as_they_were(self) -> None:
        """Other rewards and the trainer read the same samples: do not sort the list or write to a sample."""
        given = copy.deepcopy(self._usable())
        order, before = list(map(id, given)), [sample.to_dict() for sample in given]
        asyncio.run(call(self.built(), given, CONTEXT))
        require(order == list(map(id, given)), "it changed the list of samples that it was given")
        require(before == [sample.to_dict() for sample in given], "it changed a sample")

    @check("GRW-004", needs=("GRW-002",))
    def test_the_same_group_gets_the_same_answer(self) -> None:
        """Draw from `ctx.seed` only; keep nothing between calls. If it must vary, say `deterministic = False`."""
        self._require_deterministic()
        reward, samples = self.isolated(), self._usable()

        async def thrice() -> list[list[Verdict]]:
            return [list(await self._call(reward, copy.deepcopy(samples))) for _ in range(3)]

        answers = [*asyncio.run(thrice()), list(self._answer(samples))]
        require(all(each == answers[0] for each in answers), f"four calls, different answers: {answers}")

    @check("GRW-005", needs=("GRW-002", "GRW-004"))
    def test_a_verdict_follows_its_sample(self) -> None:
        """The order of a group says nothing: answer in the samples' order. If it must count: `order_matters = True`."""
        self._require_deterministic()
        if self.order_matters:
            raise SkipTest("the contract says order_matters = True")
        samples = self._usable()
        backwards = list(self._answer(samples[::-1]))[::-1]
        require(backwards == list(self._answer(samples)), "the same samples in another order got other verdicts")

    @check("GRW-006", needs=("GRW-001",))
    def test_the_event_loop_goes_on(self) -> None:
        """Every other sample waits while it computes: `await` what waits, and write `def` for what computes."""
        self._require_on_the_loop()
        if stall := blocks(self._act(), BLOCK_S):
            raise AssertionError(stall)

    @check("GRW-007", needs=("GRW-002", "GRW-004"))
    def test_groups_scored_at_once_do_not_mix(self) -> None:
        """A rollout scores many groups at once: keep what belongs to a call in local variables."""
        self._require_deterministic()
        reward, samples = self.isolated(), self._usable()
        groups = [samples, samples[:1], samples[1:]] * 3
        expected = [list(self._answer(group)) for group in groups]

        async def together() -> list[Sequence[Verdict]]:
            return await asyncio.gather(*(self._call(reward, copy.deepcopy(group)) for group in groups))

        require(list(map(list, asyncio.run(together()))) == expected, "groups scored together got other verdicts")

    @check("GRW-008", needs=("GRW-002",))
    def test_it_works_off_the_main_thread(self) -> None:
        """Loops run in other threads too: `signal.alarm` and signal handlers do not work there."""
        samples = self._usable()
        try:
            in_thread(lambda: self._answer(samples), self.spec.timeout_s)
        except Exception as error:
            raise AssertionError(f"in another thread it raised {error!r}") from error

    @check("GRW-009", needs=("GRW-002", "GRW-008"))
    def test_hostile_responses_are_scored_like_any_other(self) -> None:
        """A policy under training writes anything. Bound lengths and depths; do not evaluate text."""
        for name, response in HOSTILE.items():
            group = copy.deepcopy(self._usable())
            group[0].response = response
            if self._on_the_loop():
                why = fails_in_a_fork(partial(self._answer, group), self.spec.timeout_s + FORK_S)
                require(not why, f"response {name!r}: {why}")
            try:
                returned = in_thread(partial(self._answer, group), self.spec.timeout_s + 1)
            except Exception as error:
                raise AssertionError(f"response {name!r}: {error!r}") from error
            check_verdicts(returned, plugin=self.registered.plugin, samples=group)

    @check("GRW-010", needs=("GRW-002",))
    def test_it_can_be_cancelled(self) -> None:
        """Ctrl-C and time-outs cancel the call: re-raise `asyncio.CancelledError`, or do not catch it at all."""
        self._require_on_the_loop()
        require(not refuses_cancellation(self._act()), "one second after task.cancel() it was not cancelled")

    @check("GRW-011", needs=("GRW-002",))
    def test_a_failure_is_not_a_score(self) -> None:
        """Let errors out, or return `Unscored(reason)`: `except Exception: return [Score(0.0)] * n` hides every bug."""
        for name in ("response", "label", "tokens", "metadata"):
            group: list[Sample] = [spied(sample, broken=(name,)) for sample in self._usable()]
            try:
                returned = cast(Sequence[Verdict], asyncio.run(call(self.built(), group, CONTEXT)))
            except InjectedError:
                continue
            read = any(name in sample.read for sample in group if hasattr(sample, "read"))
            hidden = read and all(isinstance(each, Score) for each in returned)
            require(not hidden, f"reading {name} raised RuntimeError, and the answer was {returned}")

    @check("GRW-012", needs=("GRW-002",))
    def test_a_refused_connection_is_not_a_score(self) -> None:
        """When the judge cannot be reached, let the error out or return `Unscored(reason, retryable=True)`."""
        with refused_network() as attempts:
            try:
                returned = cast(Sequence[Verdict], asyncio.run(self._act()()))
            except Exception as error:
                returned = [Unscored(type(error).__name__)]
        if not attempts:
            raise SkipTest("it opens no connection")
        scored = any(isinstance(each, Score) for each in returned)
        require(not scored, f"every connection was refused, and the answer was {returned}")

    @check("GRW-013", needs=("GRW-002",))
    def test_calls_leave_nothing_behind(self) -> None:
        """Thousands of calls make a run: wait for each process and thread, bound caches, keep no samples."""
        left = left_behind(self._act)
        require(not left, f"{left} are still there")
        reward, number = self.built(), 0

        async def another() -> object:
            nonlocal number
            number += 1
            samples = copy.deepcopy(self._given())
            samples[0].response = f"{number} {'x' * 6 * LEAK_BYTES}"
            return await call(reward, samples, CONTEXT)

        kept = leaked_bytes(another)
        require(kept < LEAK_BYTES, f"each call keeps {kept / 1024:.0f} KiB")

    @check("GRW-014", needs=("GRW-002",))
    def test_it_prints_nothing(self) -> None:
        """Standard output belongs to the command (`slime train --json`): use `logging`."""
        text = printed(self._act())
        require(not text, f"it printed {text[:80]!r}")

    @check("GRW-015", needs=("GRW-002",))
    def test_a_call_changes_nothing_that_others_use(self) -> None:
        """Driver and other plugins share the process: seed no `random`, replace no function, set nothing for all."""
        self._require_on_the_loop()
        self._require_nothing_changed(self._act())

    def verdicts_of(self, samples: Sequence[Sample], **settings: object) -> list[Verdict]:
        """What the group reward says of a group, with these settings: for tests of your own."""
        reward = self.spec.factory(self.validated(**settings), self.setup())
        return list(cast(Sequence[Verdict], asyncio.run(call(reward, samples, CONTEXT))))

    async def _call(self, reward: object, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """The answer of a group reward where the run has it."""
        return cast(Sequence[Verdict], await call(reward, samples, CONTEXT))

    def _act(self) -> Act:
        """Fresh calls of one group reward, in this process."""
        reward = self.built()

        async def act() -> object:
            async with asyncio.timeout(self.spec.timeout_s):
                return await call(reward, copy.deepcopy(self._given()), CONTEXT)

        return act

    def _answer(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """The verdicts of a fresh group reward in a fresh loop."""
        return asyncio.run(self._call(self.isolated(), copy.deepcopy(samples)))

    def _given(self) -> list[Sample]:
        return list(self.samples or [make_sample(each, index=index) for index, each in enumerate(RESPONSES)])

    def _usable(self) -> list[Sample]:
        """The group; skips where there is no author and the kit's own is not of the kind that it scores."""
        if self.automatic:
            with samples_of_the_kit("`samples`"):
                self._answer(self._given())
        return self._given()

    def _on_the_loop(self) -> bool:
        return isolation_of(self.spec, self.built()) is Isolation.LOOP

    def _require_on_the_loop(self) -> None:
        if not self._on_the_loop():
            raise SkipTest("it is a plain `def`, which does not run on the event loop")

    def _require_deterministic(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")
