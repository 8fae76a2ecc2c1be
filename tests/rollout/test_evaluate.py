"""evaluate: several data sets at once, the same answers at any time, failures never scored 0."""

import asyncio
import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import RolloutError
from slime_core.events import SamplesDone
from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, RewardContext, SamplingParams
from slime_core.rollout import EvalResult, EvalSet, evaluate
from slime_core.rollout.metrics import pass_at_k
from slime_core.sample import Group, GroupId, Sample
from slime_core.score import Score, Unscored, Verdict
from tests.rollout.bench import Bench, ScriptedEngine, make_bench, output_of, reward_use


def eval_set(name: str, prompts: int, n: int = 1) -> EvalSet:
    groups = [
        Group(
            GroupId(f"eval:{name}", 0, row, row),
            [Sample(group_index=row, index=index, rollout_id=row * n + index, prompt=str(row)) for index in range(n)],
        )
        for row in range(prompts)
    ]
    return EvalSet(name, groups, SamplingParams(4, temperature=0.0))


def run(bench: Bench, *sets: EvalSet) -> EvalResult:
    return asyncio.run(evaluate(bench.scheduler, sets, rollout_id=9))


def test_each_data_set_has_its_metrics() -> None:
    async def answer(request: GenerateRequest) -> GenerateOutput:
        return output_of(request, FinishReason.LENGTH if request.prompt[0] == 1000 else FinishReason.STOP)

    async def first_half(sample: Sample, ctx: RewardContext) -> Verdict:
        assert (ctx.evaluation, ctx.rollout_id) == (True, 9)
        return Score(float(sample.prompt in ("0", "1")))

    bench = make_bench(engine=ScriptedEngine(answer), rewards=[reward_use(first_half)])
    result = run(bench, eval_set("small", 2), eval_set("large", 4))
    assert result.metrics["eval/small"] == 1.0
    assert result.metrics["eval/large"] == 0.5
    assert result.metrics["eval/small-truncated_ratio"] == 0.5
    assert result.metrics["eval/large-truncated_ratio"] == 0.25
    assert result.metrics["eval/large/response_len/mean"] == 2.0
    assert not any("pass@" in name for name in result.metrics)
    assert {name: len(samples) for name, samples in result.samples.items()} == {"small": 2, "large": 4}
    assert {request.sampling.temperature for request in bench.engine.requests} == {0.0}


def test_training_state_is_not_touched_and_answers_repeat() -> None:
    alone, between = make_bench(), make_bench()
    tests = eval_set("tests", 5, n=2)
    first = run(between, tests)
    trained = asyncio.run(between.scheduler.collect(0, 3))
    again = run(between, tests)
    assert [sample.to_dict() for sample in again.samples["tests"]] == [s.to_dict() for s in first.samples["tests"]]
    assert again.metrics == first.metrics
    expected = asyncio.run(alone.scheduler.collect(0, 3))
    assert [group.to_dict() for group in trained.kept] == [group.to_dict() for group in expected.kept]
    assert between.source.drawn == 3


def test_evaluation_shares_the_slots() -> None:
    bench = make_bench(engine=ScriptedEngine(jitter=3), max_concurrency=4)
    run(bench, eval_set("a", 8), eval_set("b", 8))
    assert bench.engine.most_at_once == 4


def test_failed_samples_are_counted_and_left_out_of_the_mean() -> None:
    async def sometimes(sample: Sample, ctx: RewardContext) -> Verdict:
        return Unscored("?") if sample.prompt == "2" else Score(1.0)

    result = run(make_bench(rewards=[reward_use(sometimes)]), eval_set("tests", 4))
    assert (result.metrics["eval/tests"], result.metrics["eval/tests/failed"]) == (1.0, 1.0)


def test_too_many_failures_stop_it_by_name() -> None:
    async def never(sample: Sample, ctx: RewardContext) -> Verdict:
        return Unscored("no judge")

    bench = make_bench(rewards=[reward_use(never)], max_error_rate=0.5)
    with pytest.raises(RolloutError, match="evaluation of tests: 2 of 3 samples failed"):
        run(bench, eval_set("tests", 3))


def test_one_event_a_data_set() -> None:
    bench = make_bench()
    result = run(bench, eval_set("a", 2), eval_set("b", 1))
    assert bench.events == [SamplesDone(9, result.samples[name], evaluation=True) for name in ("a", "b")]


def test_several_samples_give_pass_at_powers_of_two() -> None:
    result = run(make_bench(), eval_set("tests", 3, n=4))
    assert {name: value for name, value in result.metrics.items() if "pass@" in name} == {
        "eval/tests-pass@1": 0.5,
        "eval/tests-pass@2": pytest.approx(5 / 6),
        "eval/tests-pass@4": 1.0,
    }


@given(
    rewards=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=6), min_size=1, max_size=4),
    k=st.integers(1, 6),
)
def test_pass_at_k_is_the_share_of_k_subsets_that_hold_a_pass(rewards: list[list[float]], k: int) -> None:
    usable = [each for each in rewards if len(each) >= k]
    if not usable:
        return
    shares = [sum(1.0 in chosen for chosen in combinations(each, k)) / math.comb(len(each), k) for each in usable]
    assert pass_at_k(rewards, k) == pytest.approx(sum(shares) / len(shares))
