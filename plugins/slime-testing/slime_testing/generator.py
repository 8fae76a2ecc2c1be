"""GeneratorContract: the requirements on every generator, GEN-001 to GEN-029.

    class TestSearch(GeneratorContract):
        choice = "slime-agent-search/search"
        answers = ("search: Paris", "search: Seine", "The river is the Seine.")

The generator talks to a scripted engine; its tools and environments are real. `answers` make it take several turns,
where most mistakes are: a first turn does not show them.
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
from slime_testing.calling import RAISED, Act, call, left_behind, refuses_cancellation, tasks_of_calls
from slime_testing.contract import check, require
from slime_testing.engine import MAX_NEW_TOKENS, Call, ScriptedEngine
from slime_testing.role import RoleContract, require_called_as
from slime_testing.samples import make_pending

TIMEOUT_S = 10.0
"""Seconds that a generator may take for one scripted sample."""
AMPLE = 1024
"""Token budget with room for a generator's turns, in addition to the scripted answers."""
TURNS = 3
"""Number of turns at which the kit injects events: the first, and two more."""


def turns_of(calls: Sequence[Call]) -> list[Call]:
    """The first request, and each later one with a new prompt after an answer."""
    known: set[tuple[int, ...]] = set()
    turns: list[Call] = []
    for each in sorted(calls, key=lambda each: each.request):
        if not turns or (each.answered and each.prompt not in known):
            turns.append(each)
        known.add(each.prompt)
    return turns


@contextlib.asynccontextmanager
async def started(generator: Generator) -> AsyncIterator[Generator]:
    """The generator, started if it has `start`, and closed afterwards."""
    if not isinstance(generator, StartsAndStops):
        yield generator
        return
    try:
        await generator.start()
        yield generator
    finally:
        await generator.close()


async def lived(generator: Generator, sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """One call, with start and close."""
    async with started(generator):
        return await limited(generator, sample, ctx)


async def limited(generator: Generator, sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """One call, within `TIMEOUT_S`."""
    async with asyncio.timeout(TIMEOUT_S):
        return await generator(sample, ctx)


def require_as_answered(sample: Sample, calls: Sequence[Call]) -> None:
    """Fail the running check unless trainable tokens match the engine's answers: ids, log-probs, versions, context."""
    told = set(sample.weight_versions)
    response = list(sample.tokens)[sample.prompt_length :]
    marked = zip(sample.loss_mask or (), response, sample.rollout_log_probs or (), strict=True)
    begin, trained = 0, False
    for bit, items in itertools.groupby(marked, key=lambda item: item[0]):
        stretch = list(items)
        if bit:
            trained = True
            tokens, log_probs = tuple(each[1] for each in stretch), tuple(each[2] for each in stretch)
            made = list(_saying(tokens, calls))
            require(made, f"trainable tokens {tokens} at {begin} of the response are not what the engine answered")
            said = [each for each in made if _joined(each, "log_probs") == log_probs]
            given = _joined(made[0], "log_probs")
            require(said, f"log-probs {_few(log_probs)} of trainable tokens; the engine said {_few(given)}")
            versions = [{str(version) for each in span for version in each.versions} for span in said]
            named = any(each <= told for each in versions)
            require(named, f"weight versions are {sorted(told)}; the engine said {', '.join(sorted(versions[0]))}")
        begin += len(stretch)
    require(trained, "no token of the response is trainable")
    strange = told - {str(version) for each in calls for version in each.versions}
    require(not strange, f"weight versions are {sorted(told)}; the engine never said {', '.join(sorted(strange))}")


def require_in_context(sample: Sample, calls: Sequence[Call]) -> None:
    """Fail the running check unless each trainable answer follows the prompt that the engine had for it."""
    tokens, mask = tuple(sample.tokens), sample.loss_mask or ()
    place = sample.prompt_length
    for bit, items in itertools.groupby(mask):
        count = len(list(items))
        if bit:
            spans = _saying(tokens[place : place + count], calls)
            fits = any(_follows(span, tokens, place) for span in spans)
            told = f"the answer at {place - sample.prompt_length} of the response was made after another prompt"
            require(fits, f"{told}: the trainer would compute its log-probs in a context that the engine did not see")
        place += count


def _follows(span: Sequence[Call], tokens: tuple[int, ...], place: int) -> bool:
    for each in span:
        if each.prompt != tokens[:place]:
            return False
        place += len(each.output)
    return True


def _saying(tokens: tuple[int, ...], calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
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
"""Seconds that a call may take after an abort."""
CANCEL_S = 1.0
"""Seconds that a request may run after its sample was cancelled."""
ROOMS = (8, 64, 512)
"""Token budgets tried for a later turn: a generator may start no turn with a small one."""
FAILED = (ConnectionError, ExceptionGroup)
"""Errors that a generator may raise if its engine fails, in a task group or not."""
DRAWN = ("prompt", "label", "index", "group_index", "source")
"""Fields that only the data source may set."""


class GeneratorContract(RoleContract[GeneratorSpec]):
    """Inherit and name the generator; set `answers`, so that the generator takes all its turns."""

    kind = GeneratorSpec
    prompts: ClassVar[tuple[str, str]] = ("What is 2 + 2?", "What is 3 + 4?")
    """Two prompts that the generator can work on."""
    answers: ClassVar[Sequence[str]] = ()
    """The engine's answers, turn by turn, so that it continues: `("8+6=", "14-4=", "so 10")` for a calculator.
    Without them the engine returns a few letters, which ends most generators after one turn."""

    @check("GEN-001")
    def test_the_factory_builds_a_generator(self) -> None:
        """The core calls `await generator(sample, ctx)`: the factory returns an object with `async def __call__`."""
        built: object = self._build()
        require_called_as(built, "sample", "ctx")
        require(is_async(built), f"{type(built).__name__} is called by a plain `def`; write `async def`")

    @check("GEN-002", needs=("GEN-001", "GEN-015"))
    def test_it_returns_finished_and_consistent_samples(self) -> None:
        """Use `sample.append_response_tokens` and set `status`: then tokens, mask and log-probs agree."""
        asked = self._pending()
        check_generated(self._run(self._engine(), asked), plugin=self.registered.plugin, sample=asked)

    @check("GEN-003", needs=("GEN-002",))
    def test_the_response_contains_the_sampled_tokens(self) -> None:
        """Train on the engine's ids, log-probs and weight version unchanged: never encode the text again."""
        engine = self._engine()
        for sample in self._run(engine, self._pending()):
            require_as_answered(sample, engine.calls)

    @check("GEN-004", needs=("GEN-002",))
    def test_tokens_start_with_the_prompt(self) -> None:
        """`sample.tokens` starts with the prompt's ids: without them the trainer has another context."""
        engine = self._engine()
        for sample in self._run(engine, self._pending()):
            tokens = tuple(sample.tokens)
            started = any(tokens[: len(call.prompt)] == call.prompt for call in engine.calls)
            require(started, "tokens do not start with the prompt of any request to the engine")

    @check("GEN-005", needs=("GEN-002",))
    def test_the_response_stays_within_the_token_budget(self) -> None:
        """`ctx.sampling.max_new_tokens` limits the whole response: give each later turn only the rest."""
        engine = self._engine(finish=FinishReason.LENGTH, sampling=SamplingParams(MAX_NEW_TOKENS))
        for sample in self._run(engine, self._pending()):
            count = sample.effective_response_length
            require(count <= MAX_NEW_TOKENS, f"{count} trainable tokens with a budget of {MAX_NEW_TOKENS}")
            require(sample.status is Status.TRUNCATED, f"the budget ended the response, its status is {sample.status}")

    @check("GEN-006", needs=("GEN-002", "GEN-012"))
    def test_an_aborted_sample_has_the_status_aborted(self) -> None:
        """Finish ABORT means that the run needs the engine: stop, and return the tokens so far with Status.ABORTED."""
        for turn in self._each_turn():
            returned = self._run(self._engine(finish=FinishReason.ABORT, from_turn=turn), self._pending())
            aborted = [each.status is Status.ABORTED for each in returned]
            told = f"the engine aborted request {turn + 1}, the status is {returned[-1].status}"
            require(any(aborted) if turn else all(aborted), told)

    @check("GEN-007", needs=("GEN-002",))
    def test_concurrent_samples_do_not_mix(self) -> None:
        """A rollout runs hundreds of samples on one generator: keep a sample's data in local variables."""
        engine = self._engine()
        asked = [self._pending(number % 2) for number in range(16)]

        async def together() -> list[list[Sample]]:
            async with started(self._build()) as generator:
                return await asyncio.gather(*(limited(generator, sample, engine.context(None)) for sample in asked))

        expected = [self._run(self._engine(), self._pending(number)) for number in range(2)]
        for number, returned in enumerate(asyncio.run(together())):
            found, alone = (
                [(list(each.tokens), each.status) for each in one] for one in (returned, expected[number % 2])
            )
            require(found == alone, "a sample generated among others differs from the same one generated alone")

    @check("GEN-008", needs=("GEN-002",))
    def test_no_task_is_left_when_the_engine_fails(self) -> None:
        """Raise, or return FAILED samples; in both cases end all tasks that were started (`asyncio.TaskGroup`).

        Client connections to a server from the generator's `start` do not count.
        """
        for turn in self._each_turn():
            engine = self._engine(error=ConnectionError("the engine is gone"), from_turn=turn)
            returned, pending = asyncio.run(self._failed(engine))
            said = [each.status.value for each in returned if each.status is not Status.FAILED]
            told = f"request {turn + 1} failed, the samples are {', '.join(sorted(set(said)))}; expected failed"
            require(len(said) < len(returned) if turn and returned else not said, told)
            require(pending == 0, f"{pending} tasks are still running after request {turn + 1} failed")

    @check("GEN-009", needs=("GEN-002",))
    def test_the_prompt_and_label_are_not_changed(self) -> None:
        """Rewards and the sample store read `prompt` and `label` as the row has them: edit a copy of the text."""
        asked = self._pending()
        for sample in self._run(self._engine(), copy.deepcopy(asked)):
            changed = [name for name in DRAWN if getattr(sample, name) != getattr(asked, name)]
            require(not changed, f"it changed {', '.join(changed)} of the sample")

    @check("GEN-010", needs=("GEN-002",))
    def test_all_returned_samples_have_the_same_rollout_id(self) -> None:
        """All samples of one call share the `rollout_id` of their input: copy it, do not create one."""
        asked = self._pending()
        for sample in self._run(self._engine(), copy.deepcopy(asked)):
            same = sample.rollout_id == asked.rollout_id
            require(same, f"rollout_id was {asked.rollout_id}, a returned sample says {sample.rollout_id}")

    @check("GEN-011", needs=("GEN-002",))
    def test_a_call_can_be_cancelled(self) -> None:
        """Ctrl-C and timeouts cancel the call: re-raise `asyncio.CancelledError`, or do not catch it at all."""
        for turn in self._each_turn():
            act = self._act(lambda: self._engine(delay_s=0.1, from_turn=turn))  # noqa: B023  # called in this iteration
            require(not refuses_cancellation(act), "one second after task.cancel() the call was not cancelled")

    @check("GEN-012", needs=("GEN-002",))
    def test_an_abort_ends_the_call(self) -> None:
        """After finish ABORT the run needs the engine for other work: return at once, without another request."""
        for turn in self._each_turn():
            engine = self._engine(finish=FinishReason.ABORT, from_turn=turn)
            try:
                pending = asyncio.run(self._aborted(engine))
            except TimeoutError:
                told = f"{ABORT_S:g} s after the abort it had asked {engine.requests} times in all"
                raise AssertionError(told) from None
            require(pending == 0, f"{pending} tasks are still running after the engine aborted")

    @check("GEN-013", needs=("GEN-003",))
    def test_masked_tokens_have_log_prob_zero(self) -> None:
        """Tokens of tools and environments have mask 0 and log-prob 0.0: `append_response_tokens(trainable=False)`."""
        for sample in self._run(self._engine(), self._pending()):
            pairs = zip(sample.loss_mask or (), sample.rollout_log_probs or (), strict=True)
            wrong = [value for bit, value in pairs if not bit and value != 0.0]
            require(not wrong, f"tokens that are not trained on have log-probs {wrong[:3]}; expected 0.0")

    @check("GEN-014", needs=("GEN-002", "GEN-008"))
    def test_a_retried_request_does_not_change_the_sample(self) -> None:
        """A retry leaves the samples as if no request had failed: append tokens only after the answer has arrived."""
        expected = self._run(self._engine(), self._pending())
        for turn in self._each_turn():
            engine = self._engine(error=ConnectionError("try again"), errors=1, from_turn=turn)
            try:
                found = self._run(engine, self._pending())
            except FAILED:
                raise SkipTest("it does not ask again after a failed request") from None
            if any(sample.status is Status.FAILED for sample in found):
                raise SkipTest("it does not ask again after a failed request")
            require(len(found) == len(expected), f"{len(found)} samples after a retry, {len(expected)} without one")
            for one, other in zip(found, expected, strict=True):
                pairs = ((one.tokens, other.tokens), (one.loss_mask, other.loss_mask))
                same = all(list(first or ()) == list(second or ()) for first, second in pairs)
                require(same, "after a retry the sample's tokens are others than without one")

    @check("GEN-015", needs=("GEN-001",))
    def test_it_does_not_block_the_event_loop(self) -> None:
        """Other samples wait while a generator computes: `await` tools; use `asyncio.to_thread` for blocking calls."""
        if stall := blocks(self._act(self._engine), BLOCK_S, self._opened):
            raise AssertionError(stall)

    @check("GEN-016", needs=("GEN-002", "GEN-020"))
    def test_calls_leave_nothing_running(self) -> None:
        """A run makes thousands of calls: end every task, thread, process, file and socket that a call starts."""
        left = left_behind(lambda: self._act(self._engine))
        require(not left, f"{left} are still there")

    @check("GEN-017", needs=("GEN-002",))
    def test_it_uses_the_sampling_settings_of_the_run(self) -> None:
        """The trainer computes log-probs at the run's temperature: change only the budget in `ctx.sampling`."""
        budget = self._engine().sampling.max_new_tokens
        sampling = SamplingParams(budget, temperature=0.7, top_p=0.9, top_k=40)
        engine = self._engine(sampling=sampling)
        self._run(engine, self._pending())
        for request in engine.calls:
            used = dataclasses.replace(
                request.sampling, max_new_tokens=sampling.max_new_tokens, stop_token_ids=frozenset()
            )
            require(used == sampling, f"the run samples with {sampling}; the engine was asked with {request.sampling}")

    @check("GEN-018", needs=("GEN-002",))
    def test_it_works_in_evaluation(self) -> None:
        """With `ctx.evaluation` the same generator must finish its samples as in training."""
        asked, ctx = self._pending(), dataclasses.replace(self._engine().context(None), evaluation=True)
        returned = asyncio.run(lived(self._build(), asked, ctx))
        check_generated(returned, plugin=self.registered.plugin, sample=asked)

    @check("GEN-019", needs=("GEN-002",))
    def test_concurrent_requests_have_names(self) -> None:
        """Seeds follow from the names of requests, not from their random order: pass `turn=` to simultaneous ones."""
        engine = self._engine()
        self._run(engine, self._pending())
        at_once = engine.unnamed_at_once
        require(not at_once, f"a call without a name was made while {at_once} others were under way")
        named = [turn for turn in engine.turns if turn is not None]
        require(len(set(named)) == len(named), f"two calls have one name: {sorted(named)}")

    @check("GEN-020", needs=("GEN-002",))
    def test_close_ends_everything(self) -> None:
        """`close` ends all that `start` began: tasks, threads, processes, files and sockets. Another run may follow."""
        if not isinstance(self._build(), StartsAndStops):
            raise SkipTest("it has no start and close")

        async def whole() -> int:
            async with asyncio.timeout(TIMEOUT_S):
                await lived(self._build(), self._pending(), self._engine().context(None))
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        pending = asyncio.run(whole())
        require(pending == 0, f"{pending} tasks are still running after it was closed")
        left = left_behind(lambda: whole)
        require(not left, f"{left}, each with its start and close, are still there")

    @check("GEN-021", needs=("GEN-008",))
    def test_a_failed_sample_has_a_reason(self) -> None:
        """Set `failure_reason` of FAILED samples: they are counted by it, and users see nothing else."""
        try:
            returned = self._run(self._engine(error=ConnectionError("the engine is gone")), self._pending())
        except FAILED:
            raise SkipTest("it raises, and the core takes the reason from that") from None
        silent = [each.index for each in returned if each.status is Status.FAILED and not each.failure_reason]
        require(not silent, "a FAILED sample has no failure_reason")

    @check("GEN-022", needs=("GEN-002",))
    def test_it_respects_the_turn_limit(self) -> None:
        """`ctx.max_turns` limits the requests of a sample: stop there, and return the tokens so far."""
        for limit in range(1, max(2, len(self._turns()))):
            engine = self._engine(max_turns=limit)
            try:
                self._run(engine, self._pending())
            except (LimitError, ExceptionGroup) as error:
                told = f"it asked {engine.requests} times with ctx.max_turns = {limit}: {error}"
                raise AssertionError(told) from None

    @check("GEN-023", needs=("GEN-003",))
    def test_weight_versions_are_recorded_per_token(self) -> None:
        """An answer may have several weight versions: `append_response_tokens(output=...)` records each token's."""
        engine = self._engine(older_version=6)
        for sample in self._run(engine, self._pending()):
            versions = set(sample.weight_versions)
            require("6" in versions, f"weight versions are {sorted(versions)}; the engine said 6 of its first token")
            trained = set(sample.loss_mask or ())
            for begin, end, version in sample.version_spans if 1 in trained else ():
                count = sum((sample.loss_mask or ())[begin:end])
                require(
                    version != 6 or count <= 1, f"{count} tokens are said to be of version 6; one is of each answer"
                )

    @check("GEN-024", needs=("GEN-002",))
    def test_a_call_has_at_most_one_main_sample(self) -> None:
        """Rewards apply to the sample with `metadata["main"]`: if a call returns several samples, mark one."""
        returned = self._run(self._engine(), self._pending())
        marked = sum(each.metadata.get("main") is True for each in returned)
        require(marked <= 1, f"{marked} of {len(returned)} samples are marked as the main one")

    @check("GEN-025", needs=("GEN-002",), decisive=True)
    def test_each_scripted_answer_leads_to_a_turn(self) -> None:
        """Faults after a tool's answer appear only in later turns: set `answers`; each must lead to a request.

        Skipped for a generator that makes one request with any answers.
        """
        turns = len(self._several_turns() if not self.answers else self._turns())
        told = f"`answers` holds {len(self.answers)} texts, and it made {turns} turns; what should make it ask again?"
        require(turns >= len(self.answers), told)

    @check("GEN-026", needs=("GEN-003", "GEN-004"))
    def test_every_answer_follows_its_own_prompt(self) -> None:
        """Put tool output and all other text that the engine saw into `sample.tokens`, in order.

        If a later turn shows the engine another context, return that turn as a separate sample.
        """
        engine = self._engine()
        for sample in self._run(engine, self._pending()):
            require_in_context(sample, engine.calls)

    @check("GEN-027", needs=("GEN-003", "GEN-005"))
    def test_all_turns_share_the_token_budget(self) -> None:
        """Ask each later turn for the rest, `max_new_tokens` less the response so far; finish with TRUNCATED."""
        turns = self._several_turns()
        for turn in turns[1:TURNS]:
            used = len(turn.prompt) - len(turns[0].prompt)
            for budget in (max(1, used) + room for room in ROOMS):
                engine = self._engine(
                    finish=FinishReason.LENGTH, from_turn=turn.request, sampling=SamplingParams(budget)
                )
                returned = self._run(engine, self._pending())
                if any(each.request == turn.request for each in engine.calls):
                    break
            for sample in returned:
                count = sample.effective_response_length
                told = f"{count} trainable tokens in {engine.requests} turns with a budget of {budget}"
                require(count <= budget, told)
            cut = any(each.status is Status.TRUNCATED for each in returned)
            require(cut, f"the budget ended turn {turn.request + 1}, the status is {returned[-1].status}")

    @check("GEN-028", needs=("GEN-011",))
    def test_cancelling_a_sample_cancels_its_request(self) -> None:
        """A cancelled sample's request must not keep the engine busy: `await ctx.generate` itself, unshielded."""
        for turn in self._each_turn():
            engine = self._engine(delay_s=2 * CANCEL_S, from_turn=turn)
            left = asyncio.run(self._cancelled(engine))
            require(not left, f"the sample was cancelled, and request {turn + 1} goes on")

    @check("GEN-029", needs=("GEN-002",))
    def test_a_call_changes_no_global_state(self) -> None:
        """Driver and plugins share the process: do not seed `random`, replace functions or change global settings."""
        self._require_nothing_changed(self._act(self._engine))

    async def _failed(self, engine: ScriptedEngine) -> tuple[list[Sample], int]:
        returned: list[Sample] = []
        async with started(self._build()) as generator:
            with tasks_of_calls() as running:
                with contextlib.suppress(*FAILED):
                    returned = await limited(generator, self._pending(), engine.context(None))
                return returned, running()

    async def _aborted(self, engine: ScriptedEngine) -> int:
        async with started(self._build()) as generator:
            with tasks_of_calls() as running:
                async with asyncio.timeout(ABORT_S):
                    await generator(self._pending(), engine.context(None))
                await asyncio.sleep(0)
                return running()

    async def _cancelled(self, engine: ScriptedEngine) -> int:
        async with started(self._build()) as generator:
            task = asyncio.ensure_future(generator(self._pending(), engine.context(None)))
            while not (task.done() or (engine.running and len(engine.turns) > engine.from_turn)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_S)
            await asyncio.sleep(0)
            return engine.running

    def _build(self) -> Generator:
        return self.spec.factory(self.validated(), self.setup())

    def _pending(self, number: int = 0) -> Sample:
        return make_pending(prompt=self.prompts[number])

    def _engine(self, **options: object) -> ScriptedEngine:
        budget = AMPLE + 4 * sum(map(len, self.answers))
        given = {"answers": self.answers, "sampling": SamplingParams(budget), "distinct": True, **options}
        return ScriptedEngine(**given)  # type: ignore[arg-type]  # the check's arguments

    def _run(self, engine: ScriptedEngine, sample: Sample) -> list[Sample]:
        return asyncio.run(lived(self._build(), sample, engine.context(None)))

    def _act(self, engine: Callable[[], ScriptedEngine]) -> Act:
        generator = self._build()
        if isinstance(generator, StartsAndStops):
            return lambda: lived(self._build(), self._pending(), engine().context(None))
        return lambda: call(generator, self._pending(), engine().context(None))

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Act]:
        async with started(self._build()) as generator:
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
            raise SkipTest("one turn only: if an answer can make it ask again, set `answers` on its GeneratorContract")
        return turns
