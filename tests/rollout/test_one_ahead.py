"""The policy async: a rollout is made while the trainer works, once, and is there again after a resume."""

import asyncio
import json
from functools import partial

import pytest

from slime_core.errors import CheckpointError
from slime_core.roles import GenerateOutput, GenerateRequest
from slime_core.rollout import RolloutResult, Waves
from tests.rollout.bench import ScriptedEngine, make_bench

AHEAD = partial(Waves, ahead=True)


def draws(result: RolloutResult) -> list[int]:
    return [group.id.draw for group in result.kept]


def test_what_was_made_ahead_is_handed_over_once() -> None:
    bench = make_bench(make=AHEAD)

    async def go() -> None:
        assert draws(await bench.scheduler.collect(0, 2)) == [0, 1]
        bench.scheduler.look_ahead(1, 2)
        assert bench.scheduler.live() == (0, 0)
        await bench.scheduler.settle()
        assert bench.source.drawn == 4
        assert bench.scheduler.live() == (0, 2)
        assert draws(await bench.scheduler.collect(1, 2)) == [2, 3]
        assert (bench.source.drawn, bench.scheduler.live()) == (4, (0, 0))
        assert draws(await bench.scheduler.collect(2, 2)) == [4, 5]

    asyncio.run(go())


def test_what_the_buffer_lacks_by_then_is_made_in_addition() -> None:
    bench = make_bench(make=AHEAD)

    async def go() -> None:
        bench.scheduler.look_ahead(1, 1)
        await bench.scheduler.settle()
        result = await bench.scheduler.collect(1, 3)
        assert draws(result) == [0, 1, 2]
        assert (result.metrics["rollout/raw_reward"], result.metrics["rollout/reward/r"]) == (0.5, 0.5)
        assert result.metrics["rollout/response_len/mean"] == 2.0
        bench.scheduler.look_ahead(2, 0)
        assert draws(await bench.scheduler.collect(2, 2)) == [3, 4]
        assert bench.scheduler.live() == (0, 0)

    asyncio.run(go())


def test_a_resume_has_what_waited_and_does_not_make_it_again() -> None:
    bench, again = make_bench(make=AHEAD), make_bench(make=AHEAD)

    async def go() -> None:
        assert bench.scheduler.state_dict() == {}
        bench.scheduler.look_ahead(3, 2)
        await bench.scheduler.settle()
        state = json.loads(json.dumps(bench.scheduler.state_dict()))
        again.scheduler.load_state_dict(state)
        assert again.scheduler.live() == (0, 2)
        assert again.scheduler.state_dict() == state
        found, first = await again.scheduler.collect(3, 2), await bench.scheduler.collect(3, 2)
        assert [group.to_dict() for group in found.kept] == [group.to_dict() for group in first.kept]
        assert dict(found.metrics) == dict(first.metrics)
        assert (again.source.drawn, bench.source.drawn) == (0, 2)

    asyncio.run(go())


def test_nothing_waits_after_a_resume_from_nothing() -> None:
    bench = make_bench(make=AHEAD)
    bench.scheduler.load_state_dict({})
    assert bench.scheduler.live() == (0, 0)
    with pytest.raises(CheckpointError, match=r"of another rollout_policy \(in_flight, kept\): continue"):
        bench.scheduler.load_state_dict({"in_flight": [], "kept": []})


def test_a_rollout_under_way_ends_with_who_waits_for_it_and_with_the_run() -> None:
    """Its groups go back, to be run again."""
    asked = asyncio.Event()

    async def never(request: GenerateRequest) -> GenerateOutput:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    bench = make_bench(make=AHEAD, engine=ScriptedEngine(never))

    async def go() -> None:
        await bench.scheduler.close()
        bench.scheduler.look_ahead(0, 2)
        settling = asyncio.create_task(bench.scheduler.settle())
        await asked.wait()
        settling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await settling
        assert (bench.engine.running, bench.scheduler.live()) == (0, (0, 0))
        assert [group.id.draw for group in bench.source.back] == [0, 1]
        asked.clear()
        bench.scheduler.look_ahead(0, 2)
        await asked.wait()
        await bench.scheduler.close()
        assert (bench.engine.running, len(asyncio.all_tasks())) == (0, 1)

    asyncio.run(go())
