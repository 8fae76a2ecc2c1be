"""What becomes of bad engines, and of what they were asked; the clock stands still while anything is to be done."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import ContractError, PluginError, RequestError, WorkerError
from slime_core.roles import Engine, FinishReason, GenerateOutput, GenerateRequest, WeightChannel
from slime_core.rollout import EnginePool
from tests.rollout.engines.fleet import Fleet, Scripted, make_request, tokens_of
from tests.tables import table

NOWHERE = WeightChannel("nowhere", ())
FOR_EVER_S = 1e9
MANY = 160


async def dies(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    """After some answers."""
    if len(engine.asked) > 5:
        await asyncio.sleep(0.3)
        raise WorkerError(f"engine {engine.number} died (killed by SIGKILL); the end of its log:\n")
    return await engine.answer(request)


async def dies_at_once(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    raise WorkerError("killed by SIGKILL")


async def hangs(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    await asyncio.sleep(FOR_EVER_S)
    raise AssertionError


async def nan(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    output = await engine.answer(request)
    return replace(output, log_probs=[float("nan")] * len(output.tokens))


async def garbage(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    return "</html>"  # type: ignore[return-value]


async def stale(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    return replace(await engine.answer(request), weight_version=-1)


async def from_the_future(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    return replace(await engine.answer(request), weight_version=7)


async def raises(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
    await asyncio.sleep(0.1)
    raise ConnectionError("503 Service Unavailable")


async def ask(pool: EnginePool, requests: Sequence[GenerateRequest]) -> list[GenerateOutput]:
    return await asyncio.gather(*(pool.generate(request) for request in requests))


BAD: Mapping[str, tuple[Callable[..., object], str]] = {
    "dies": (dies, "died"),
    "hangs": (hangs, "hung"),
    "nan": (nan, "garbage"),
    "garbage": (garbage, "garbage"),
    "stale": (stale, "stale"),
    "from the future": (from_the_future, "stale"),
    "raises": (raises, "errors"),
}


@table("kind, bad", [(kind, bad) for kind in BAD for bad in ([3], [0, 2, 4, 6])])
def test_a_bad_engine_is_taken_out_and_what_it_was_asked_is_answered_as_if_it_were_good(
    caplog: pytest.LogCaptureFixture, kind: str, bad: list[int]
) -> None:
    caplog.clear()
    behaviour, cause = BAD[kind]
    made = Fleet(8, bad=dict.fromkeys(bad, behaviour), silence_s=30.0)
    requests = [make_request(seed, group=seed // 4) for seed in range(MANY)]

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput], list[int], dict[str, float]]:
        outputs = await ask(pool, requests)
        before = [made.asked(number) for number in bad]
        await asyncio.sleep(60.0)
        again = await ask(pool, requests)
        assert [list(each.tokens) for each in again] == [list(each.tokens) for each in outputs]
        return outputs, [made.asked(number) - asked for number, asked in zip(bad, before, strict=True)], pool.take()

    outputs, after, metrics = made.play(use)
    assert [list(output.tokens) for output in outputs] == [tokens_of(request) for request in requests]
    assert {output.weight_version for output in outputs} == {0}
    assert metrics[f"perf/engine/quarantined/{cause}"] == metrics["perf/engine/returned"] == len(bad)
    assert metrics["perf/engine/retries"] >= len(bad)
    assert all(after), "an engine that was restarted takes requests"
    assert sum(made.built.values()) == 8 + len(bad)
    for number in bad:
        assert f"engine {number} failed, its" in caplog.text
        assert f"engine {number} is back" in caplog.text


def test_requests_of_a_group_stay_together_and_engines_get_equal_work() -> None:
    made = Fleet(4)
    requests = [make_request(seed, group=seed // 8) for seed in range(32 * 8)]

    made.play(lambda pool: ask(pool, requests))
    homes = [{request.group for request in engine.asked} for engine in made.engines]
    assert [len(engine.asked) for engine in made.engines] == [64] * 4
    assert sum(map(len, homes)) == 32, "no group is on two engines"


def test_a_session_begins_where_its_group_is_and_stays_where_it_went() -> None:
    made = Fleet(4)
    turns = [
        [replace(make_request(seed * 10 + turn, group=seed // 4), session=f"talk-{seed}") for seed in range(16)]
        for turn in range(3)
    ]

    async def use(pool: EnginePool) -> None:
        first = [replace(make_request(900 + number, group=number), session=None) for number in range(4)]
        await ask(pool, first)
        for asked in turns:
            await ask(pool, asked)

    made.play(use)
    of_session = {each.session: set[int]() for asked in turns for each in asked}
    of_group = {each.group: set[int]() for asked in turns for each in asked}
    for engine in made.engines:
        for request in engine.asked:
            of_group[request.group].add(engine.number)
            if request.session is not None:
                of_session[request.session].add(engine.number)
    assert {len(homes) for homes in of_session.values()} == {1}
    assert sorted(next(iter(homes)) for homes in of_group.values()) == [0, 1, 2, 3]


def test_a_large_group_is_spread_rather_than_waited_for() -> None:
    made = Fleet(4)

    made.play(lambda pool: ask(pool, [make_request(seed, group=0) for seed in range(128)]))
    assert max(len(engine.asked) for engine in made.engines) <= 128 // 4 + 16


def test_requests_without_a_group_go_to_the_engine_with_the_least_work() -> None:
    made = Fleet(3)

    made.play(
        lambda pool: ask(pool, [make_request(0, budget=100), *(make_request(seed, budget=10) for seed in range(1, 15))])
    )
    assert [len(engine.asked) for engine in made.engines] == [1, 7, 7]


@table("count", [1, 8])
def test_when_none_can_be_restarted_the_run_ends_within_a_minute_and_each_is_named(count: int) -> None:
    every = range(count)
    made = Fleet(count, bad=dict.fromkeys(every, dies), never_again=frozenset(every))

    async def use(pool: EnginePool) -> tuple[list[object], float, object]:
        ends = await asyncio.gather(*(pool.generate(make_request(seed)) for seed in range(64)), return_exceptions=True)
        seconds = asyncio.get_running_loop().time()
        later = await asyncio.gather(pool.generate(make_request(0)), return_exceptions=True)
        return ends, seconds, later[0]

    ends, seconds, later = made.play(use)
    assert seconds < 60.0
    errors = [end for end in ends if isinstance(end, Exception)]
    assert errors
    for error in (*errors, later):
        assert isinstance(error, WorkerError)
        assert all(f"engine {number}: died: " in str(error) for number in every)
        assert all(f"engine {number} has no machine any more" in str(error) for number in every)
        assert "slime resume RUN" in str(error)


@table("count", [1, 2, 8])
def test_a_prompt_that_kills_engines_costs_its_own_sample(count: int) -> None:
    async def dies_of_7(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        if request.seed == 7:
            await asyncio.sleep(0.1)
            raise WorkerError(f"engine {engine.number} died (out of memory)")
        return await engine.answer(request)

    made = Fleet(count, everywhere=dies_of_7)
    requests = [make_request(seed) for seed in range(8 * count)]

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput | BaseException], dict[str, float]]:
        ends = await asyncio.gather(*(pool.generate(request) for request in requests), return_exceptions=True)
        return ends, pool.take()

    ends, metrics = made.play(use)
    error = ends.pop(7)
    assert isinstance(error, RequestError)
    assert str(error).startswith("6 engines died or hung over one request:")
    assert str(error).count(" died: engine") == 6
    assert metrics["perf/engine/quarantined/died"] == 6
    answered = [request for request in requests if request.seed != 7]
    assert [list(end.tokens) for end in ends] == [tokens_of(request) for request in answered]  # type: ignore[union-attr]


@table("seed", range(2))
def test_engines_that_are_stopped_again_and_again_cost_no_sample(seed: int) -> None:
    async def may_be_stopped(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        answer = asyncio.create_task(engine.answer(request, pace=0.25))
        stop = asyncio.create_task(engine.stopped.wait())
        try:
            await asyncio.wait([answer, stop], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise WorkerError("killed by another process")
            return answer.result()
        finally:
            answer.cancel()
            stop.cancel()

    async def stop_them(draw: random.Random) -> None:
        while True:
            await asyncio.sleep(1.0)
            draw.choice(made.engines[-8:]).stopped.set()

    made = Fleet(4, everywhere=may_be_stopped, restart_s=1000.0)
    requests = [make_request(number) for number in range(64)]

    async def use(pool: EnginePool) -> list[GenerateOutput]:
        storm = asyncio.create_task(stop_them(random.Random(seed)))
        try:
            return await ask(pool, requests)
        finally:
            storm.cancel()

    outputs = made.play(use)
    assert [list(output.tokens) for output in outputs] == [tokens_of(request) for request in requests]
    assert len(made.engines) > 4


@table("error", [ValueError("the prompt is empty"), ContractError("bad")])
def test_a_request_that_every_engine_refuses_costs_no_engine(error: Exception) -> None:
    async def refuses_odd(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        if request.seed % 2:
            raise error
        return await engine.answer(request)

    for count in (1, 2, 8):
        made = Fleet(count, everywhere=refuses_odd)

        async def use(pool: EnginePool) -> list[object]:
            return await asyncio.gather(
                *(pool.generate(make_request(seed)) for seed in range(40)), return_exceptions=True
            )

        ends = made.play(use)
        assert [end is error for end in ends] == [bool(seed % 2) for seed in range(40)]
        assert sum(made.built.values()) == count
        assert sum(made.asked(number) for number in range(count)) == 20 + 20 * min(3, count)


def test_a_passing_trouble_costs_no_engine() -> None:
    async def hiccups(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        if len(engine.asked) in (3, 4, 9, 10):
            raise ConnectionError("reset by peer")
        return await engine.answer(request)

    made = Fleet(4, bad={2: hiccups})

    async def use(pool: EnginePool) -> None:
        for seed in range(20):
            assert len(await ask(pool, [make_request(4 * seed + number) for number in range(4)])) == 4

    made.play(use)
    assert made.asked(2) > 10
    assert made.built[2] == 1


def test_an_engine_that_cannot_switch_returns_with_the_newest_weights() -> None:
    made = Fleet(3)

    async def use(pool: EnginePool) -> list[GenerateOutput]:
        made.unloadable = frozenset({1})
        await pool.load_weights(NOWHERE, 1)
        first = await ask(pool, [make_request(seed) for seed in range(9)])
        assert {output.weight_version for output in first} == {1}
        await asyncio.sleep(20.0)
        await pool.load_weights(NOWHERE, 2)
        made.unloadable = frozenset()
        await asyncio.sleep(60.0)
        return await ask(pool, [make_request(seed) for seed in range(9)])

    outputs = made.play(use)
    assert {output.weight_version for output in outputs} == {2}
    last = [engine for engine in made.engines if engine.number == 1][-1]
    assert last.version == 2
    assert last.asked


def test_weights_that_all_engines_refuse_raise_and_cost_no_engine() -> None:
    made = Fleet(3)

    async def refuse(channel: object, version: int) -> None:
        raise ValueError("no such tensor")

    async def use(pool: EnginePool) -> None:
        for engine in made.engines:
            engine.load_weights = refuse  # type: ignore[method-assign]
        with pytest.raises(PluginError, match="no such tensor"):
            await pool.load_weights(NOWHERE, 1)
        assert sum(made.built.values()) == 3
        made.bad = {0: dies_at_once}
        await ask(pool, [make_request(seed) for seed in range(3)])
        await asyncio.sleep(30.0)

    made.play(use)
    assert (made.built[0], made.engines[-1].version) == (2, 0), "a restarted engine serves what the others do"


def test_abort_ends_what_runs_and_what_waits_for_an_engine() -> None:
    made = Fleet(2, bad={0: dies, 1: dies})

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput], GenerateOutput]:
        running = asyncio.create_task(ask(pool, [make_request(seed) for seed in range(40)]))
        await asyncio.sleep(0.9)  # both are dead, and neither is back
        await pool.abort()
        return await running, await pool.generate(make_request(0))

    outputs, later = made.play(use)
    assert sum(output.finish is FinishReason.ABORT for output in outputs) >= 20
    assert later.finish is FinishReason.STOP


def test_a_cancelled_request_is_cancelled_at_an_engine_and_waiting_for_one() -> None:
    made = Fleet(2, bad={0: hangs, 1: hangs}, silence_s=5.0, incurable=frozenset({0, 1}), never_again=frozenset({0, 1}))

    async def use(pool: EnginePool) -> None:
        for wait_s in (0.0, 1.0, 7.0):  # at an engine, and waiting for one
            asked = asyncio.create_task(pool.generate(make_request(0)))
            await asyncio.sleep(wait_s)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked

    made.play(use)


def test_an_engine_that_cleans_up_for_ever_does_not_keep_its_requests() -> None:
    async def clings(engine: Scripted, request: GenerateRequest) -> GenerateOutput:
        try:
            return await hangs(engine, request)
        finally:
            await asyncio.sleep(FOR_EVER_S)  # cancels the request at a dead server

    made = Fleet(2, bad={0: clings}, silence_s=5.0)
    requests = [make_request(seed) for seed in range(4)]
    outputs = made.play(lambda pool: ask(pool, requests))
    assert [list(output.tokens) for output in outputs] == [tokens_of(request) for request in requests]


@table("first_s, waited_s", [(0.0, 60.0), (100.0, 400.0)])  # a minute, or the first's time and three times that
def test_an_engine_that_does_not_start_is_restarted_and_none_that_starts_ends_the_run(
    first_s: float, waited_s: float
) -> None:
    async def hangs_at_first(engine: Scripted) -> None:
        await asyncio.sleep(FOR_EVER_S if (engine.number, engine.life) == (2, 0) else first_s)

    made = Fleet(3, fails_to_start=frozenset({1}), starts=hangs_at_first)

    async def use(pool: EnginePool) -> tuple[float, dict[str, float]]:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(200.0)
        return began, pool.take()

    began, metrics = made.play(use)
    assert began == waited_s
    causes = {name: count for name, count in metrics.items() if name.count("/") == 3 and "quarantined" in name}
    assert causes == {"perf/engine/quarantined/died": 2.0}
    assert metrics["perf/engine/returned"] == 2
    with pytest.raises(WorkerError, match="engine 0 finds no port"):
        Fleet(3, fails_to_start=frozenset(range(3))).play(use)


def test_an_engine_that_cannot_be_built_again_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    made = Fleet(2, bad={0: dies_at_once})
    build, errors = made.make, [OSError("no space left on device")]

    def make(number: int) -> BuiltChoice[Engine]:
        if made.built[number] and errors:
            raise errors.pop()
        return build(number)

    made.make = make  # type: ignore[method-assign]

    async def use(pool: EnginePool) -> None:
        await ask(pool, [make_request(seed) for seed in range(2)])
        await asyncio.sleep(30.0)

    made.play(use)
    assert made.built[0] == 2
    assert "engine 0: restart failed, next in 2 s: OSError: no space left on device" in caplog.text


def test_pauses_between_restarts_double_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    made = Fleet(2, bad={0: dies}, never_again=frozenset({0}))

    async def use(pool: EnginePool) -> int:
        await ask(pool, [make_request(seed) for seed in range(40)])
        await asyncio.sleep(3600.0)
        return len(await ask(pool, [make_request(seed) for seed in range(40)]))

    caplog.set_level(logging.INFO)
    assert made.play(use) == 40
    assert 8 <= made.built[0] <= 24  # 1 + 2 + ... + 256 s, then every 300 s
    assert "restart failed, next in 300 s: engine 0 has no machine any more" in caplog.text


def test_while_none_serves_none_pauses_for_long() -> None:
    made = Fleet(1, bad={0: dies}, incurable=frozenset({0}))

    async def use(pool: EnginePool) -> int:
        return sum([len(await ask(pool, [make_request(seed)])) for seed in range(80)])

    assert made.play(use) == 80
    assert made.built[0] > 10, "it fell so often that its pauses would be longer than the run waits"


def test_falls_are_forgotten_after_ten_times_the_last_pause(caplog: pytest.LogCaptureFixture) -> None:
    made = Fleet(2, bad={0: dies}, incurable=frozenset({0}))

    async def use(pool: EnginePool) -> None:
        for seed in range(200):
            await ask(pool, [make_request(2 * seed), make_request(2 * seed + 1)])
            await asyncio.sleep(10.0)

    made.play(use)
    assert made.built[0] > 10
    assert caplog.text.count("failed, its") == caplog.text.count("restart in 1 s") == made.built[0] - 1


def test_metrics_tell_what_each_engine_did_since_the_last_time() -> None:
    made = Fleet(2)

    async def use(pool: EnginePool) -> tuple[list[GenerateOutput], dict[str, float], dict[str, float]]:
        outputs = await ask(pool, [make_request(seed) for seed in range(10)])
        return outputs, pool.take(), pool.take()

    outputs, first, second = made.play(use)
    assert {name: count for name, count in first.items() if name.endswith("requests")} == {
        "perf/engine/0/requests": 5.0,
        "perf/engine/1/requests": 5.0,
    }
    tokens = sum(count for name, count in first.items() if name.endswith("tokens"))
    assert tokens == sum(len(output.tokens) for output in outputs)
    assert set(second.values()) == {0.0}
    assert Fleet(1).play(_taken) == {}, "one engine that is well has nothing to tell"


async def _taken(pool: EnginePool) -> dict[str, float]:
    await pool.generate(make_request(0))
    return pool.take()


def test_an_engine_that_dies_with_nothing_to_do_is_replaced_before_it_is_asked() -> None:
    made = Fleet(2, dies_idle_s={1: 5.0})

    async def use(pool: EnginePool) -> dict[str, float]:
        await asyncio.sleep(30.0)
        assert (made.built[1], made.asked(1)) == (2, 1)  # the probe
        await ask(pool, [make_request(seed) for seed in range(8)])
        return pool.take()

    metrics = made.play(use)
    assert metrics["perf/engine/quarantined/died"] == metrics["perf/engine/returned"] == 1
    assert "perf/engine/retries" not in metrics
