"""Grading on the event loop leaves it to others in between."""

import asyncio

import pytest

from slime_core import Sample, Score, Verdict
from slime_core.roles import RewardContext
from slime_reward_math.cases import box
from slime_reward_math.grader import forget
from slime_reward_math.plugin import MathSettings
from slime_reward_math.rewards import answers

CONTEXT = RewardContext(0, False, 1)
SAMPLES = [Sample(label=str(number % 7), response=box(f"{number}-{number}+3")) for number in range(50)]
EXPECTED = [1.0 if sample.label == "3" else 0.0 for sample in SAMPLES]


@pytest.fixture
def reward(monkeypatch: pytest.MonkeyPatch) -> answers.Answers:
    """The reward `math`, whose every verdict is its turn's last."""
    monkeypatch.setattr("slime_reward_math.rewards.answers.LIMIT_S", 1e-9)
    forget()
    return answers.math(MathSettings())


def values(found: list[Verdict]) -> list[float]:
    return [each.value for each in found if isinstance(each, Score)]


def test_grading_yields_to_other_tasks(reward: answers.Answers) -> None:
    async def graded() -> tuple[list[Verdict], int]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        found = await asyncio.gather(*(reward(sample, CONTEXT) for sample in SAMPLES))
        beside.cancel()
        return found, turns

    found, turns = asyncio.run(graded())
    assert values(found) == EXPECTED
    assert turns > len(SAMPLES)


def test_cancelled_call_blocks_no_other(reward: answers.Answers) -> None:
    async def graded() -> list[Verdict]:
        tasks = [asyncio.create_task(reward(sample, CONTEXT)) for sample in SAMPLES]
        await asyncio.sleep(0)
        for task in tasks[1:-1]:
            task.cancel()
        return [await tasks[0], await tasks[-1]]

    assert values(asyncio.run(graded())) == [EXPECTED[0], EXPECTED[-1]]


def test_abandoned_loop_does_not_block_the_next(reward: answers.Answers) -> None:
    async def left() -> None:
        tasks = [asyncio.create_task(reward(sample, CONTEXT)) for sample in SAMPLES]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    async def graded() -> list[Verdict]:
        return await asyncio.gather(*(reward(sample, CONTEXT) for sample in SAMPLES))

    asyncio.run(left())
    assert values(asyncio.run(graded())) == EXPECTED
