"""GeneratorContract: what every generator must keep, GEN-001 to GEN-008.

    class TestSearch(GeneratorContract):
        choice = "slime-agent-search/search"

The generator talks to a scripted engine; what it does besides (tools, environments) is its own.
"""

import asyncio
import contextlib
import inspect
import itertools
from typing import ClassVar

from slime_core.catalog import check_generated
from slime_core.roles import FinishReason, GenerateContext, Generator, GeneratorSpec
from slime_core.sample import Sample, Status
from slime_core.testing.contract import check, require
from slime_core.testing.engine import MAX_NEW_TOKENS, ScriptedEngine
from slime_core.testing.role import RoleContract
from slime_core.testing.samples import make_pending

TIMEOUT_S = 10.0
"""How long a generator may take for one scripted sample."""


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
        require(callable(built), f"the factory returned {built!r}, which cannot be called")
        asynchronous = inspect.iscoroutinefunction(built) or inspect.iscoroutinefunction(type(built).__call__)
        require(asynchronous, f"{type(built).__name__} is called by a plain `def`; write `async def`")

    @check("GEN-002")
    def test_it_returns_finished_and_consistent_samples(self) -> None:
        """Use `sample.append_response_tokens` and set `status`: then tokens, mask and log-probs agree."""
        asked = self._pending()
        check_generated(self._run(ScriptedEngine(), asked), plugin=type(self).__name__, sample=asked)

    @check("GEN-003")
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

    @check("GEN-004")
    def test_the_prompt_comes_before_the_response(self) -> None:
        """`sample.tokens` starts with the prompt's ids: without them the trainer sees another context."""
        engine = ScriptedEngine()
        for sample in self._run(engine, self._pending()):
            tokens = tuple(sample.tokens)
            started = any(tokens[: len(call.prompt)] == call.prompt for call in engine.calls)
            require(started, "tokens do not start with the prompt of any request to the engine")

    @check("GEN-005")
    def test_the_token_budget_is_kept(self) -> None:
        """`ctx.sampling.max_new_tokens` is for the whole response: give each further turn only what is left."""
        engine = ScriptedEngine(finish=FinishReason.LENGTH)
        for sample in self._run(engine, self._pending()):
            count = sample.effective_response_length
            require(count <= MAX_NEW_TOKENS, f"{count} trainable tokens with a budget of {MAX_NEW_TOKENS}")
            require(sample.status is Status.TRUNCATED, f"the budget ended the response, its status is {sample.status}")

    @check("GEN-006")
    def test_an_abort_is_reported(self) -> None:
        """Finish ABORT means that the run needs the engine: stop, return what there is, with Status.ABORTED."""
        engine = ScriptedEngine(finish=FinishReason.ABORT)
        for sample in self._run(engine, self._pending()):
            require(sample.status is Status.ABORTED, f"the engine aborted, the status is {sample.status}")

    @check("GEN-007")
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

    @check("GEN-008")
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
