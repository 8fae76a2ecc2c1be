"""A rollout that cannot stay within its share of failures ends at once, and no other does."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import RolloutError
from slime_core.roles import RewardContext
from slime_core.rollout.metrics import Tally
from slime_core.rollout.scoring import Execution, Failure
from slime_core.sample import Sample
from slime_core.score import Verdict
from tests.rollout.bench import make_bench, reward_use
from tests.tables import table


async def first_fails_others_hang(sample: Sample, ctx: RewardContext) -> Verdict:
    if sample.index == 0:
        raise ZeroDivisionError("division by zero")
    await asyncio.Event().wait()
    raise AssertionError("not reached")


@table("wave", [2, 8])
def test_a_wave_that_is_lost_does_not_wait_for_its_hanging_samples(wave: int) -> None:
    bench = make_bench(rewards=[reward_use(first_fails_others_hang, "judge", timeout_s=600.0)], max_error_rate=0.05)
    with pytest.raises(RolloutError, match=r"^rollout 0: \d of \d+ samples failed, .* have not ended:\n .*judge_Zero"):
        asyncio.run(asyncio.wait_for(bench.scheduler.collect(0, wave), 60))
    assert len(bench.source.back) == wave


@given(
    outcomes=st.lists(st.booleans(), min_size=1, max_size=40),
    limit=st.sampled_from([0.0, 0.05, 0.3, 0.5, 1.0]),
    made=st.integers(0, 30),
)
def test_it_ends_early_exactly_when_the_whole_would_be_refused(outcomes: list[bool], limit: float, made: int) -> None:
    budget = Tally("rollout 0").errors
    for _ in range(made):
        budget.add(None)
    budget.expect(len(outcomes), limit)
    lost = [sum(outcomes[: place + 1]) > limit * (made + len(outcomes)) for place in range(len(outcomes))]
    for is_last, is_lost, fails in zip([*[False] * (len(outcomes) - 1), True], lost, outcomes, strict=True):
        ended = Failure("bad") if fails else None
        if is_lost and not is_last:
            with pytest.raises(RolloutError, match="whatever becomes of the"):
                budget.add(ended)
            return
        budget.add(ended)


def test_an_execution_is_one_whatever_it_fanned_out_into() -> None:
    samples = [Sample(prompt="1", index=0, group_index=0, rollout_id=0) for _ in range(10)]
    failed = Execution(samples)
    for each in failed.hearings[1:]:
        each.failure = Failure("bad")
    tally = Tally("rollout 7")
    for each in (failed, Execution(samples[:1])):
        tally.errors.add(each.failure)
    assert tally.metrics()["rollout/errors/bad"] == 1.0
    with pytest.raises(RolloutError, match="1 of 2 samples failed"):
        tally.errors.check(0.4)


def test_what_failed_in_earlier_waves_counts() -> None:
    tally = Tally("rollout 7")
    for failure in (Failure("bad"), *[None] * 9):
        tally.errors.add(failure)
    tally.errors.expect(5, limit=0.2)
    for _ in range(2):
        tally.errors.add(Failure("bad"))
    with pytest.raises(RolloutError, match=r"rollout 7: 4 of 15 .* of the 2 that have not ended:\n  4 x bad"):
        tally.errors.add(Failure("bad"))
