"""Runs one drawn sample from prompt to reward, by default in one turn, and masks tokens of old weights.

An error in a plugin fails only that sample.

Example:

    runner = SampleRunner(policy=policy, engine=engine, tokenizer=tokenizer, choices=choices)
    groups = await runner.run_groups(drawn, Purpose(rollout_id=0, evaluation=False, sampling=policy.sampling))
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from operator import attrgetter

from slime_core.aio import Slots, cancelled_from_outside, gather_or_cancel
from slime_core.catalog import check_generated
from slime_core.data.rendering import Renderer
from slime_core.data.rows import read_messages, read_tools, refuse_media
from slime_core.errors import (
    ConfigError,
    DataError,
    RolloutError,
    WorkerError,
    traceback_text,
)
from slime_core.roles import (
    Engine,
    Extra,
    FinishReason,
    GenerateContext,
    GenerateOutput,
    RewardContext,
    SamplingParams,
    Tokenizer,
)
from slime_core.rollout.calls import (
    WAITING_FOR_SLOT,
    Call,
    Calls,
    PausableEngine,
    SampleInFlight,
    SamplesInFlight,
    attach_engine_extras,
    set_wait,
)
from slime_core.rollout.policy import Choices, RewardOnError, RolloutPolicy, Scoring, UsedGenerator
from slime_core.rollout.scoring import (
    ENVIRONMENT,
    ErrorBudget,
    Execution,
    Failure,
    ScoredSample,
    score_execution,
    score_group,
)
from slime_core.sample import Group, Json, PrefixCacheInfo, Sample, SpecInfo, Status
from slime_core.seeds import derive_seed

# Versions: which weights generated which tokens of a finished sample.


def note_versions(samples: Sequence[Sample], calls: Sequence[Call]) -> None:
    """Set the version of each range of tokens, if there are several and the generator has not set them.

    A generator that rewrites the tokens of an output must set the versions itself; otherwise those tokens get the
    oldest version.
    """
    if len({version for call in calls for _, version in call.output.versions}) < 2:
        return
    for sample in samples:
        if len(sample.weight_version_ends) != len(sample.weight_versions):
            found = list(_runs(_versions_of(sample, calls)))
            sample.weight_versions = [str(version) for version, _ in found]
            sample.weight_version_ends = [end for _, end in found]


def mask_stale(sample: Sample) -> None:
    """Exclude tokens from the loss that are older than the sample's newest weights."""
    spans = list(sample.version_spans)
    newest = max((version for *_, version in spans), default=0)
    stale = [(begin, end) for begin, end, version in spans if version < newest]
    if not stale or sample.loss_mask is None:
        return
    mask = list(sample.loss_mask)
    for begin, end in stale:
        mask[begin:end] = [0] * len(mask[begin:end])
    sample.loss_mask = mask


def _runs(versions: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Version and end of each stretch of tokens; tokens without a version belong to the next stretch."""
    end = 0
    for version, run in groupby(versions):
        end += sum(1 for _ in run)
        if version is not None:
            yield version, end


def _versions_of(sample: Sample, calls: Sequence[Call]) -> list[int | None]:
    """The version of each response token; tokens outside of all outputs have None if masked, else the oldest version.

    A token is part of an output if id and log-prob match there, and match for all tokens before it in the output.
    """
    length = sample.response_length
    ids, mask = sample.tokens[sample.prompt_length :], sample.loss_mask or [0] * length
    log_probs = array("f", sample.rollout_log_probs or [0.0] * length)
    oldest = min(version for call in calls for _, version in call.output.versions)
    found: list[int | None] = [oldest if bit else None for bit in mask]
    for call in calls:
        begin, output = call.prompt_length - sample.prompt_length, call.output
        versions = [version for count, version in output.versions for _ in range(count)]
        made = zip(output.tokens, array("f", output.log_probs), versions, strict=True)
        for place, (token, log_prob, version) in enumerate(made, start=begin):
            if not 0 <= place < length or ids[place] != token or (mask[place] and log_probs[place] != log_prob):
                break
            found[place] = version
    return found


# SampleRunner: one drawn sample from prompt to reward.

UNUSED = (
    "generator %s of plugin %s scores samples itself, without effect: give it a weight with the rewards, "
    "[reward] use = {..., environment = 1.0}, or 0.0 to measure it alone"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Purpose:
    """What samples are generated for, and how."""

    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether the samples are for evaluation."""
    sampling: SamplingParams
    """Sampling parameters."""
    generator: UsedGenerator | None = None
    """Replaces the run's generator."""
    scoring: Scoring | None = None
    """Replaces the run's rewards."""
    budget: ErrorBudget | None = None
    """Counts failures while other samples still run."""
    on_generated: Callable[[], None] = lambda: None
    """Called whenever a generated sample has freed its slot."""


@dataclass(slots=True)
class GroupProgress:
    """A drawn group and the executions of its samples."""

    drawn: Group
    """The group as the data source returned it."""
    executions: dict[int, Execution] = field(default_factory=dict)
    """Finished executions by the position of their drawn sample; in this order once all have finished."""

    @property
    def scored(self) -> list[ScoredSample]:
        """All finished samples."""
        return [scored for each in self.executions.values() for scored in each.scored]

    @property
    def is_interrupted(self) -> bool:
        """Whether an engine aborted one of its samples."""
        return any(scored.sample.status is Status.ABORTED for scored in self.scored)


class SampleRunner:
    """Generates and scores samples, at most `max_concurrency` at once."""

    def __init__(self, *, policy: RolloutPolicy, engine: Engine, tokenizer: Tokenizer, choices: Choices) -> None:
        self.in_flight = SamplesInFlight()
        """What each sample in flight waits for."""
        self.engine = PausableEngine(engine)
        """The engine that all calls use."""
        self._policy = policy
        self._tokenizer = tokenizer
        self._choices = choices
        self._slots = Slots(policy.max_concurrency)
        self._logged: set[str] = set()

    async def run_groups(self, groups: Sequence[Group], purpose: Purpose) -> list[GroupProgress]:
        """Run all samples of drawn groups concurrently.

        Raises:
            RolloutError: a sample failed and the policy is to raise, or too many failed for the budget.
            ContractError: a drawn sample names a generator or a reward that does not exist.
            WorkerError: the engine has failed for good.
            ConfigError: no sample can be generated with the settings of a generator.
        """
        all_progress = [GroupProgress(group) for group in groups]
        await gather_or_cancel(
            *(
                self._run_sample(progress, place, purpose)
                for progress in all_progress
                for place in range(len(progress.drawn.samples))
            )
        )
        return all_progress

    async def _run_sample(self, progress: GroupProgress, place: int, purpose: Purpose) -> None:
        """Run one drawn sample; the last one of its group also runs the group rewards."""
        group, budget = progress.drawn, purpose.budget
        with self.in_flight.track(group.id, group.samples[place].index, evaluation=purpose.evaluation) as state:
            execution = progress.executions[place] = await self._generate_and_score(group, place, purpose, state)
            if budget is not None:
                budget.add(execution.failure)
            if len(progress.executions) < len(group.samples):
                return
            progress.executions = dict(sorted(progress.executions.items()))
            unclosed = [each for each in progress.executions.values() if not each.is_closed]
            scored = [each for each in unclosed if each.failure is None]
            group_rewards = (purpose.scoring or self._choices.scoring).group_rewards
            if unclosed and group_rewards:
                await score_group(unclosed, group_rewards, self._context(purpose, *group.id, "group_reward"))
            for each in unclosed:
                self._close(each)
            for each in scored:
                if budget is not None and each.failure is not None:
                    budget.fail(each.failure)

    def _context(self, purpose: Purpose, *named: str | int) -> RewardContext:
        return RewardContext(purpose.rollout_id, purpose.evaluation, derive_seed(self._policy.seed, *named))

    async def _generate_and_score(self, group: Group, place: int, purpose: Purpose, state: SampleInFlight) -> Execution:
        """Generate and score one sample; closes the execution if the row chose its reward."""
        drawn = group.samples[place]
        generator = self._choices.generator_of(drawn) or purpose.generator or self._choices.generator
        own_reward = self._choices.reward_of(drawn)
        state.generator = generator.name
        wanted_extras = frozenset[Extra]() if purpose.evaluation else self._policy.wanted_extras
        calls = Calls(self.engine, self._policy, purpose.sampling, (group.id, drawn.index or 0, state), wanted_extras)
        made = await self._generate(fresh_copy(drawn), generator, purpose, calls)
        non_generation_s = calls.non_generation_s
        purpose.on_generated()
        if self._choices.teacher is not None and not purpose.evaluation and not isinstance(made, Failure):
            try:
                set_wait("teacher")
                await self._choices.teacher.teach(made)
            except Exception as error:
                made = _failure("teacher", error)
        if isinstance(made, Failure):
            # The generator may have left its sample in any state: use a fresh copy.
            execution = Execution([fresh_copy(drawn)], failure=made)
        else:
            non_generation_s = max(each.non_generation_time for each in made) or non_generation_s
            scoring = purpose.scoring or self._choices.scoring
            if own_reward is not None:
                scoring = Scoring([own_reward], keeps_parts=scoring.keeps_parts)
            if not scoring.reads_own and any(each.reward is not None for each in made):
                self._warn_once(ENVIRONMENT, UNUSED, generator.name, generator.plugin)
            context = self._context(purpose, *group.id, drawn.index or 0, "reward")
            execution = await score_execution(made, scoring, context)
        execution.non_generation_s = non_generation_s
        execution.measured = {f"{generator.name}/{name}": each for name, each in calls.measured.items()}
        raises = execution.failure is not None and self._policy.reward_on_error is RewardOnError.RAISE
        if isinstance(made, Failure) or own_reward is not None or raises:
            self._close(execution)  # raises at once, not only when its group is done
        return execution

    async def _generate(
        self, sample: Sample, use: UsedGenerator, purpose: Purpose, calls: Calls
    ) -> list[Sample] | Failure:
        context = GenerateContext(
            calls.generate,
            self._tokenizer,
            purpose.sampling,
            purpose.rollout_id,
            purpose.evaluation,
            max_context=self._policy.max_context,
            max_turns=self._policy.max_turns,
            measure=calls.measure,
            restart=calls.restart,
        )
        try:
            set_wait(WAITING_FOR_SLOT)
            await self._slots.acquire()
            try:
                if use.lifecycle is not None:
                    await use.lifecycle.start()
                calls.begin()
                set_wait("generator")
                made = await use.part(sample, context)
            finally:
                self._slots.release()
            finished = check_generated(made, plugin=use.plugin, sample=sample, vocab_size=self._policy.vocab_size)
            calls.note(finished)
            note_versions(finished, calls.finished)
            if self._policy.mask_offpolicy_in_partial_rollout:
                for each in finished:
                    mask_stale(each)
            attach_engine_extras(calls.finished, finished)
            return finished
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            return Failure("generator_cancelled", "the generator cancelled itself")
        except Exception as error:
            return _failure("generator", error)

    def _close(self, execution: Execution) -> None:
        """Close an execution, apply the policy to its failed samples, and log the first failure of each kind."""
        for sample, failure in ((each.sample, each.failure) for each in execution.close()):
            if failure is None:
                continue
            where = f"sample {sample.index} of group {sample.group_index}"
            if self._policy.reward_on_error is RewardOnError.RAISE:
                raise RolloutError(f"{where} failed ({failure.reason}): {failure.detail}") from failure.cause
            sample.remove_sample = True
            lines = traceback_text(failure.cause)
            self._warn_once(failure.reason, "%s failed (%s): %s%s", where, failure.reason, failure.detail, lines)

    def _warn_once(self, what: str, text: str, *arguments: object) -> None:
        if what not in self._logged:
            self._logged.add(what)
            log.warning(text, *arguments)


def _failure(source: str, error: Exception) -> Failure:
    """Return a sample's failure by an error. Raises a `WorkerError` or `ConfigError`, which would fail every sample."""
    if isinstance(error, ExceptionGroup):
        final, _ = error.split((WorkerError, ConfigError))
        return _failure(source, (final or error).exceptions[0])
    if isinstance(error, WorkerError | ConfigError):
        raise error
    return Failure.of(source, error)


_values = attrgetter(*(item.name for item in fields(Sample)))
_counts = attrgetter(*(item.name for item in fields(SpecInfo)))
_cached = attrgetter(*(item.name for item in fields(PrefixCacheInfo)))


def fresh_copy(sample: Sample) -> Sample:
    """Return a copy that shares nothing mutable, which a generator may change."""
    made = Sample(*_values(sample))
    made.metadata = {key: _copied(value) for key, value in sample.metadata.items()}
    made.weight_versions = list(sample.weight_versions)
    made.weight_version_ends = list(sample.weight_version_ends)
    made.spec_info = SpecInfo(*_counts(sample.spec_info))
    made.prefix_cache_info = PrefixCacheInfo(*_cached(sample.prefix_cache_info))
    return made


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return value


# SingleTurn: the default generator.

STATUS_OF_FINISH = {
    FinishReason.STOP: Status.COMPLETED,
    FinishReason.LENGTH: Status.TRUNCATED,
    FinishReason.ABORT: Status.ABORTED,
}
"""Status of a sample by its finish reason."""


def response_text(tokenizer: Tokenizer, output: GenerateOutput, sampling: SamplingParams) -> str:
    """Return the text of a response; `sampling` decides whether special tokens and the stop text stay."""
    keep = {} if sampling.skip_special_tokens else {"skip_special_tokens": False}
    text = tokenizer.decode(output.tokens, **keep)
    if isinstance(output.matched, str) and not sampling.no_stop_trim:
        text = text.partition(output.matched)[0]
    return text


class SingleTurn:
    """The default generator: one engine call for the prompt. Implements `slime_core.roles.Generator`."""

    CACHED_PROMPTS = 1024

    def __init__(self) -> None:
        self._ids: dict[str, Sequence[int]] = {}
        self._tokenizer: Tokenizer | None = None
        self._renderer: Renderer | None = None

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        prompt = self._encode(sample, ctx.tokenizer)
        output = await ctx.generate(prompt, ctx.sampling)
        sample.tokens = prompt
        sample.append_response_tokens(output=output, text=response_text(ctx.tokenizer, output, ctx.sampling))
        sample.status = STATUS_OF_FINISH[output.finish]
        return [sample]

    def _encode(self, sample: Sample, tokenizer: Tokenizer) -> Sequence[int]:
        # Samples of a group share one encoding.
        text = self.prompt_text(sample, tokenizer)
        if tokenizer is not self._tokenizer or len(self._ids) >= self.CACHED_PROMPTS:
            self._ids, self._tokenizer = {}, tokenizer
        ids = self._ids.get(text)
        if ids is None:
            ids = self._ids[text] = tuple(tokenizer.encode(text))
        return ids

    def prompt_text(self, sample: Sample, tokenizer: Tokenizer) -> str:
        """Return the text that the model continues: a text prompt unchanged, messages rendered.

        Raises:
            DataError: the messages cannot be used.
            ModelError: the model has no chat template.
        """
        messages = sample.prompt
        if isinstance(messages, str):
            return messages
        kwargs = sample.apply_chat_template_kwargs
        if self._renderer is None or not self._renderer.is_for(tokenizer, kwargs):
            self._renderer = Renderer(tokenizer, kwargs)
        read, tools = read_messages([*messages], "prompt"), read_tools(sample.metadata.get("tools"), "tools")
        if read and read[-1]["role"] == "assistant":
            raise DataError("the prompt ends with an assistant message: remove it, or make the prompt a text")
        refuse_media(read)
        return self._renderer.prompt(read, tools).text
