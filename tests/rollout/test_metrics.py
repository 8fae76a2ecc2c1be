"""Metrics of a rollout, under slime's names, over the kept groups."""

import asyncio
import statistics
from dataclasses import replace

import pytest

from slime_core.roles import EngineExtras, FinishReason, GenerateOutput, GenerateRequest, RewardContext
from slime_core.rollout.metrics import RolloutStats, engine_metrics, pass_rates, sample_metrics, turn_metrics
from slime_core.rollout.runner import GroupProgress
from slime_core.rollout.scoring import Execution
from slime_core.sample import Group, GroupId, PrefixCacheInfo, Sample, SpecInfo
from slime_core.score import Score, Verdict
from slime_train.filters import nonzero_std
from tests.rollout.bench import ScriptedEngine, make_bench, reward_use
from tests.tables import table


async def lengthy(request: GenerateRequest) -> GenerateOutput:
    """A response whose length grows with the prompt; truncated from 5 on."""
    length = request.prompt[-1] - 999
    finish = FinishReason.LENGTH if length >= 5 else FinishReason.STOP
    return GenerateOutput([7] * length, [-0.1] * length, finish, 0)


async def uneven(sample: Sample, ctx: RewardContext) -> Verdict:
    """Groups 0 and 1 have equal rewards, 1.0 each; the others differ."""
    return Score(1.0 if (sample.group_index or 0) < 2 or sample.index == 0 else 0.0)


def test_lengths_rewards_and_truncation() -> None:
    bench = make_bench(engine=ScriptedEngine(lengthy), rewards=[reward_use(uneven)], n=2)
    metrics = asyncio.run(bench.scheduler.collect(0, 6)).metrics
    lengths = [length for length in range(1, 7) for _ in range(2)]
    assert metrics["rollout/response_len/mean"] == statistics.mean(lengths)
    assert metrics["rollout/response_len/median"] == statistics.median(lengths)
    assert (metrics["rollout/response_len/min"], metrics["rollout/response_len/max"]) == (1.0, 6.0)
    assert metrics["rollout/truncated_ratio"] == pytest.approx(2 / 6)
    assert metrics["rollout/raw_reward"] == metrics["rollout/rewards"] == pytest.approx(8 / 12)
    assert metrics["rollout/zero_std/count_1.0"] == 2.0
    assert metrics["passrate/pass@1"] == pytest.approx(8 / 12)
    assert metrics["passrate/pass@2"] == 1.0
    assert not [name for name in metrics if name.startswith("multi_turn/")], "nothing but the model spoke"


@table("lengths, median", [([9, 1, 4], 4.0), ([8, 1, 3, 6], 4.5), ([5], 5.0), ([2, 7], 4.5)])
def test_the_median_is_the_middle_or_between_the_two(lengths: list[int], median: float) -> None:
    metrics = sample_metrics("eval/", [Sample(response_length=length) for length in lengths])
    assert metrics["eval/response_len/median"] == median == statistics.median(lengths)


@table(
    "text, repeats",
    [
        ("no " * 4000, True),
        ("no " * 3333, False),  # 9,999 characters are no long text
        ("".join(map(str, range(9000))) + "no " * 4000, True),  # the end counts
        ("no " * 4000 + "".join(map(str, range(9000))), False),
        ("\ud800" * 20_000, True),  # half a pair, as broken bytes decode to
    ],
)
def test_a_long_response_that_repeats_itself_is_counted(text: str, repeats: bool) -> None:
    metrics = sample_metrics("rollout/", [Sample(response=text), Sample(response="4")])
    assert metrics["rollout/repetition_frac"] == (0.5 if repeats else 0.0)


def test_pass_rates_go_up_to_the_largest_power_of_two_that_a_prompt_has_samples_for() -> None:
    rates = pass_rates("passrate/", [[1.0, 0.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0, 0.0]])
    assert rates == {
        "passrate/pass@1": pytest.approx(0.1),
        "passrate/pass@2": pytest.approx(0.2),
        "passrate/pass@4": 0.4,
    }
    assert pass_rates("passrate/", [[1.0], [0.0]]) == {}
    assert pass_rates("passrate/", []) == {}


def test_lengths_are_reported_with_and_without_tool_tokens() -> None:
    """Two turns with 3 tokens of a tool between them, and a sample of one turn."""
    two, one = Sample(metadata={"round_number": 2}), Sample(metadata={"round_number": 1})
    two.append_response_tokens(tokens=[1, 2], log_probs=[-0.1] * 2, weight_version="0")
    two.append_response_tokens(tokens=[7, 8, 9], trainable=False)
    two.append_response_tokens(tokens=[3], log_probs=[-0.1], weight_version="0")
    one.append_response_tokens(tokens=[1, 2], log_probs=[-0.1] * 2, weight_version="0")
    raw, own = (f"multi_turn/{each}_response_length/response_length_" for each in ("raw", "wo_obs"))
    rounds = "multi_turn/multi_turn_metric/round_number_"
    assert turn_metrics([two, one]) == {
        f"{raw}mean": 4.0,
        f"{raw}max": 6.0,
        f"{raw}min": 2.0,
        f"{own}mean": 2.5,
        f"{own}max": 3.0,
        f"{own}min": 2.0,
        f"{rounds}mean": 1.5,
        f"{rounds}max": 2.0,
        f"{rounds}min": 1.0,
    }
    assert turn_metrics([Sample(response_length=3)]) == {}


def test_cache_hits_are_reported_if_an_engine_reports_them() -> None:
    samples = [Sample(prefix_cache_info=PrefixCacheInfo(30, 40)), Sample(prefix_cache_info=PrefixCacheInfo(0, 60))]
    assert engine_metrics(samples) == {"perf/prefix_cache_hit_rate": 0.3, "perf/avg_cached_tokens_per_sample": 15.0}
    assert engine_metrics([Sample()]) == {}


def in_tools(seconds: float) -> Execution:
    execution = Execution([Sample()])
    execution.non_generation_s = seconds
    return execution


def test_time_in_tools_is_reported_if_there_was_any() -> None:
    name = "perf/non_generation_time/"
    expected = {f"{name}mean": 2.0, f"{name}max": 5.0, f"{name}min": 0.0, f"{name}median": 1.0}
    for seconds, found in (([0.0, 1.0, 5.0], expected), ([0.0], {})):
        stats, group = RolloutStats("rollout 0"), Group(GroupId("x", 0, 0, 0), [])
        stats.add_samples([GroupProgress(group, dict(enumerate(map(in_tools, seconds))))])
        assert stats.metrics() == found


def test_speculative_decoding_is_reported_if_it_was_used() -> None:
    async def speculating(request: GenerateRequest) -> GenerateOutput:
        output = await lengthy(request)
        count = len(output.tokens)
        return replace(output, extras=EngineExtras(spec_info=SpecInfo(count, 2 * count, 2, count)))

    bench = make_bench(engine=ScriptedEngine(speculating), rewards=[reward_use(uneven)], n=2)
    metrics = asyncio.run(bench.scheduler.collect(0, 6)).metrics
    assert metrics["perf/spec_accept_rate"] == 0.5
    assert metrics["perf/spec_accept_length"] == statistics.mean(range(1, 7)) / 2
    plain = make_bench(engine=ScriptedEngine(lengthy), rewards=[reward_use(uneven)], n=2)
    assert not [name for name in asyncio.run(plain.scheduler.collect(0, 2)).metrics if "spec_" in name]


def test_dropped_groups_count_by_reason_and_not_in_the_means() -> None:
    bench = make_bench(engine=ScriptedEngine(lengthy), rewards=[reward_use(uneven)], n=2, group_filter=nonzero_std)
    metrics = asyncio.run(bench.scheduler.collect(0, 2)).metrics
    assert metrics["rollout/dynamic_filter/drop_zero_std_1.0"] == 2.0
    assert metrics["rollout/raw_reward"] == 0.5
    assert metrics["rollout/reward/r"] == pytest.approx(6 / 8)
    assert "rollout/zero_std/count_1.0" not in metrics
