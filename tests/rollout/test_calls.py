"""Engine calls of one sample: seeds by name, limits, parts, pauses, and counts that stay whole."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import ContractError, LimitError
from slime_core.roles import (
    EngineExtras,
    FinishReason,
    GenerateChunk,
    GenerateContext,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
)
from slime_core.rollout import EvalSet, RolloutPolicy, SingleTurn, evaluate
from slime_core.rollout.calls import Calls, PausableEngine, SamplesInFlight
from slime_core.sample import Group, GroupId, Sample
from slime_core.seeds import derive_seed
from tests.rollout.bench import Idle, checked, make_bench
from tests.tables import table

GROUP = GroupId("numbers", 0, 3, 3)
SAMPLING = SamplingParams(8)


class Echo(Idle):
    """Answers with a token that is its seed; takes a while, fails or streams as configured."""

    def __init__(self, delays: Sequence[int] = (), failures: int = 0) -> None:
        self.requests: list[GenerateRequest] = []
        self.delays, self.failures = list(delays), failures

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        return GenerateOutput.joined([chunk async for chunk in self.stream(request)])

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        self.requests.append(request)
        for _ in range(self.delays.pop(0) if self.delays else 0):
            await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("lost")
        yield GenerateChunk([request.seed % 1000], [-1.0], 4)
        await asyncio.sleep(0)
        yield GenerateChunk([2], [-0.5], 4, FinishReason.STOP)


class Slow(Echo):
    """Takes so many seconds for each answer."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        await asyncio.sleep(self.seconds)
        return await super().generate(request)


def calls_of(engine: Echo, **limits: int | None) -> Calls:
    state = SamplesInFlight().track(GROUP, 1)
    pausable = PausableEngine(checked(engine))
    return Calls(pausable, RolloutPolicy(5, SAMPLING, **limits), SAMPLING, (GROUP, 1, state))


@given(
    order=st.permutations(range(5)),
    delays=st.lists(st.integers(0, 6), min_size=5, max_size=5),
    unnamed=st.integers(0, 3),
)
def test_concurrent_calls_keep_their_seeds_in_any_order_of_arrival(
    order: list[int], delays: list[int], unnamed: int
) -> None:
    async def asked() -> Mapping[int, GenerateOutput]:
        calls = calls_of(Echo(delays))
        for _ in range(unnamed):  # calls without a name, which take no part in it
            await calls.generate([1])
        made = await asyncio.gather(*(calls.generate([place], turn=f"turn {place}") for place in order))
        return dict(zip(order, made, strict=True))

    for place, output in asyncio.run(asked()).items():
        assert output.tokens[0] == derive_seed(5, *GROUP, 1, f"turn {place}", 0) % 1000


@table("at_once", [True, False])
def test_two_calls_of_one_name_are_refused_naming_it(at_once: bool) -> None:
    async def twice() -> None:
        calls = calls_of(Echo([3]))
        if at_once:
            await asyncio.gather(calls.generate([1], turn="plan"), calls.generate([2], turn="plan"))
        for _ in range(2):
            await calls.generate([1], turn="plan")

    with pytest.raises(ContractError, match="turn='plan'"):
        asyncio.run(twice())


def test_a_restarted_sample_has_all_its_calls_and_names_again() -> None:
    async def asked() -> list[list[int]]:
        calls = calls_of(Echo(), max_turns=2)
        made = []
        for _ in range(2):
            made.append([(await calls.generate([1], turn=turn)).tokens[0] for turn in ("plan", None)])
            with pytest.raises(LimitError, match="has made its 2 calls"):
                await calls.generate([1], turn="more")
            assert len(calls.finished) == 2
            calls.restart()
            assert (calls.finished, calls.measured) == ([], {})
        return made

    first, second = asyncio.run(asked())
    assert first == second


def test_a_call_from_before_a_restart_is_not_recorded() -> None:
    async def asked() -> int:
        calls = calls_of(Echo([3]))
        late = asyncio.create_task(calls.generate([1], turn="plan"))
        await asyncio.sleep(0)
        calls.restart()
        await calls.generate([1], turn="plan")
        await late
        return len(calls.finished)

    assert asyncio.run(asked()) == 1


def test_a_call_that_failed_may_be_made_again_as_if_it_had_not() -> None:
    async def retried() -> GenerateOutput:
        calls = calls_of(engine)
        with pytest.raises(ConnectionError):
            await calls.generate([1], turn="plan")
        return await calls.generate([1], turn="plan")

    engine = Echo(failures=1)
    assert asyncio.run(retried()).tokens == asyncio.run(calls_of(Echo()).generate([1], turn="plan")).tokens
    assert len({request.seed for request in engine.requests}) == 1


def test_session_and_media_reach_the_engine_and_chunks_the_callback() -> None:
    engine, chunks = Echo(), list[GenerateChunk]()
    call = calls_of(engine).generate(
        [1], SamplingParams(4), session="s7", media={"image": ["x"]}, on_chunk=chunks.append
    )
    output = asyncio.run(call)
    [request] = engine.requests
    assert (request.session, request.media, request.group) == ("s7", {"image": ["x"]}, GROUP)
    assert [len(chunk.tokens) for chunk in chunks] == [1, 1]
    assert GenerateOutput.joined(chunks) == output


def test_an_answer_has_the_room_that_the_context_leaves() -> None:
    engine = Echo()
    calls = calls_of(engine, max_context=10)
    asyncio.run(calls.generate([1] * 7))
    asyncio.run(calls.generate([1]))
    assert [request.sampling.max_new_tokens for request in engine.requests] == [3, 8]
    with pytest.raises(LimitError, match=r"prompt of 10 tokens leaves no room .* context of 10"):
        asyncio.run(calls.generate([1] * 10))


def test_calls_end_at_the_turn_limit_and_failed_ones_do_not_count() -> None:
    async def asked() -> None:
        calls = calls_of(Echo(failures=1), max_turns=2)
        with pytest.raises(ConnectionError):
            await calls.generate([1])
        await asyncio.gather(calls.generate([1], turn="a"), calls.generate([1], turn="b"))
        with pytest.raises(LimitError, match=r"made its 2 calls .*rollout_max_turns.*Status\.TRUNCATED"):
            await calls.generate([1])

    asyncio.run(asked())


@table("name, value", [("x", float("nan")), ("x", float("inf")), ("", 1.0)])
def test_what_cannot_be_measured_is_refused(name: str, value: float) -> None:
    with pytest.raises(ContractError, match="expected a name and a finite number"):
        calls_of(Echo()).measure(name, value)


def test_measures_become_metrics_of_rollouts_and_evaluations() -> None:
    class Measures(SingleTurn):
        async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
            for _ in range(2):
                ctx.measure("tool_calls", 10.0 * (sample.group_index or 0) + (sample.index or 0))
            return await super().__call__(sample, ctx)

    bench = make_bench(generator=Measures(), n=2)
    metrics = asyncio.run(bench.scheduler.collect(0, 2)).metrics
    assert metrics["rollout/scripted/tool_calls/mean"] == (0 + 1 + 10 + 11) / 4
    assert metrics["rollout/scripted/tool_calls/p99"] == 11.0
    group = Group(GroupId("eval:x", 0, 0, 0), [Sample(group_index=3, index=0, rollout_id=0, prompt="1")])
    found = asyncio.run(evaluate(bench.scheduler, [EvalSet("x", [group], SAMPLING)], rollout_id=0)).metrics
    assert found["eval/x/scripted/tool_calls/mean"] == 30.0


@table("sessions, noted", [(("a", "a"), "a"), (("a", None), "a"), (("a", "b"), None), ((), None)])
def test_samples_are_of_the_session_that_all_calls_named(sessions: Sequence[str | None], noted: str | None) -> None:
    async def main() -> list[Sample]:
        calls = calls_of(Echo())
        for session in sessions:
            await calls.generate([1], session=session)
        samples = [Sample(), Sample(session_id="its own")]
        calls.note(samples)
        return samples

    assert [sample.session_id for sample in asyncio.run(main())] == [noted, "its own"]


def test_time_between_calls_is_that_of_tools_and_time_in_them_is_not() -> None:
    """Two calls of 0.2 s at once, then a tool: what overlaps is not counted twice, and nothing of it as the tool's."""

    async def main() -> tuple[float, float, float]:
        calls, began = calls_of(Slow(0.2)), time.monotonic()
        calls.begin()
        await asyncio.gather(calls.generate([1]), calls.generate([1]))
        tool_began = time.monotonic()
        await asyncio.sleep(0.1)
        tool = time.monotonic() - tool_began
        return tool, calls.non_generation_s, time.monotonic() - began - 0.2

    least, noted, most = asyncio.run(main())
    assert least <= noted <= most


def test_a_single_call_and_what_was_forgotten_leave_no_time_of_tools() -> None:
    async def main() -> tuple[float, float]:
        calls = calls_of(Echo())
        await calls.generate([1])
        await asyncio.sleep(0.05)
        alone = calls.non_generation_s
        await calls.generate([1])
        calls.restart()
        return alone, calls.non_generation_s

    assert asyncio.run(main()) == (0.0, 0.0)


# Interrupted calls go on with what they have made, as far as their settings count it.


class Talking(Idle):
    """Makes the tokens 0, 1, 2 ... up to the budget, each of the newest weights; interrupted calls end between two."""

    def __init__(self, budget: int, pauses: set[int], sizes: Sequence[int], *, streams: bool) -> None:
        self.budget, self.pauses, self.sizes = budget, pauses, sizes
        self.version = 0
        self.made = 0
        self.pausable: PausableEngine | None = None
        if streams:
            self.stream = self.parts

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        return GenerateOutput.joined([chunk async for chunk in self.parts(request)])

    async def parts(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        assert (list(request.prompt), request.num_generated) == ([*PROMPT, *range(self.made)], self.made)
        assert request.sampling == replace(
            SAMPLED, max_new_tokens=self.budget - self.made, min_new_tokens=max(0, 5 - self.made)
        )
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
        self.pausable.resume()


PROMPT, SAMPLED = [901, 902], SamplingParams(20, min_new_tokens=5, presence_penalty=1.0, stop=("END",))


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
        talking = Talking(budget, set(pauses), sizes, streams=streams)
        talking.pausable = PausableEngine(checked(talking))
        return talking.pausable

    async def streamed() -> list[GenerateChunk]:
        chunks: list[GenerateChunk] = []
        await engine().generate(request, chunks.append)
        return chunks

    request = GenerateRequest(PROMPT, replace(SAMPLED, max_new_tokens=budget), 7)
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
