"""GeneratorContract: the requirements on every generator, GEN-001 to GEN-029.

    class TestSearch(GeneratorContract):
        choice = "slime-agent-search/search"
        answers = ("search: Paris", "search: Seine", "The river is the Seine.")

The generator uses a scripted engine; its tools and environments are real. `answers` make it take several turns, since
most errors appear only after the first turn.
"""

import asyncio
import contextlib
import copy
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import ClassVar
from unittest import SkipTest

from slime_core.catalog import check_generated
from slime_core.errors import LimitError
from slime_core.roles import (
    FinishReason,
    GenerateContext,
    Generator,
    GeneratorSpec,
    SamplingParams,
    StartsAndStops,
    is_async,
)
from slime_core.sample import Sample, Status
from slime_testing.blocking import BLOCK_S, blocks
from slime_testing.calling import RAISED, CallFactory, call, count_call_tasks, find_leaks, ignores_cancellation
from slime_testing.contract import check, require
from slime_testing.engine import MAX_NEW_TOKENS, Call, ScriptedEngine
from slime_testing.role import RoleContract, require_called_as
from slime_testing.samples import make_pending

TIMEOUT_S = 10.0
"""Seconds that a generator may take for one scripted sample."""
AMPLE = 1024
"""Token budget for a generator's turns, in addition to the scripted answers."""
TURNS = 3
"""Number of turns in which the kit injects events, counted from the first."""


def turns_of(calls: Sequence[Call]) -> list[Call]:
    """The first request, and each later request with a new prompt after an answer."""
    known: set[tuple[int, ...]] = set()
    turns: list[Call] = []
    for each in sorted(calls, key=lambda each: each.request):
        if not turns or (each.answered and each.prompt not in known):
            turns.append(each)
        known.add(each.prompt)
    return turns


@contextlib.asynccontextmanager
async def running_generator(generator: Generator) -> AsyncIterator[Generator]:
    """The generator, started if it has `start`, and closed afterwards."""
    if not isinstance(generator, StartsAndStops):
        yield generator
        return
    try:
        await generator.start()
        yield generator
    finally:
        await generator.close()


async def call_once(generator: Generator, sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """Start the generator, call it once and close it."""
    async with running_generator(generator):
        return await generate(generator, sample, ctx)


async def generate(generator: Generator, sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """Call the generator with a timeout of `TIMEOUT_S`."""
    async with asyncio.timeout(TIMEOUT_S):
        return await generator(sample, ctx)


def require_as_answered(sample: Sample, calls: Sequence[Call]) -> None:
    """Fail the running check unless trainable tokens match the engine's answers: ids, log-probs, versions, context."""
    recorded = set(sample.weight_versions)
    response = list(sample.tokens)[sample.prompt_length :]
    marked = zip(sample.loss_mask or (), response, sample.rollout_log_probs or (), strict=True)
    begin, trained = 0, False
    for bit, items in itertools.groupby(marked, key=lambda item: item[0]):
        segment = list(items)
        if bit:
            trained = True
            tokens, log_probs = tuple(each[1] for each in segment), tuple(each[2] for each in segment)
            spans = list(_calls_with_output(tokens, calls))
            require(spans, f"trainable tokens {tokens} at {begin} of the response are not tokens of an engine's answer")
            same = [span for span in spans if _joined(span, "log_probs") == log_probs]
            expected = _joined(spans[0], "log_probs")
            require(same, f"trainable tokens have log-probs {_few(log_probs)}; the engine returned {_few(expected)}")
            versions = [{str(version) for each in span for version in each.versions} for span in same]
            complete = any(each <= recorded for each in versions)
            reported = ", ".join(sorted(versions[0]))
            require(complete, f"weight_versions are {sorted(recorded)}; the engine reported {reported}")
        begin += len(segment)
    require(trained, "no token of the response is trainable; expected the engine's tokens with mask 1")
    unknown = recorded - {str(version) for each in calls for version in each.versions}
    never = ", ".join(sorted(unknown))
    require(not unknown, f"weight_versions are {sorted(recorded)}; the engine never reported {never}")


def require_in_context(sample: Sample, calls: Sequence[Call]) -> None:
    """Fail the running check unless each trainable answer follows the prompt that the engine had for it."""
    tokens, mask = tuple(sample.tokens), sample.loss_mask or ()
    place = sample.prompt_length
    for bit, items in itertools.groupby(mask):
        count = len(list(items))
        if bit:
            spans = _calls_with_output(tokens[place : place + count], calls)
            fits = any(_follows(span, tokens, place) for span in spans)
            where = f"the engine generated the answer at {place - sample.prompt_length} of the response"
            require(
                fits, f"{where} after another prompt, so the trainer would compute its log-probs in a wrong context"
            )
        place += count


def _follows(span: Sequence[Call], tokens: tuple[int, ...], place: int) -> bool:
    for each in span:
        if each.prompt != tokens[:place]:
            return False
        place += len(each.output)
    return True


def _calls_with_output(tokens: tuple[int, ...], calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    for first in range(len(calls)):
        last, count = first, 0
        while last < len(calls) and count < len(tokens):
            count += len(calls[last].output)
            last += 1
        if _joined(calls[first:last], "output") == tokens:
            yield calls[first:last]


def _joined(span: Sequence[Call], name: str) -> tuple[object, ...]:
    return tuple(itertools.chain.from_iterable(getattr(each, name) for each in span))


def _few(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:4])) + (", …" if len(values) > 4 else "")


ABORT_S = 1.0
"""Seconds within which a call must end after an abort."""
CANCEL_S = 1.0
"""Seconds within which a request must end after its sample was cancelled."""
TURN_BUDGETS = (8, 64, 512)
"""Token budgets that are tried for a later turn: a generator may refuse to start a turn with a small budget."""
FAILED = (ConnectionError, ExceptionGroup)
"""Errors that a generator may raise if its engine fails, with or without a task group."""
DRAWN = ("prompt", "label", "index", "group_index", "source")
"""Fields that only the data source may set."""


class GeneratorContract(RoleContract[GeneratorSpec]):
    """Contract of generators: inherit it, and set `choice` and `answers` that make the generator take all its turns."""

    kind = GeneratorSpec
    prompts: ClassVar[tuple[str, str]] = ("What is 2 + 2?", "What is 3 + 4?")
    """Two prompts that the generator can answer."""
    answers: ClassVar[Sequence[str]] = ()
    """The engine's answer in each turn, such as `("8+6=", "14-4=", "so 10")` for a calculator.
    By default the engine returns a few letters, and most generators stop after one turn."""

    @check("GEN-001")
    def test_the_factory_builds_a_generator(self) -> None:
        """The core calls `await generator(sample, ctx)`. The factory returns an object with `async def __call__`."""
        built: object = self._build()
        require_called_as(built, "sample", "ctx")
        require(is_async(built), f"{type(built).__name__}.__call__ is a plain `def`; write `async def`")

    @check("GEN-002", needs=("GEN-001", "GEN-015"))
    def test_it_returns_finished_and_consistent_samples(self) -> None:
        """Add tokens with `sample.append_response_tokens`, so that tokens, mask and log-probs agree; set `status`."""
        pending = self._pending()
        check_generated(self._run(self._engine(), pending), plugin=self.registered.plugin, sample=pending)

    @check("GEN-003", needs=("GEN-002",))
    def test_the_response_contains_the_sampled_tokens(self) -> None:
        """Copy the engine's token ids, log-probs and weight versions unchanged. Never tokenize the text again."""
        engine = self._engine()
        for sample in self._run(engine, self._pending()):
            require_as_answered(sample, engine.calls)

    @check("GEN-004", needs=("GEN-002",))
    def test_tokens_start_with_the_prompt(self) -> None:
        """`sample.tokens` starts with the prompt's token ids, since the trainer needs the same context."""
        engine = self._engine()
        for sample in self._run(engine, self._pending()):
            tokens = tuple(sample.tokens)
            started = any(tokens[: len(call.prompt)] == call.prompt for call in engine.calls)
            require(started, "sample.tokens does not start with the prompt of a request to the engine")

    @check("GEN-005", needs=("GEN-002",))
    def test_the_response_stays_within_the_token_budget(self) -> None:
        """`ctx.sampling.max_new_tokens` limits the whole response. Request only the rest in each later turn."""
        engine = self._engine(finish=FinishReason.LENGTH, sampling=SamplingParams(MAX_NEW_TOKENS))
        for sample in self._run(engine, self._pending()):
            count = sample.effective_response_length
            require(count <= MAX_NEW_TOKENS, f"{count} trainable tokens exceed the budget of {MAX_NEW_TOKENS}")
            message = f"the status is {sample.status} after the budget ended the response; expected TRUNCATED"
            require(sample.status is Status.TRUNCATED, message)

    @check("GEN-006", needs=("GEN-002", "GEN-012"))
    def test_an_aborted_sample_has_the_status_aborted(self) -> None:
        """After finish ABORT, return the tokens so far with Status.ABORTED: the run needs the engine."""
        for turn in self._each_turn():
            returned = self._run(self._engine(finish=FinishReason.ABORT, from_turn=turn), self._pending())
            aborted = [each.status is Status.ABORTED for each in returned]
            message = f"the status is {returned[-1].status} after the engine aborted request {turn + 1}"
            require(any(aborted) if turn else all(aborted), f"{message}; expected ABORTED")

    @check("GEN-007", needs=("GEN-002",))
    def test_concurrent_samples_do_not_mix(self) -> None:
        """A rollout runs hundreds of samples on one generator. Keep the data of a sample in local variables."""
        engine = self._engine()
        pending = [self._pending(number % 2) for number in range(16)]

        async def concurrently() -> list[list[Sample]]:
            async with running_generator(self._build()) as generator:
                return await asyncio.gather(*(generate(generator, sample, engine.context(None)) for sample in pending))

        expected = [self._run(self._engine(), self._pending(number)) for number in range(2)]
        for number, returned in enumerate(asyncio.run(concurrently())):
            found, alone = (
                [(list(each.tokens), each.status) for each in one] for one in (returned, expected[number % 2])
            )
            require(found == alone, "a sample that was generated concurrently with others differs from one alone")

    @check("GEN-008", needs=("GEN-002",))
    def test_no_task_is_left_when_the_engine_fails(self) -> None:
        """If a request fails, raise or return FAILED samples, and end all started tasks (`asyncio.TaskGroup`).

        Client connections to a server that `start` launched do not count.
        """
        for turn in self._each_turn():
            engine = self._engine(error=ConnectionError("the engine is gone"), from_turn=turn)
            returned, pending = asyncio.run(self._failed(engine))
            others = [each.status.value for each in returned if each.status is not Status.FAILED]
            message = f"request {turn + 1} failed, but the samples are {', '.join(sorted(set(others)))}"
            require(len(others) < len(returned) if turn and returned else not others, f"{message}; expected failed")
            require(pending == 0, f"{pending} tasks are still running after request {turn + 1} failed")

    @check("GEN-009", needs=("GEN-002",))
    def test_the_prompt_and_label_are_not_changed(self) -> None:
        """Rewards and the sample store read `prompt` and `label` as the data source set them. Edit a copy."""
        pending = self._pending()
        for sample in self._run(self._engine(), copy.deepcopy(pending)):
            changed = [name for name in DRAWN if getattr(sample, name) != getattr(pending, name)]
            require(not changed, f"it changed {', '.join(changed)} of the sample; edit a copy")

    @check("GEN-010", needs=("GEN-002",))
    def test_all_returned_samples_have_the_same_rollout_id(self) -> None:
        """All samples that a call returns have the `rollout_id` of their input. Copy it."""
        pending = self._pending()
        for sample in self._run(self._engine(), copy.deepcopy(pending)):
            same = sample.rollout_id == pending.rollout_id
            require(same, f"a returned sample has rollout_id {sample.rollout_id}; expected {pending.rollout_id}")

    @check("GEN-011", needs=("GEN-002",))
    def test_a_call_can_be_cancelled(self) -> None:
        """Ctrl-C and timeouts cancel the call. Do not catch `asyncio.CancelledError`, or raise it again."""
        for turn in self._each_turn():
            make_call = self._call_factory(lambda: self._engine(delay_s=0.1, from_turn=turn))  # noqa: B023  # called in this iteration
            cancelled = not ignores_cancellation(make_call)
            require(cancelled, "the call still ran one second after task.cancel(); expected asyncio.CancelledError")

    @check("GEN-012", needs=("GEN-002",))
    def test_an_abort_ends_the_call(self) -> None:
        """After finish ABORT, return at once, without another request: the run needs the engine."""
        for turn in self._each_turn():
            engine = self._engine(finish=FinishReason.ABORT, from_turn=turn)
            try:
                pending = asyncio.run(self._aborted(engine))
            except TimeoutError:
                message = f"the call still ran {ABORT_S:g} s after the abort, after {engine.requests} requests in all"
                raise AssertionError(message) from None
            require(pending == 0, f"{pending} tasks are still running after the engine aborted the request")

    @check("GEN-013", needs=("GEN-003",))
    def test_masked_tokens_have_log_prob_zero(self) -> None:
        """Add tokens of tools and environments with `append_response_tokens(trainable=False)`: mask 0, log-prob 0.0."""
        for sample in self._run(self._engine(), self._pending()):
            pairs = zip(sample.loss_mask or (), sample.rollout_log_probs or (), strict=True)
            wrong = [value for bit, value in pairs if not bit and value != 0.0]
            require(not wrong, f"tokens with mask 0 have log-probs {wrong[:3]}; expected 0.0")

    @check("GEN-014", needs=("GEN-002", "GEN-008"))
    def test_a_retried_request_does_not_change_the_sample(self) -> None:
        """After a retry, the sample must be as if no request had failed. Append tokens only after an answer arrives."""
        expected = self._run(self._engine(), self._pending())
        for turn in self._each_turn():
            engine = self._engine(error=ConnectionError("try again"), errors=1, from_turn=turn)
            try:
                found = self._run(engine, self._pending())
            except FAILED:
                raise SkipTest("it does not retry failed requests") from None
            if any(sample.status is Status.FAILED for sample in found):
                raise SkipTest("it does not retry failed requests")
            message = f"it returned {len(found)} samples after a retry; expected {len(expected)}, as without one"
            require(len(found) == len(expected), message)
            for one, other in zip(found, expected, strict=True):
                pairs = ((one.tokens, other.tokens), (one.loss_mask, other.loss_mask))
                same = all(list(first or ()) == list(second or ()) for first, second in pairs)
                require(same, "a sample's tokens or mask differ after a retry; expected the same as without one")

    @check("GEN-015", needs=("GEN-001",))
    def test_it_does_not_block_the_event_loop(self) -> None:
        """All samples wait while a generator blocks the event loop. `await` tools, or use `asyncio.to_thread`."""
        if stall := blocks(self._call_factory(self._engine), BLOCK_S, self._open_generator):
            raise AssertionError(stall)

    @check("GEN-016", needs=("GEN-002", "GEN-020"))
    def test_calls_leave_nothing_running(self) -> None:
        """A run makes thousands of calls. End every task, thread, process, file and socket that a call starts."""
        left = find_leaks(lambda: self._call_factory(self._engine))
        require(not left, f"it leaks {left}")

    @check("GEN-017", needs=("GEN-002",))
    def test_it_uses_the_sampling_settings_of_the_run(self) -> None:
        """The trainer computes log-probs at the run's temperature. Change only the token budget of `ctx.sampling`."""
        budget = self._engine().sampling.max_new_tokens
        sampling = SamplingParams(budget, temperature=0.7, top_p=0.9, top_k=40)
        engine = self._engine(sampling=sampling)
        self._run(engine, self._pending())
        for request in engine.calls:
            used = dataclasses.replace(
                request.sampling, max_new_tokens=sampling.max_new_tokens, stop_token_ids=frozenset()
            )
            require(used == sampling, f"ctx.sampling is {sampling}, but a request used {request.sampling}")

    @check("GEN-018", needs=("GEN-002",))
    def test_it_works_in_evaluation(self) -> None:
        """Evaluation uses the same generator. With `ctx.evaluation` set, return finished samples as in training."""
        pending, ctx = self._pending(), dataclasses.replace(self._engine().context(None), evaluation=True)
        returned = asyncio.run(call_once(self._build(), pending, ctx))
        check_generated(returned, plugin=self.registered.plugin, sample=pending)

    @check("GEN-019", needs=("GEN-002",))
    def test_concurrent_requests_have_names(self) -> None:
        """Each request needs a fixed seed, which depends on its name. Pass `turn="..."` to concurrent requests."""
        engine = self._engine()
        self._run(engine, self._pending())
        at_once = engine.unnamed_at_once
        require(not at_once, f"a request without `turn` was sent while {at_once} others were running; pass `turn`")
        named = [turn for turn in engine.turns if turn is not None]
        require(len(set(named)) == len(named), f"two requests have the same `turn`: {sorted(named)}")

    @check("GEN-020", needs=("GEN-002",))
    def test_close_ends_everything(self) -> None:
        """End every task, thread, process, file and socket in `close`: another run may follow in this process."""
        if not isinstance(self._build(), StartsAndStops):
            raise SkipTest("it has no start() and close()")

        async def whole() -> int:
            async with asyncio.timeout(TIMEOUT_S):
                await call_once(self._build(), self._pending(), self._engine().context(None))
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        pending = asyncio.run(whole())
        require(pending == 0, f"{pending} tasks are still running after close()")
        left = find_leaks(lambda: whole)
        require(not left, f"close() leaves {left}, each with start() and close()")

    @check("GEN-021", needs=("GEN-008",))
    def test_a_failed_sample_has_a_reason(self) -> None:
        """Set `failure_reason` of FAILED samples. Metrics count them by reason, which is all that users see."""
        try:
            returned = self._run(self._engine(error=ConnectionError("the engine is gone")), self._pending())
        except FAILED:
            raise SkipTest("it raises an error, which is the reason") from None
        silent = [each.index for each in returned if each.status is Status.FAILED and not each.failure_reason]
        require(not silent, "a FAILED sample has an empty failure_reason")

    @check("GEN-022", needs=("GEN-002",))
    def test_it_respects_the_turn_limit(self) -> None:
        """`ctx.max_turns` limits the requests of a sample. Stop there, and return the tokens so far."""
        for limit in range(1, max(2, len(self._turns()))):
            engine = self._engine(max_turns=limit)
            try:
                self._run(engine, self._pending())
            except (LimitError, ExceptionGroup) as error:
                message = f"it sent {engine.requests} requests with ctx.max_turns = {limit}"
                raise AssertionError(f"{message}: {error}") from None

    @check("GEN-023", needs=("GEN-003",))
    def test_weight_versions_are_recorded_per_token(self) -> None:
        """An answer can have several weight versions. `append_response_tokens(output=...)` records them per token."""
        engine = self._engine(older_version=6)
        for sample in self._run(engine, self._pending()):
            versions = set(sample.weight_versions)
            require("6" in versions, f"weight_versions are {sorted(versions)}; the first token of each answer has 6")
            trained = set(sample.loss_mask or ())
            for begin, end, version in sample.version_spans if 1 in trained else ():
                count = sum((sample.loss_mask or ())[begin:end])
                at_most_one = version != 6 or count <= 1
                require(at_most_one, f"{count} tokens have weight version 6; expected the first of each answer only")

    @check("GEN-024", needs=("GEN-002",))
    def test_a_call_has_at_most_one_main_sample(self) -> None:
        """Rewards apply to the sample with `metadata["main"]`. If a call returns several samples, set it on one."""
        returned = self._run(self._engine(), self._pending())
        marked = sum(each.metadata.get("main") is True for each in returned)
        require(marked <= 1, f"{marked} of {len(returned)} samples have metadata['main']; expected at most 1")

    @check("GEN-025", needs=("GEN-002",), decisive=True)
    def test_each_scripted_answer_leads_to_a_turn(self) -> None:
        """Many errors appear only in later turns. Set `answers` to texts that each lead to another request.

        Skipped if the generator makes a single request.
        """
        turns = len(self._several_turns() if not self.answers else self._turns())
        message = f"`answers` has {len(self.answers)} texts, but the generator made {turns} turns"
        require(turns >= len(self.answers), f"{message}; set answers that make it continue")

    @check("GEN-026", needs=("GEN-003", "GEN-004"))
    def test_every_answer_follows_its_own_prompt(self) -> None:
        """Add tool output and all other text that the engine received to `sample.tokens`, in order.

        If a later turn starts from another context, return that turn as a separate sample.
        """
        engine = self._engine()
        for sample in self._run(engine, self._pending()):
            require_in_context(sample, engine.calls)

    @check("GEN-027", needs=("GEN-003", "GEN-005"))
    def test_all_turns_share_the_token_budget(self) -> None:
        """In later turns, request `max_new_tokens` minus the length of the response. At the limit, set TRUNCATED."""
        turns = self._several_turns()
        for turn in turns[1:TURNS]:
            used = len(turn.prompt) - len(turns[0].prompt)
            for budget in (max(1, used) + rest for rest in TURN_BUDGETS):
                engine = self._engine(
                    finish=FinishReason.LENGTH, from_turn=turn.request, sampling=SamplingParams(budget)
                )
                returned = self._run(engine, self._pending())
                if any(each.request == turn.request for each in engine.calls):
                    break
            for sample in returned:
                count = sample.effective_response_length
                over = f"{count} trainable tokens in {engine.requests} turns exceed the budget of {budget}"
                require(count <= budget, over)
            cut = any(each.status is Status.TRUNCATED for each in returned)
            message = f"the status is {returned[-1].status} after the budget ended turn {turn.request + 1}"
            require(cut, f"{message}; expected TRUNCATED")

    @check("GEN-028", needs=("GEN-011",))
    def test_cancelling_a_sample_cancels_its_request(self) -> None:
        """A cancelled sample must not keep the engine busy. `await ctx.generate` directly, without `asyncio.shield`."""
        for turn in self._each_turn():
            engine = self._engine(delay_s=2 * CANCEL_S, from_turn=turn)
            left = asyncio.run(self._cancelled(engine))
            require(not left, f"request {turn + 1} still ran {CANCEL_S:g} s after its sample was cancelled")

    @check("GEN-029", needs=("GEN-002",))
    def test_a_call_changes_no_global_state(self) -> None:
        """Driver and plugins share a process. Do not seed `random`, replace functions or change global settings."""
        self._require_nothing_changed(self._call_factory(self._engine))

    async def _failed(self, engine: ScriptedEngine) -> tuple[list[Sample], int]:
        returned: list[Sample] = []
        async with running_generator(self._build()) as generator:
            with count_call_tasks() as running:
                with contextlib.suppress(*FAILED):
                    returned = await generate(generator, self._pending(), engine.context(None))
                return returned, running()

    async def _aborted(self, engine: ScriptedEngine) -> int:
        async with running_generator(self._build()) as generator:
            with count_call_tasks() as running:
                async with asyncio.timeout(ABORT_S):
                    await generator(self._pending(), engine.context(None))
                await asyncio.sleep(0)
                return running()

    async def _cancelled(self, engine: ScriptedEngine) -> int:
        async with running_generator(self._build()) as generator:
            task = asyncio.ensure_future(generator(self._pending(), engine.context(None)))
            while not (task.done() or (engine.running and len(engine.turns) > engine.from_turn)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_S)
            await asyncio.sleep(0)
            return engine.running

    def _build(self) -> Generator:
        return self.spec.factory(self.make_settings(), self.setup())

    def _pending(self, number: int = 0) -> Sample:
        return make_pending(prompt=self.prompts[number])

    def _engine(self, **options: object) -> ScriptedEngine:
        budget = AMPLE + 4 * sum(map(len, self.answers))
        arguments = {"answers": self.answers, "sampling": SamplingParams(budget), "distinct": True, **options}
        return ScriptedEngine(**arguments)  # type: ignore[arg-type]  # the check's arguments

    def _run(self, engine: ScriptedEngine, sample: Sample) -> list[Sample]:
        return asyncio.run(call_once(self._build(), sample, engine.context(None)))

    def _call_factory(self, engine: Callable[[], ScriptedEngine]) -> CallFactory:
        generator = self._build()
        if isinstance(generator, StartsAndStops):
            return lambda: call_once(self._build(), self._pending(), engine().context(None))
        return lambda: call(generator, self._pending(), engine().context(None))

    @contextlib.asynccontextmanager
    async def _open_generator(self) -> AsyncIterator[CallFactory]:
        async with running_generator(self._build()) as generator:
            with contextlib.suppress(*RAISED):
                await call(generator, self._pending(), self._engine().context(None))
            yield lambda: call(generator, self._pending(), self._engine().context(None))

    def _turns(self) -> list[Call]:
        engine = self._engine()
        self._run(engine, self._pending())
        return turns_of(engine.calls)

    def _each_turn(self) -> list[int]:
        return [turn.request for turn in self._turns()[:TURNS]]

    def _several_turns(self) -> list[Call]:
        """The turns of one sample.

        Raises:
            SkipTest: the generator makes only one.
        """
        turns = self._turns()
        if len(turns) < 2:
            raise SkipTest("it made one turn; if an answer can lead to more, set `answers` in its GeneratorContract")
        return turns
