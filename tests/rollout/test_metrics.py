"""Metrics of a rollout, under slime's names, over the kept groups."""

import asyncio
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest

from slime_core.roles import EngineExtras, FinishReason, GenerateOutput, GenerateRequest, RewardContext
from slime_core.rollout import NonzeroStd
from slime_core.rollout.tally import sample_metrics
from slime_core.sample import Sample, SpecInfo
from slime_core.score import Score, Verdict

Make = Callable[..., "Bench"]  # noqa: F821  # the fixtures of conftest.py


async def lengthy(request: GenerateRequest) -> GenerateOutput:
    """A response whose length grows with the prompt; truncated from 5 on."""
    length = request.prompt[-1] - 999
    finish = FinishReason.LENGTH if length >= 5 else FinishReason.STOP
    return GenerateOutput([7] * length, [-0.1] * length, finish, 0)


async def uneven(sample: Sample, ctx: RewardContext) -> Verdict:
    """Groups 0 and 1 have equal rewards, 1.0 each; the others differ."""
    return Score(1.0 if (sample.group_index or 0) < 2 or sample.index == 0 else 0.0)


def test_lengths_rewards_and_truncation(make_bench: Make, make_engine: Make, use: Make) -> None:
    bench = make_bench(engine=make_engine(lengthy), rewards=[use(uneven)], n=2)
    metrics = asyncio.run(bench.scheduler.collect(0, 6)).metrics
    lengths = [length for length in range(1, 7) for _ in range(2)]
    assert metrics["rollout/response_len/mean"] == statistics.mean(lengths)
    assert metrics["rollout/response_len/median"] == statistics.median(lengths)
    assert (metrics["rollout/response_len/min"], metrics["rollout/response_len/max"]) == (1.0, 6.0)
    assert metrics["rollout/truncated_ratio"] == pytest.approx(2 / 6)
    assert metrics["rollout/raw_reward"] == metrics["rollout/rewards"] == pytest.approx(8 / 12)
    assert metrics["rollout/zero_std/count_1.0"] == 2.0


@pytest.mark.parametrize(("lengths", "median"), [([9, 1, 4], 4.0), ([8, 1, 3, 6], 4.5), ([5], 5.0), ([2, 7], 4.5)])
def test_the_median_is_the_middle_or_between_the_two(lengths: list[int], median: float) -> None:
    metrics = sample_metrics("eval/", [Sample(response_length=length) for length in lengths])
    assert metrics["eval/response_len/median"] == median == statistics.median(lengths)


def test_speculative_decoding_is_told_where_it_was_done(make_bench: Make, make_engine: Make, use: Make) -> None:
    async def speculating(request: GenerateRequest) -> GenerateOutput:
        output = await lengthy(request)
        count = len(output.tokens)
        return replace(output, extras=EngineExtras(spec_info=SpecInfo(count, 2 * count, 2, count)))

    bench = make_bench(engine=make_engine(speculating), rewards=[use(uneven)], n=2)
    metrics = asyncio.run(bench.scheduler.collect(0, 6)).metrics
    assert metrics["perf/spec_accept_rate"] == 0.5
    assert metrics["perf/spec_accept_length"] == statistics.mean(range(1, 7)) / 2
    plain = make_bench(engine=make_engine(lengthy), rewards=[use(uneven)], n=2)
    assert not [name for name in asyncio.run(plain.scheduler.collect(0, 2)).metrics if "spec_" in name]


def test_dropped_groups_count_by_reason_and_not_in_the_means(make_bench: Make, make_engine: Make, use: Make) -> None:
    bench = make_bench(engine=make_engine(lengthy), rewards=[use(uneven)], n=2, group_filter=NonzeroStd())
    metrics = asyncio.run(bench.scheduler.collect(0, 2)).metrics
    assert metrics["rollout/dynamic_filter/drop_zero_std_1.0"] == 2.0
    assert metrics["rollout/raw_reward"] == 0.5
    assert metrics["rollout/reward/r"] == pytest.approx(6 / 8)
    assert "rollout/zero_std/count_1.0" not in metrics
