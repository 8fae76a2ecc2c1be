"""Waves: the policy `sync`: draw a wave of groups, run all its samples at once, filter, and draw again while short.

OneAhead is the policy `async`: the same while the trainer works, with weights one version older. They change only
between two rollouts, so that each is made by one version; a checkpoint holds the rollout that waits for its training.

Results are a function of the draws, never of who finished first. A rollout that does not end well (cancelled, or
stopped by an error) gives every group it drew back to the data source, so that it can be run again, to the same end.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from slime_core.events import GroupsDone, SamplesDone
from slime_core.roles import FilterContext
from slime_core.rollout.scheduler import RolloutResult, Scheduler, is_interrupted, refuse_foreign
from slime_core.rollout.tally import Tally
from slime_core.rollout.work import Purpose
from slime_core.sample import Group, Json
from slime_core.tasks import cancel_all


class Waves(Scheduler):
    """Generates between training steps."""

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Run groups until at least `want` are kept; errors as in `Scheduler`."""
        tally = Tally(f"rollout {rollout_id}")
        drawn: list[Group] = []
        waves = 0
        try:
            while len(tally.kept) < want:
                if waves == self.policy.max_filter_waves:
                    raise tally.give_up(want, waves)
                groups = await self._source.draw(self._wave_size(want - len(tally.kept), want))
                drawn += groups
                interrupted = await self._run_wave(rollout_id, groups, tally, want)
                self._source.add(interrupted)
                back = {group.id for group in interrupted}
                drawn = [group for group in drawn if group.id not in back]
                waves += 1
            self._sieve.remove_samples(tally, FilterContext(rollout_id))
        except BaseException:
            self._source.add(drawn)
            raise
        return RolloutResult(tally.kept, tally.dropped, tally.reasons, tally.metrics(), tally.failed)

    def _wave_size(self, missing: int, want: int) -> int:
        """Groups to draw; with a filter more than are missing, because some of them will be dropped."""
        if not self._sieve.filters_groups:
            return missing
        return self.policy.over_sampling_batch_size or want

    async def _run_wave(self, rollout_id: int, drawn: Sequence[Group], tally: Tally, want: int) -> list[Group]:
        """Run one wave into the tally; returns the groups that an engine interrupted, as they were drawn."""
        allowance = tally.allowance(sum(len(group.samples) for group in drawn), self.policy.max_error_rate)
        ran = await self.runner.run(drawn, Purpose(rollout_id, False, self.policy.sampling, allowance=allowance))
        interrupted = [group for group in ran if is_interrupted(group)]
        finished = [group for group in ran if not is_interrupted(group)]
        tally.add_samples(finished)
        samples = [scored.sample for group in finished for scored in group.scored]
        kept, dropped = len(tally.kept), len(tally.dropped)
        self._sieve.sort(finished, FilterContext(rollout_id), tally, want)
        await self.emit(SamplesDone(rollout_id, samples, evaluation=False))
        reasons = {group.id: tally.reasons[group.id] for group in tally.dropped[dropped:]}
        await self.emit(GroupsDone(rollout_id, tally.kept[kept:], reasons))
        tally.check_error_rate(self.policy.max_error_rate)
        return [group.drawn for group in interrupted]


class OneAhead(Waves):
    """Generates during training steps."""

    _ahead: "asyncio.Task[RolloutResult] | None" = None
    _ready: RolloutResult | None = None

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """The rollout that was generated ahead, and what it lacks of one that is generated now.

        It lacks groups where the buffer has given up others meanwhile. Errors as in `Scheduler`.
        """
        await self.settle()
        ahead, self._ready = self._ready, None
        if ahead is None:
            return await super().collect(rollout_id, want)
        if (missing := want - len(ahead.kept)) <= 0:
            return ahead
        return ahead.joined(await super().collect(rollout_id, missing))

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """Begin to generate that rollout."""
        self._ahead = asyncio.create_task(super().collect(rollout_id, want))

    async def settle(self) -> None:
        """Wait until the rollout under way is finished: it is made by one version of the weights."""
        if self._ahead is not None:
            task, self._ahead = self._ahead, None
            try:
                self._ready = await task
            except asyncio.CancelledError:
                await cancel_all([task])
                raise

    def live(self) -> tuple[int, int]:
        """Nothing is in flight once it settled; what is ready waits."""
        return 0, len(self._ready.kept) if self._ready else 0

    def state_dict(self) -> dict[str, Json]:
        """The rollout that waits for its training."""
        if self._ready is None:
            return {}
        return {"kept": [group.to_dict() for group in self._ready.kept], "metrics": dict(self._ready.metrics)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Hold that rollout again; of its dropped groups only the metrics are left. Errors as in `Scheduler`."""
        refuse_foreign(state, {"kept", "metrics"})
        if state:
            kept = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["kept"])]
            self._ready = RolloutResult(kept, [], {}, cast(Mapping[str, float], state["metrics"]))

    async def close(self) -> None:
        """End the rollout under way."""
        if self._ahead is not None:
            await cancel_all([self._ahead])
            self._ahead = None
