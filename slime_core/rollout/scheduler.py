"""Scheduler: the `sync` policy: draw a wave of groups, run all its samples at once, filter, and draw again while short.

Results are a function of the draws, never of who finished first. A rollout that does not end well (cancelled, or
stopped by an error) gives every group it drew back to the data source, so that it can be run again, to the same end.

Example:

    result = await scheduler.collect(rollout_id=3, want=64)
    buffer.add(result.kept)
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from slime_core.catalog.checks import blaming, check_decision, check_removals
from slime_core.catalog.used import Used
from slime_core.events import Event, GroupsDone, SamplesDone
from slime_core.roles import (
    DataSource,
    Decision,
    Drop,
    Engine,
    FilterContext,
    GroupFilter,
    Keep,
    KeepIfShort,
    SampleFilter,
    Tokenizer,
)
from slime_core.rollout.choices import Choices
from slime_core.rollout.policy import RewardOnError, RolloutPolicy
from slime_core.rollout.tally import Tally
from slime_core.rollout.work import Purpose, RunGroup, SampleRunner
from slime_core.sample import Group, GroupId, Status


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """A finished rollout."""

    kept: Sequence[Group]
    """Groups to train on, frozen, in order of the draws; surplus ones included, for the buffer."""
    dropped: Sequence[Group]
    """The others, frozen."""
    reasons: Mapping[GroupId, str]
    """Why each dropped group was."""
    metrics: Mapping[str, float]
    """Under slime's names."""


class Scheduler:
    """Fills rollouts. One `collect` at a time."""

    def __init__(
        self,
        *,
        policy: RolloutPolicy,
        source: DataSource,
        engine: Engine,
        tokenizer: Tokenizer,
        choices: Choices,
        group_filter: Used[GroupFilter] | None,
        sample_filters: Sequence[Used[SampleFilter]],
        emit: Callable[[Event], Awaitable[None]],
    ) -> None:
        """Take the parts.

        Args:
            policy: how to run.
            source: where prompts come from.
            engine: what generates; started by the caller.
            tokenizer: the policy's.
            choices: how samples are run and scored.
            group_filter: which groups are kept; None keeps all.
            sample_filters: which samples of the kept groups are not trained on, one after another.
            emit: told of finished samples and groups, once a wave each.
        """
        self.policy = policy
        """How it runs."""
        self.runner = SampleRunner(policy=policy, engine=engine, tokenizer=tokenizer, choices=choices)
        """Runs the samples; evaluation shares its slots."""
        self.emit = emit
        """Where events go."""
        self._source = source
        self._filter = group_filter
        self._sample_filters = sample_filters

    @property
    def waiting_for(self) -> str:
        """What the samples in flight wait for: "engine: 37 samples"."""
        return self.runner.waiting.text

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Run groups until at least `want` are kept.

        Raises:
            RolloutError: too many samples failed, or too few groups were kept after `max_filter_waves` waves.
            ContractError: a filter's answer breaks its contract.
            PluginError: a filter raised.
            WorkerError: the engine is gone.
        """
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
            self._remove_samples(tally, FilterContext(rollout_id))
        except BaseException:
            self._source.add(drawn)
            raise
        return RolloutResult(tally.kept, tally.dropped, tally.reasons, tally.metrics())

    def _wave_size(self, missing: int, want: int) -> int:
        """Groups to draw; with a filter more than are missing, because some of them will be dropped."""
        if self._filter is None:
            return missing
        return self.policy.over_sampling_batch_size or want

    async def _run_wave(self, rollout_id: int, drawn: Sequence[Group], tally: Tally, want: int) -> list[Group]:
        """Run one wave into the tally; returns the groups that an engine interrupted, as they were drawn."""
        ran = await self.runner.run(drawn, Purpose(rollout_id, False, self.policy.sampling))
        interrupted = [group for group in ran if _is_interrupted(group)]
        finished = [group for group in ran if not _is_interrupted(group)]
        tally.add_samples(finished)
        samples = [scored.sample for group in finished for scored in group.scored]
        kept, dropped = len(tally.kept), len(tally.dropped)
        self._sort(rollout_id, finished, tally, want)
        await self.emit(SamplesDone(rollout_id, samples, evaluation=False))
        reasons = {group.id: tally.reasons[group.id] for group in tally.dropped[dropped:]}
        await self.emit(GroupsDone(rollout_id, tally.kept[kept:], reasons))
        tally.check_error_rate(self.policy.max_error_rate)
        return [group.drawn for group in interrupted]

    def _sort(self, rollout_id: int, finished: Sequence[RunGroup], tally: Tally, want: int) -> None:
        """Keep or drop each group of a wave."""
        context = FilterContext(rollout_id)
        groups = [_surviving(group, self.policy.reward_on_error) for group in finished]
        decisions = [self._decide(group, ran, context) for group, ran in zip(groups, finished, strict=True)]
        short = want - len(tally.kept) - sum(isinstance(decision, Keep) for decision in decisions)
        for group, decision in zip(groups, decisions, strict=True):
            group.freeze()
            if isinstance(decision, KeepIfShort) and short > 0:
                short -= 1
                tally.kept.append(group)
            elif isinstance(decision, Keep):
                tally.kept.append(group)
            else:
                tally.drop(group, decision.reason)

    def _decide(self, group: Group, ran: RunGroup, context: FilterContext) -> Decision:
        """The filter's decision about a group that has something to learn from."""
        failed = any(scored.failure is not None for scored in ran.scored)
        if failed and len(group.rewards) < 2:
            return Drop("unscored")
        if self._filter is None:
            return Keep()
        with blaming("group filter", self._filter.plugin):
            answer = self._filter.part(group, context)
        return check_decision(answer, plugin=self._filter.plugin, group=group)

    def _remove_samples(self, tally: Tally, context: FilterContext) -> None:
        """Ask each sample filter about what the ones before it left; a failed sample is out already."""
        for use in self._sample_filters:
            groups = tuple(tally.kept)
            with blaming("sample filter", use.plugin):
                answer = use.part(groups, context)
            tally.remove(check_removals(answer, plugin=use.plugin, groups=groups))


def _is_interrupted(group: RunGroup) -> bool:
    return any(scored.sample.status is Status.ABORTED for scored in group.scored)


def _surviving(ran: RunGroup, on_error: RewardOnError) -> Group:
    """The finished group; one that lost all its samples keeps them, to show why."""
    samples = [scored.sample for scored in ran.scored if on_error is not RewardOnError.DROP or scored.failure is None]
    return Group(ran.id, samples or [scored.sample for scored in ran.scored], ran.drawn.metadata)
