"""Runs a generator for the checks: from its start to its close, over as many turns as it takes.

Example:

    engine = self._engine(finish=FinishReason.ABORT, from_turn=1)       # the second request is aborted
    samples = self._run(engine, self._pending())
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import ClassVar
from unittest import SkipTest

from slime_core.roles import GenerateContext, Generator, GeneratorSpec, SamplingParams, StartsAndStops
from slime_core.sample import Sample
from slime_testing.calling import RAISED, Act, call
from slime_testing.contract import require
from slime_testing.engine import Call, ScriptedEngine
from slime_testing.role import RoleContract
from slime_testing.samples import make_pending

TIMEOUT_S = 10.0
"""How long a generator may take for one scripted sample."""
AMPLE = 1024
"""Token budget in which a generator has room for its turns, beside what the script says."""
TURNS = 3
"""Turns of a sample at which the kit tries what may happen: the first, and two more."""


class PlaysGenerators(RoleContract[GeneratorSpec]):
    """What the checks of generators play with."""

    kind = GeneratorSpec
    prompts: ClassVar[tuple[str, str]]
    answers: ClassVar[Sequence[str]]

    def _build(self) -> Generator:
        return self.spec.factory(self.validated(), self.setup())

    def _pending(self, number: int = 0) -> Sample:
        return make_pending(prompt=self.prompts[number])

    def _engine(self, **options: object) -> ScriptedEngine:
        """An engine that says what the author's script says, with room for all of it."""
        budget = AMPLE + 4 * sum(map(len, self.answers))
        given = {"answers": self.answers, "sampling": SamplingParams(budget), "distinct": True, **options}
        return ScriptedEngine(**given)  # type: ignore[arg-type]  # a check's own arguments, passed on

    def _run(self, engine: ScriptedEngine, sample: Sample) -> list[Sample]:
        return asyncio.run(lived(self._build(), sample, engine.context(None)))

    def _act(self, engine: Callable[[], ScriptedEngine]) -> Act:
        """Fresh calls of one generator."""
        generator = self._build()
        if isinstance(generator, StartsAndStops):
            return lambda: lived(self._build(), self._pending(), engine().context(None))
        return lambda: call(generator, self._pending(), engine().context(None))

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Act]:
        """Calls of a started generator, after a first one: what it sets up once is there."""
        async with started(self._build()) as generator:
            with contextlib.suppress(*RAISED):
                await call(generator, self._pending(), self._engine().context(None))
            yield lambda: call(generator, self._pending(), self._engine().context(None))

    def _turns(self) -> list[Call]:
        """The requests of one sample that are a turn each: the first, and those that go on from an answer."""
        engine = self._engine()
        self._run(engine, self._pending())
        return turns_of(engine.calls)

    def _each_turn(self) -> list[int]:
        """Numbers of the requests at which the kit tries what may happen."""
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


def turns_of(calls: Sequence[Call]) -> list[Call]:
    """The first call, and those that were made after an answer and ask something new."""
    known: set[tuple[int, ...]] = set()
    turns: list[Call] = []
    for each in sorted(calls, key=lambda each: each.request):
        if not turns or (each.answered and each.prompt not in known):
            turns.append(each)
        known.add(each.prompt)
    return turns


@contextlib.asynccontextmanager
async def started(generator: Generator) -> AsyncIterator[Generator]:
    """A generator that was started, if it can be, and is closed afterwards."""
    if not isinstance(generator, StartsAndStops):
        yield generator
        return
    try:
        await generator.start()
        yield generator
    finally:
        await generator.close()


async def lived(generator: Generator, sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """One call, from start to close."""
    async with started(generator):
        return await limited(generator, sample, ctx)


async def limited(generator: Generator, sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """One call, within its time."""
    async with asyncio.timeout(TIMEOUT_S):
        return await generator(sample, ctx)


def require_as_answered(sample: Sample, calls: Sequence[Call]) -> None:
    """Fail the running check unless what is trained on is the engine's answers: ids, log-probs, versions, context."""
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
    """Fail the running check unless each answer that is trained on stands after the prompt that it answers."""
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
    """Answers of the engine, one or several in a row, that are these tokens."""
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
