"""How long engines may take is theirs to say; the clock stands still while anything is to be done."""

import asyncio

import pytest

from slime_core.errors import WorkerError
from slime_core.roles import EngineSpec, GenerateOutput, GenerateRequest, WeightChannel
from slime_core.rollout import EnginePool, Limits
from tests.rollout.engines.fleet import Fleet, Scripted, make_request, tokens_of
from tests.tables import table

NOWHERE = WeightChannel("nowhere", ())
FOR_EVER_S = 1e9


async def dies(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    raise WorkerError("killed by SIGKILL")


async def starts_again_slowly(engine: Scripted) -> None:
    await asyncio.sleep(90.0 if engine.life else 0.0)


def test_a_server_that_takes_long_to_start_again_is_waited_for_as_long_as_it_says() -> None:
    patient = Fleet(1, bad={0: dies}, starts=starts_again_slowly, restart_s=200.0)
    output = patient.play(lambda pool: pool.generate(make_request(3)))
    assert list(output.tokens) == tokens_of(make_request(3))
    hasty = Fleet(1, bad={0: dies}, starts=starts_again_slowly, restart_s=40.0)
    with pytest.raises(WorkerError, match="no engine has served for 40 s"):
        hasty.play(lambda pool: pool.generate(make_request(3)))


@table("first_s, waited_s", [(0.0, 60.0), (100.0, 400.0)])
def test_an_engine_that_hangs_at_its_start_delays_the_others_three_times_their_start_or_a_minute(
    first_s: float, waited_s: float
) -> None:
    async def hangs(engine: Scripted) -> None:
        await asyncio.sleep(FOR_EVER_S if engine.number == 1 and not engine.life else first_s)

    made = Fleet(3, starts=hangs)

    async def use(pool: EnginePool) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
        began, serving = asyncio.get_running_loop().time(), pool.serving
        await asyncio.sleep(200.0)
        return began, serving, pool.serving

    assert made.play(use) == (waited_s, (0, 2), (0, 1, 2))
    assert made.built[1] == 2


@table("probe_s, lives", [(120.0, 2), (30.0, 4)])
def test_the_first_answer_after_a_restart_may_take_as_long_as_it_says(probe_s: float, lives: int) -> None:
    """It compiles for a minute; where that is too long, it does so again and again."""

    async def compiles(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        await asyncio.sleep(60.0 if len(engine.asked) == 1 and engine.life else 0.0)
        return await engine.answer(request)

    made = Fleet(2, bad={0: dies}, everywhere=compiles, probe_s=probe_s)

    async def use(pool: EnginePool) -> None:
        await asyncio.gather(*(pool.generate(make_request(seed)) for seed in range(8)))
        await asyncio.sleep(100.0)

    made.play(use)
    assert made.built[0] == lives


async def long_ones(pool: EnginePool, requests: list[GenerateRequest]) -> list[asyncio.Task[GenerateOutput]]:
    asked = [asyncio.create_task(pool.generate(request)) for request in requests]
    await asyncio.sleep(1.0)
    return asked


async def crawls(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    return await engine.answer(request, pace=20.0)


async def idles_and_loads(engine: Scripted, seconds: float) -> None:
    while engine.running:  # noqa: ASYNC110  # nothing tells when
        await asyncio.sleep(0.5)
    await asyncio.sleep(seconds)


def test_the_wait_for_what_runs_does_not_count_as_loading() -> None:
    made = Fleet(2, everywhere=crawls, loads=lambda engine: idles_and_loads(engine, 90.0), load_s=100.0)

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput], float, dict[str, float]]:
        running = await long_ones(pool, [make_request(seed) for seed in range(6)])
        await pool.load_weights(NOWHERE, 1)
        return await asyncio.gather(*running), asyncio.get_running_loop().time(), pool.take()

    outputs, seconds, metrics = made.play(use)
    assert {output.weight_version for output in outputs} == {0}
    assert seconds > 100.0 + 90.0, "what ran took longer than loading may"
    assert "perf/engine/quarantined/hung" not in metrics


def test_a_load_that_hangs_is_given_up_at_its_limit_after_what_ran() -> None:
    async def hangs(engine: Scripted) -> None:
        await idles_and_loads(engine, FOR_EVER_S if engine.number == 0 and not engine.life else 1.0)

    made = Fleet(2, everywhere=crawls, loads=hangs, load_s=100.0)

    async def use(pool: EnginePool) -> tuple[float, float, dict[str, float]]:
        running = await long_ones(pool, [make_request(seed) for seed in range(6)])
        loading = asyncio.create_task(pool.load_weights(NOWHERE, 1))
        await asyncio.gather(*running)
        idle = asyncio.get_running_loop().time()
        await loading
        return idle, asyncio.get_running_loop().time(), pool.take()

    idle, loaded, metrics = made.play(use)
    assert idle + 50.0 < loaded <= idle + 101.0
    assert metrics["perf/engine/quarantined/hung"] == 1


def test_what_an_engine_holds_back_while_it_loads_does_not_make_it_silent() -> None:
    async def held_back(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        if request.seed:
            await loaded.wait()
        return await engine.answer(request)

    async def loads(engine: Scripted) -> None:
        await asyncio.sleep(90.0)
        loaded.set()

    loaded = asyncio.Event()
    made = Fleet(1, everywhere=held_back, loads=loads, load_s=100.0, silence_s=30.0)

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput], dict[str, float]]:
        switching = asyncio.create_task(pool.load_weights(NOWHERE, 1))
        await asyncio.sleep(1.0)
        outputs = await asyncio.gather(*(pool.generate(make_request(seed)) for seed in range(1, 5)))
        await switching
        return outputs, pool.take()

    outputs, metrics = made.play(use)
    assert {output.weight_version for output in outputs} == {1}
    assert metrics == {}


def test_the_limits_of_a_pool_are_those_of_its_engine_s_spec() -> None:
    spec = EngineSpec("served", lambda settings, setup: None, restart_s=900.0, probe_s=200.0, load_s=50.0)  # type: ignore[arg-type, return-value]
    limits = Limits.of(spec, silence_s=10.0)
    assert limits == Limits(10.0, 900.0, 200.0, 50.0)
    assert limits.start_s == 900.0
    assert Limits(10.0, 40.0, 30.0, 50.0).start_s == 600.0
