"""Interrupted calls go on with what they have made, as far as their settings count it."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import (
    EngineExtras,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout.calls import PausableEngine
from tests.rollout.bench import checked


class Halting:
    """Ends every call with an abort after three tokens, but the last one."""

    def __init__(self) -> None:
        self.requests: list[GenerateRequest] = []
        self.pausable: PausableEngine | None = None

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def close(self) -> None: ...

    async def abort(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.requests.append(request)
        number = len(self.requests)
        tokens = [10 * number, 10 * number + 1, 10 * number + 2]
        if number == 3:
            return GenerateOutput(tokens, [-1.0] * 3, FinishReason.STOP, number, "END")
        assert self.pausable is not None
        await self.pausable.pause()
        self.pausable.go_on()
        return GenerateOutput(tokens, [-1.0] * 3, FinishReason.ABORT, number)


def test_penalties_stops_and_the_least_length_count_what_was_made_before() -> None:
    engine = Halting()
    engine.pausable = PausableEngine(engine)
    sampling = SamplingParams(20, min_new_tokens=5, presence_penalty=1.0, stop=("END",))
    output = asyncio.run(engine.pausable.generate(GenerateRequest([1, 2], sampling, 7)))
    assert list(output.tokens) == [10, 11, 12, 20, 21, 22, 30, 31, 32]
    assert (output.finish, output.matched, output.weight_version) == (FinishReason.STOP, "END", 1)
    first, second, third = engine.requests
    assert (first.made, second.made, third.made) == (0, 3, 6)
    assert list(third.prompt) == [1, 2, 10, 11, 12, 20, 21, 22]
    assert second.sampling == replace(sampling, max_new_tokens=17, min_new_tokens=2)
    assert third.sampling == replace(sampling, max_new_tokens=14, min_new_tokens=0)


def test_an_interrupted_answer_says_which_weights_made_which_tokens() -> None:
    engine = Halting()
    engine.pausable = PausableEngine(engine)
    output = asyncio.run(engine.pausable.generate(GenerateRequest([1, 2], SamplingParams(20), 7)))
    assert (output.weight_version, output.versions) == (1, ((3, 1), (3, 2), (3, 3)))


class Talking:
    """Makes the tokens 0, 1, 2 ... up to the budget, each of the newest weights; interrupted calls end between two."""

    def __init__(self, pauses: set[int], sizes: Sequence[int], *, streams: bool) -> None:
        self.pauses, self.sizes = pauses, sizes
        self.version = 0
        self.made = 0
        self.pausable: PausableEngine | None = None
        if streams:
            self.stream = self.parts

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def close(self) -> None: ...

    async def abort(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        return GenerateOutput.joined([chunk async for chunk in self.parts(request)])

    async def parts(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        assert list(request.prompt) == [*PROMPT, *range(self.made)]
        left, version, sizes = request.sampling.max_new_tokens, self.version, itertools.cycle(self.sizes)
        while left:
            if self.made in self.pauses:
                self.pauses.remove(self.made)
                await self._publish()
                yield GenerateChunk((), (), version, FinishReason.ABORT, extras=EngineExtras(retractions=1))
                return
            size = min([left, next(sizes), *(pause - self.made for pause in self.pauses if pause > self.made)])
            tokens = list(range(self.made, self.made + size))
            self.made += size
            left -= size
            yield GenerateChunk(tokens, [-1.0] * size, version, None if left else FinishReason.LENGTH)

    async def _publish(self) -> None:
        assert self.pausable is not None
        await self.pausable.pause()
        self.version += 1
        self.pausable.go_on()


PROMPT = [901, 902]


@given(
    st.integers(1, 20),
    st.sets(st.integers(0, 19), max_size=4),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_stream_goes_on_over_interruptions_and_says_which_weights_made_which_tokens(
    budget: int, pauses: set[int], sizes: list[int], streams: bool
) -> None:
    def engine() -> PausableEngine:
        talking = Talking(set(pauses), sizes, streams=streams)
        talking.pausable = PausableEngine(checked(talking))
        return talking.pausable

    async def streamed() -> list[GenerateChunk]:
        chunks: list[GenerateChunk] = []
        await engine().generate(request, chunks.append)
        return chunks

    request = GenerateRequest(PROMPT, SamplingParams(budget), 7)
    chunks = asyncio.run(streamed())
    output = GenerateOutput.joined(chunks)
    expected = [sum(pause <= place for pause in pauses) for place in range(budget)]
    assert list(output.tokens) == list(range(budget))
    assert [version for count, version in output.versions for _ in range(count)] == expected
    assert (output.weight_version, output.finish) == (expected[0], FinishReason.LENGTH)
    assert [version for chunk in chunks for version in [chunk.weight_version] * len(chunk.tokens)] == expected
    assert [chunk.finish for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert all(len(chunk.tokens) for chunk in chunks[:-1])
    whole = asyncio.run(engine().generate(request))
    assert (whole.tokens, whole.versions, whole.finish) == (output.tokens, output.versions, output.finish)
