"""GeneratorContract: what every generator must keep, GEN-001 to GEN-018.

    class TestSearch(GeneratorContract):
        choice = "slime-agent-search/search"

The generator talks to a scripted engine; what it does besides (tools, environments) is its own.
"""

import asyncio
import contextlib
import copy
import dataclasses
import itertools
from collections.abc import Callable
from typing import ClassVar
from unittest import SkipTest

from slime_core.catalog import check_generated
from slime_core.roles import FinishReason, GenerateContext, Generator, GeneratorSpec, is_async
from slime_core.sample import Sample, Status
from slime_core.testing.calling import Act, blocks, call, left_behind, refuses_cancellation
from slime_core.testing.contract import check, require
from slime_core.testing.engine import MAX_NEW_TOKENS, ScriptedEngine
from slime_core.testing.role import RoleContract, require_called_as
from slime_core.testing.samples import make_pending

TIMEOUT_S = 10.0
"""How long a generator may take for one scripted sample."""
ABORT_S = 1.0
"""How long it may take to return after an abort."""
DRAWN = ("prompt", "label", "index", "group_index", "source")
"""Fields that belong to the data source."""


class GeneratorContract(RoleContract[GeneratorSpec]):
    """Inherit and name the generator."""

    kind = GeneratorSpec
    choice: ClassVar[str | GeneratorSpec]
    """The generator: a name for the catalog, or a spec."""
    prompts: ClassVar[tuple[str, str]] = ("What is 2 + 2?", "What is 3 + 4?")
    """Two prompts that it can work on."""

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
        check_generated(self._run(ScriptedEngine(), asked), plugin=self.registered.plugin, sample=asked)

    @check("GEN-003", needs=("GEN-002",))
    def test_the_response_is_what_the_engine_sampled(self) -> None:
        """Train on the engine's ids, log-probs and weight version as they came: never encode the text again."""
        engine = ScriptedEngine()
        for sample in self._run(engine, self._pending()):
            stretches = _trainable(sample)
            require(stretches, "no token of the response is trainable")
            for tokens, log_probs in stretches:
                require(_is_answered(tokens, engine), f"trainable tokens {tokens} are not what the engine answered")
                require(set(log_probs) == {-0.25}, f"log-probs {log_probs}; the engine said -0.25 of each token")
            versions = set(sample.weight_versions)
            require(versions == {"7"}, f"weight versions are {sorted(versions)}; the engine said 7")

    @check("GEN-004", needs=("GEN-002",))
    def test_the_prompt_comes_before_the_response(self) -> None:
        """`sample.tokens` starts with the prompt's ids: without them the trainer sees another context."""
        engine = ScriptedEngine()
        for sample in self._run(engine, self._pending()):
            tokens = tuple(sample.tokens)
            started = any(tokens[: len(call.prompt)] == call.prompt for call in engine.calls)
            require(started, "tokens do not start with the prompt of any request to the engine")

    @check("GEN-005", needs=("GEN-002",))
    def test_the_token_budget_is_kept(self) -> None:
        """`ctx.sampling.max_new_tokens` is for the whole response: give each further turn only what is left."""
        engine = ScriptedEngine(finish=FinishReason.LENGTH)
        for sample in self._run(engine, self._pending()):
            count = sample.effective_response_length
            require(count <= MAX_NEW_TOKENS, f"{count} trainable tokens with a budget of {MAX_NEW_TOKENS}")
            require(sample.status is Status.TRUNCATED, f"the budget ended the response, its status is {sample.status}")

    @check("GEN-006", needs=("GEN-002", "GEN-012"))
    def test_an_abort_is_reported(self) -> None:
        """Finish ABORT means that the run needs the engine: stop, return what there is, with Status.ABORTED."""
        engine = ScriptedEngine(finish=FinishReason.ABORT)
        for sample in self._run(engine, self._pending()):
            require(sample.status is Status.ABORTED, f"the engine aborted, the status is {sample.status}")

    @check("GEN-007", needs=("GEN-002",))
    def test_samples_generated_at_once_do_not_mix(self) -> None:
        """A rollout runs hundreds of samples on one generator: keep what belongs to a sample in local variables."""
        generator, engine = self._build(), ScriptedEngine()
        asked = [self._pending(number % 2) for number in range(16)]

        async def together() -> list[list[Sample]]:
            return await asyncio.gather(*(_limited(generator, sample, engine.context()) for sample in asked))

        expected = [self._run(ScriptedEngine(), self._pending(number)) for number in range(2)]
        for number, returned in enumerate(asyncio.run(together())):
            found, alone = (
                [(list(each.tokens), each.status) for each in one] for one in (returned, expected[number % 2])
            )
            require(found == alone, "a sample generated among others differs from the same one generated alone")

    @check("GEN-008", needs=("GEN-002",))
    def test_nothing_is_left_behind_when_the_engine_fails(self) -> None:
        """Raise, or return FAILED samples; either way end the tasks that were started (`asyncio.TaskGroup`)."""
        generator, engine = self._build(), ScriptedEngine(error=ConnectionError("the engine is gone"))

        async def failed() -> tuple[list[Sample], int]:
            returned: list[Sample] = []
            with contextlib.suppress(ConnectionError):
                returned = await _limited(generator, self._pending(), engine.context())
            return returned, len(asyncio.all_tasks()) - 1

        returned, pending = asyncio.run(failed())
        statuses = sorted({sample.status.value for sample in returned} - {Status.FAILED.value})
        require(not statuses, f"the engine failed, the samples are {', '.join(statuses)}; expected failed")
        require(pending == 0, f"{pending} tasks are still running after the engine failed")

    @check("GEN-009", needs=("GEN-002",))
    def test_the_prompt_stays_as_it_was_drawn(self) -> None:
        """Rewards and the sample store read `prompt` and `label` as the row gave them: edit a copy of the text."""
        asked = self._pending()
        for sample in self._run(ScriptedEngine(), copy.deepcopy(asked)):
            changed = [name for name in DRAWN if getattr(sample, name) != getattr(asked, name)]
            require(not changed, f"it changed {', '.join(changed)} of the sample")

    @check("GEN-010", needs=("GEN-002",))
    def test_all_that_it_returns_is_of_one_rollout(self) -> None:
        """Samples that one call fans out into share the `rollout_id` that it was given: copy it, make none up."""
        asked = self._pending()
        for sample in self._run(ScriptedEngine(), copy.deepcopy(asked)):
            same = sample.rollout_id == asked.rollout_id
            require(same, f"rollout_id was {asked.rollout_id}, a returned sample says {sample.rollout_id}")

    @check("GEN-011", needs=("GEN-002",))
    def test_it_can_be_cancelled(self) -> None:
        """Ctrl-C and time-outs cancel the call: re-raise `asyncio.CancelledError`, or do not catch it at all."""
        act = self._act(lambda: ScriptedEngine(delay_s=0.05))
        require(not refuses_cancellation(act), "one second after task.cancel() the call was not cancelled")

    @check("GEN-012", needs=("GEN-002",))
    def test_an_abort_ends_it(self) -> None:
        """After finish ABORT the engine is needed elsewhere: return at once, and do not ask again in a loop."""
        engine, generator = ScriptedEngine(finish=FinishReason.ABORT), self._build()

        async def aborted() -> int:
            async with asyncio.timeout(ABORT_S):
                await generator(self._pending(), engine.context())
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        try:
            pending = asyncio.run(aborted())
        except TimeoutError:
            raise AssertionError(f"{ABORT_S:g} s after the abort it had asked {engine.requests} times more") from None
        require(pending == 0, f"{pending} tasks are still running after the engine aborted")

    @check("GEN-013", needs=("GEN-002",))
    def test_what_is_not_trained_on_has_no_log_prob(self) -> None:
        """Tokens of tools and environments have mask 0 and log-prob 0.0: `append_response_tokens(trainable=False)`."""
        for sample in self._run(ScriptedEngine(), self._pending()):
            pairs = zip(sample.loss_mask or (), sample.rollout_log_probs or (), strict=True)
            wrong = [value for bit, value in pairs if not bit and value != 0.0]
            require(not wrong, f"tokens that are not trained on have log-probs {wrong[:3]}; expected 0.0")

    @check("GEN-014", needs=("GEN-002", "GEN-008"))
    def test_a_retry_leaves_no_trace(self) -> None:
        """After a failed request the samples are as if it had not failed: append tokens only once they are there."""
        engine = ScriptedEngine(error=ConnectionError("try again"), errors=1)
        try:
            found = self._run(engine, self._pending())
        except ConnectionError:
            raise SkipTest("it does not ask again after a failed request") from None
        if any(sample.status is Status.FAILED for sample in found):
            raise SkipTest("it does not ask again after a failed request")
        expected = self._run(ScriptedEngine(), self._pending())
        require(len(found) == len(expected), f"{len(found)} samples after a retry, {len(expected)} without one")
        for one, other in zip(found, expected, strict=True):
            same = list(one.tokens) == list(other.tokens) and list(one.loss_mask or ()) == list(other.loss_mask or ())
            require(same, "after a retry the sample's tokens are others than without one")

    @check("GEN-015", needs=("GEN-001",))
    def test_the_event_loop_goes_on(self) -> None:
        """Every other sample waits while a generator computes: `await` tools, or `asyncio.to_thread` what blocks."""
        if stall := blocks(self._act(ScriptedEngine)):
            raise AssertionError(stall)

    @check("GEN-016", needs=("GEN-002",))
    def test_calls_leave_nothing_running(self) -> None:
        """Thousands of calls make a run: end every task, thread, process, file and socket that a call starts."""
        generator = self._build()

        async def finished() -> int:
            await _limited(generator, self._pending(), ScriptedEngine().context())
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        pending = asyncio.run(finished())
        require(pending == 0, f"{pending} tasks are still running after it returned")
        left = left_behind(self._act(ScriptedEngine))
        require(not left, f"{left} are still there")

    @check("GEN-017", needs=("GEN-002",))
    def test_it_samples_as_the_run_says(self) -> None:
        """The trainer's log-probs are of the run's temperature: change nothing of `ctx.sampling` but the budget."""
        engine = ScriptedEngine()
        asked = engine.context()
        sampling = dataclasses.replace(asked.sampling, temperature=0.7, top_p=0.9, top_k=40)
        asyncio.run(_limited(self._build(), self._pending(), dataclasses.replace(asked, sampling=sampling)))
        for request in engine.calls:
            used = dataclasses.replace(
                request.sampling, max_new_tokens=sampling.max_new_tokens, stop_token_ids=frozenset()
            )
            require(used == sampling, f"the run samples with {sampling}; the engine was asked with {request.sampling}")

    @check("GEN-018", needs=("GEN-002",))
    def test_it_evaluates_too(self) -> None:
        """With `ctx.evaluation` the same generator is asked, and must finish its samples as in training."""
        asked, ctx = self._pending(), dataclasses.replace(ScriptedEngine().context(), evaluation=True)
        returned = asyncio.run(_limited(self._build(), asked, ctx))
        check_generated(returned, plugin=self.registered.plugin, sample=asked)

    def _act(self, engine: Callable[[], ScriptedEngine]) -> Act:
        """Fresh calls of one generator."""
        generator = self._build()
        return lambda: call(generator, self._pending(), engine().context())

    def _build(self) -> Generator:
        return self.spec.factory(self.validated(), self.setup())

    def _pending(self, number: int = 0) -> Sample:
        return make_pending(prompt=self.prompts[number])

    def _run(self, engine: ScriptedEngine, sample: Sample) -> list[Sample]:
        return asyncio.run(_limited(self._build(), sample, engine.context()))


async def _limited(generator: Generator, sample: Sample, ctx: GenerateContext) -> list[Sample]:
    async with asyncio.timeout(TIMEOUT_S):
        return await generator(sample, ctx)


def _trainable(sample: Sample) -> list[tuple[tuple[int, ...], list[float]]]:
    """Ids and log-probs of each stretch of the response that is trained on."""
    response = list(sample.tokens)[sample.prompt_length :]
    marked = zip(sample.loss_mask or (), response, sample.rollout_log_probs or (), strict=True)
    stretches = (list(items) for bit, items in itertools.groupby(marked, key=lambda item: item[0]) if bit)
    return [(tuple(token for _, token, _ in items), [each for _, _, each in items]) for items in stretches]


def _is_answered(tokens: tuple[int, ...], engine: ScriptedEngine) -> bool:
    """Whether a stretch is one answer of the engine, or several in a row."""
    outputs = [call.output for call in engine.calls]
    spans = itertools.combinations(range(len(outputs) + 1), 2)
    return any(tuple(itertools.chain(*outputs[first:last])) == tokens for first, last in spans)
