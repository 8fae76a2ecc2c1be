"""SampleRunner: runs one drawn sample from prompt to reward; whatever a plugin does costs that sample alone.

Example:

    runner = SampleRunner(policy=policy, engine=engine, tokenizer=tokenizer, choices=choices)
    groups = await runner.run(drawn, Purpose(rollout_id=0, evaluation=False, sampling=policy.sampling))
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TypeVar

from slime_core.catalog.checks import check_generated
from slime_core.errors import ContractError, RolloutError, WorkerError, lines_of, said_by
from slime_core.isolation import Slots
from slime_core.roles import (
    Engine,
    GenerateContext,
    GenerateOutput,
    GenerateRequest,
    RewardContext,
    SamplingParams,
    Tokenizer,
)
from slime_core.rollout.allowance import Allowance
from slime_core.rollout.choices import Choices
from slime_core.rollout.pausable import Continued, PausableEngine
from slime_core.rollout.policy import GeneratorUse, RewardOnError, RolloutPolicy, Scoring
from slime_core.rollout.score import Failure, Hearing, Scored, cancel, cancelled_from_outside, hear, hear_together
from slime_core.rollout.waiting import A_SLOT, Waiting, runs_by, within
from slime_core.sample import Group, GroupId, Json, PrefixCacheInfo, Sample, SpecInfo, Status
from slime_core.seeds import derive_seed

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Purpose:
    """What samples are run for."""

    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether it is for evaluation."""
    sampling: SamplingParams
    """How to sample."""
    generator: GeneratorUse | None = None
    """Instead of the run's."""
    scoring: Scoring | None = None
    """Instead of the run's."""
    allowance: Allowance | None = None
    """Counts failures while samples still run; None waits for all."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """A drawn group and what became of each of its samples, fanned-out ones included."""

    id: GroupId
    """Its identity."""
    drawn: Group
    """As the data source gave it, untouched."""
    scored: Sequence[Scored]
    """Its finished samples, in order of the drawn ones."""


@dataclass(slots=True)
class _Running:
    """A group whose samples are being run, and the scoring of them as a group."""

    group: Group
    made: list[Sequence[Scored | Hearing]]
    """By drawn sample; empty while it runs."""
    missing: int
    """Drawn samples that still run."""
    scoring: Scoring
    freed: Callable[[], None] | None
    """Told of each drawn sample that needs no slot any more."""


class SampleRunner:
    """Generates and scores samples under one set of slots."""

    def __init__(self, *, policy: RolloutPolicy, engine: Engine, tokenizer: Tokenizer, choices: Choices) -> None:
        """Take the parts."""
        self.waiting = Waiting()
        """What the samples in flight are waiting for."""
        self.engine = PausableEngine(engine, mask_stale=policy.mask_offpolicy_in_partial_rollout)
        """What generates."""
        self._policy = policy
        self._tokenizer = tokenizer
        self._choices = choices
        self._slots = Slots(policy.max_concurrency)
        self._told: set[str] = set()

    async def run(
        self, groups: Sequence[Group], purpose: Purpose, freed: Callable[[], None] | None = None
    ) -> list[RunGroup]:
        """Run all samples of some groups at once; the drawn groups stay as they are.

        Args:
            groups: as drawn.
            purpose: what they are run for.
            freed: called for each drawn sample when it is generated and gave its slot back.

        Raises:
            RolloutError: a sample failed and the policy is to raise, or more failed than the purpose allows.
            ContractError: a drawn sample names a generator or a reward that does not exist.
            WorkerError: the engine is gone.
        """
        scoring = purpose.scoring or self._choices.scoring
        running = [_Running(group, [[] for _ in group.samples], len(group.samples), scoring, freed) for group in groups]
        await all_or_none([self._follow(each, place, purpose) for each in running for place in range(each.missing)])
        return [RunGroup(each.group.id, each.group, _settled(each)) for each in running]

    async def _follow(self, running: _Running, place: int, purpose: Purpose) -> None:
        """Run one drawn sample so that it can be named while it is in flight."""
        with self.waiting.following(running.group.id, running.group.samples[place].index):
            await self._run(running, place, purpose)

    async def _run(self, running: _Running, place: int, purpose: Purpose) -> None:
        """Run one drawn sample; the last one of a group has the group scored."""
        running.made[place] = await self._run_alone(running, running.group.samples[place], purpose)
        if purpose.allowance is not None:
            purpose.allowance.ended([each.failure for each in running.made[place]])
        running.missing -= 1
        if running.missing:
            return
        hearings = [each for made in running.made for each in made if isinstance(each, Hearing)]
        if hearings and running.scoring.group_rewards:
            seed = derive_seed(self._policy.seed, *running.group.id, "group_reward")
            context = RewardContext(purpose.rollout_id, purpose.evaluation, seed)
            await hear_together(hearings, running.scoring.group_rewards, context, self.waiting)
        running.made = [[self._closed(each) for each in made] for made in running.made]

    async def _run_alone(self, running: _Running, drawn: Sample, purpose: Purpose) -> Sequence[Scored | Hearing]:
        """Generate, and ask the rewards that look at one sample; it is closed if its own row chose its reward."""
        group_id, sample = running.group.id, fresh_copy(drawn)
        generator = self._choices.generator_of(drawn) or purpose.generator or self._choices.generator
        own_reward = self._choices.reward_of(drawn)
        made = await self._generate(group_id, sample, generator, purpose)
        if running.freed is not None:
            running.freed()
        if isinstance(made, Failure):
            failed = fresh_copy(drawn)  # whatever state the generator left its own in
            failed.status = Status.FAILED
            return [self._judged(Scored(failed, failure=made))]
        seed = derive_seed(self._policy.seed, *group_id, drawn.index or 0, "reward")
        context = RewardContext(purpose.rollout_id, purpose.evaluation, seed)
        if own_reward is not None:
            own = Scoring([own_reward], keeps_parts=running.scoring.keeps_parts)
            return [self._closed(await hear(each, own, context, self.waiting)) for each in made]
        return [await self._heard(each, running.scoring, context) for each in made]

    async def _heard(self, sample: Sample, scoring: Scoring, context: RewardContext) -> Hearing:
        hearing = await hear(sample, scoring, context, self.waiting)
        if hearing.failure is not None and self._policy.reward_on_error is RewardOnError.RAISE:
            self._closed(hearing)  # at once, not when its group is done
        return hearing

    async def _generate(
        self, group_id: GroupId, sample: Sample, use: GeneratorUse, purpose: Purpose
    ) -> list[Sample] | Failure:
        runs_by(use.name)
        turns = _Turns(self.engine, self._policy.seed, group_id, sample.index or 0, self.waiting)
        context = GenerateContext(
            turns.generate, self._tokenizer, purpose.sampling, purpose.rollout_id, purpose.evaluation
        )
        try:
            await self._take_slot()
            try:
                made = await within(use.generator(sample, context), self.waiting, "generator")
            finally:
                self._slots.release()
            finished = check_generated(made, plugin=use.plugin, sample=sample)
            turns.mask_stale(finished)
            return finished
        except TimeoutError as error:
            return Failure("generator_timeout", said_by(error), error)
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            return Failure("generator_cancelled", "the generator cancelled itself")
        except WorkerError:
            raise  # the engine is gone, and with it every sample
        except ContractError as error:
            return Failure("generator_contract", said_by(error), error)
        except Exception as error:
            return Failure(f"generator_{type(error).__name__}", said_by(error), error)

    async def _take_slot(self) -> None:
        """Wait for one of the run's slots."""
        self.waiting.enter(A_SLOT)
        try:
            await self._slots.acquire()
        finally:
            self.waiting.leave(A_SLOT)

    def _closed(self, each: Scored | Hearing) -> Scored:
        return self._judged(each.close()) if isinstance(each, Hearing) else each

    def _judged(self, scored: Scored) -> Scored:
        """Apply the policy to one sample, and log the first failure of each kind."""
        failure, sample = scored.failure, scored.sample
        if failure is None:
            return scored
        where = f"sample {sample.index} of group {sample.group_index}"
        if self._policy.reward_on_error is RewardOnError.RAISE:
            raise RolloutError(f"{where} failed ({failure.reason}): {failure.detail}") from failure.cause
        sample.remove_sample = True
        if failure.reason not in self._told:
            self._told.add(failure.reason)
            log.warning("%s failed (%s): %s%s", where, failure.reason, failure.detail, lines_of(failure.cause))
        return scored


class _Turns:
    """The engine as one sample sees it: each call has a seed of its own, derived from the sample's identity."""

    ATTEMPT = 0

    __slots__ = ("_engine", "_group", "_identity", "_made", "_turn", "_waiting")

    def __init__(self, engine: PausableEngine, seed: int, group: GroupId, index: int, waiting: Waiting) -> None:
        self._engine, self._group, self._waiting = engine, group, waiting
        self._identity = (seed, *group, index)
        self._turn = 0
        self._made: list[GenerateOutput] = []

    async def generate(self, prompt: Sequence[int], sampling: SamplingParams) -> GenerateOutput:
        """One engine call."""
        seed = derive_seed(*self._identity, self._turn, self.ATTEMPT)
        self._turn += 1
        self._waiting.leave("generator")
        self._waiting.enter("engine")
        try:
            made = await self._engine.generate(GenerateRequest(prompt, sampling, seed, self._group))
        finally:
            self._waiting.leave("engine")
            self._waiting.enter("generator")
        self._made.append(made)
        return made

    def mask_stale(self, finished: Sequence[Sample]) -> None:
        """Take tokens that older weights made out of the loss; where they cannot be told apart, the whole sample."""
        if not any(isinstance(made, Continued) and made.stale for made in self._made):
            return
        stale = [
            isinstance(made, Continued) and position < made.stale
            for made in self._made
            for position in range(len(made.tokens))
        ]
        for sample in finished:
            mask = list(sample.loss_mask or [])
            trainable = [position for position, bit in enumerate(mask) if bit]
            if len(finished) == 1 and len(trainable) == len(stale):
                for position, is_stale in zip(trainable, stale, strict=True):
                    mask[position] = int(not is_stale)
                sample.loss_mask = mask
            else:
                sample.remove_sample = True


def _settled(running: _Running) -> list[Scored]:
    return [each for made in running.made for each in made if isinstance(each, Scored)]


async def all_or_none(work: Sequence[Coroutine[object, object, T]]) -> list[T]:
    """Run coroutines at once and return their results in order; when one fails, none is left running."""
    tasks = [asyncio.create_task(each) for each in work]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        errors = [error for task in tasks if task.done() and (error := task.exception())]
        if errors:
            raise errors[0]
        return [task.result() for task in tasks]
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Sequence[asyncio.Task[T]]) -> None:
    """Cancel what is not done, and wait for the end of it."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        cancel(task)
    if unfinished:
        await asyncio.gather(*unfinished, return_exceptions=True)


_values = attrgetter(*(item.name for item in fields(Sample)))
_counts = attrgetter(*(item.name for item in fields(SpecInfo)))
_cached = attrgetter(*(item.name for item in fields(PrefixCacheInfo)))


def fresh_copy(sample: Sample) -> Sample:
    """A copy that a generator may change at will: nothing that it can reach is shared."""
    made = Sample(*_values(sample))
    made.metadata = {key: _copied(value) for key, value in sample.metadata.items()}
    made.weight_versions = list(sample.weight_versions)
    made.spec_info = SpecInfo(*_counts(sample.spec_info))
    made.prefix_cache_info = PrefixCacheInfo(*_cached(sample.prefix_cache_info))
    return made


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value
