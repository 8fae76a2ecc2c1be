"""One sample from prompt to reward: a plugin's error fails that sample alone, and is counted."""

import asyncio
import logging

import pytest

from slime_core.errors import ConfigError, RolloutError, WorkerError
from slime_core.events import SamplesDone
from slime_core.roles import (
    FinishReason,
    GenerateContext,
    GenerateOutput,
    GenerateRequest,
    Reward,
    RewardContext,
)
from slime_core.rollout import Environment, RewardOnError, SingleTurn, UsedReward
from slime_core.sample import Message, Sample, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_core.seeds import derive_seed
from tests.rollout.bench import Bench, ScriptedEngine, make_bench, output_of, reward_use
from tests.tables import table


async def one(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(1.0, {"length": 2.0})


async def abstain(sample: Sample, ctx: RewardContext) -> Verdict:
    return NotApplicable()


async def unscored(sample: Sample, ctx: RewardContext) -> Verdict:
    return Unscored("no gold answer")


async def crash(sample: Sample, ctx: RewardContext) -> Verdict:
    raise ZeroDivisionError("division by zero")


async def hang(sample: Sample, ctx: RewardContext) -> Verdict:
    await asyncio.Event().wait()
    raise AssertionError("not reached")


async def cancel_itself(sample: Sample, ctx: RewardContext) -> Verdict:
    raise asyncio.CancelledError


async def cancel_its_task(sample: Sample, ctx: RewardContext) -> Verdict:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return Score(1.0)


async def at_length(sample: Sample, ctx: RewardContext) -> Verdict:
    return Unscored("x" * (8 << 20))


async def bare_text(sample: Sample, ctx: RewardContext) -> str:
    return "1.0"


async def without_a_limit(sample: Sample, ctx: RewardContext) -> Verdict:
    for _ in range(3):
        await asyncio.sleep(0)
    return Score(0.5)


def only_sample(bench: Bench) -> Sample:
    """The first sample of a rollout of one group."""
    return asyncio.run(bench.scheduler.collect(0, 1)).kept[0].samples[0]  # type: ignore[no-any-return]


def test_a_response_is_recorded_with_all_it_needs() -> None:
    bench = make_bench(n=1)
    sample = only_sample(bench)
    request = bench.engine.requests[0]
    first = 3 + request.seed % 90
    assert request.prompt == (1000,)
    assert list(sample.tokens) == [1000, first, 2]
    assert list(sample.loss_mask or ()) == [1, 1]
    assert list(sample.rollout_log_probs or ()) == pytest.approx([-first / 100, -0.5])
    assert (sample.response, sample.response_length, sample.weight_versions) == (f"{first} 2", 2, ["4"])
    assert sample.status is Status.COMPLETED
    assert list(sample.problems()) == []


def test_a_cut_response_is_truncated() -> None:
    async def answer(request: GenerateRequest) -> GenerateOutput:
        return output_of(request, FinishReason.LENGTH)

    assert only_sample(make_bench(engine=ScriptedEngine(answer), n=1)).status is Status.TRUNCATED


def test_the_prompt_of_a_group_is_encoded_once() -> None:
    bench = make_bench(n=8)
    asyncio.run(bench.scheduler.collect(0, 3))
    assert bench.tokenizer.encoded == 3


def test_messages_are_rendered_by_the_chat_template() -> None:
    bench = make_bench(n=1)
    messages: list[Message] = [{"role": "user", "content": "17"}]

    async def draw(count: int) -> object:
        groups = [bench.source.next_group() for _ in range(count)]
        groups[0].samples[0].prompt = messages
        return groups

    bench.source.draw = draw
    assert only_sample(bench).tokens[0] == 1017


def test_several_turns_have_seeds_of_their_own() -> None:
    class TwoTurns(SingleTurn):
        async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
            await super().__call__(sample, ctx)
            sample.append_response_tokens(tokens=[50], trainable=False, text="tool")
            out = await ctx.generate(sample.tokens, ctx.sampling)
            sample.append_response_tokens(
                tokens=out.tokens, log_probs=out.log_probs, weight_version=str(out.weight_version)
            )
            return [sample]

    bench = make_bench(generator=TwoTurns(), n=1)
    sample = only_sample(bench)
    assert [request.seed for request in bench.engine.requests] == [
        derive_seed(5, "numbers", 0, 0, 0, 0, turn, 0) for turn in (0, 1)
    ]
    assert list(sample.loss_mask or ()) == [1, 1, 0, 1, 1]


def test_rewards_add_up_by_weight() -> None:
    rewards = [
        reward_use(one, "a", 0.8),
        reward_use(without_a_limit, "b", 0.4),
        reward_use(abstain, "c", 9.0),
        reward_use(crash, "d", 0.0),
    ]
    bench = make_bench(rewards=rewards, n=2)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    assert [sample.reward for sample in result.kept[0].samples] == [pytest.approx(1.0)] * 2
    assert result.metrics["rollout/reward/a"] == 1.0
    assert result.metrics["rollout/reward/a/length"] == 2.0
    assert result.metrics["rollout/reward/b"] == 0.5
    assert result.metrics["rollout/reward/c/not_applicable"] == 2.0


class ScoresItself(SingleTurn):
    """Scores its samples, with a part."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        made = await super().__call__(sample, ctx)
        made[0].reward = {"score": 0.75, "steps": 4.0}
        return made


def own_use(weight: float) -> UsedReward[Reward]:
    return UsedReward("environment", "tests", Environment(), weight, True, reads_own=True)


def test_a_reward_gets_its_context_and_seed(caplog: pytest.LogCaptureFixture) -> None:
    contexts = {}

    async def listens(sample: Sample, ctx: RewardContext) -> Verdict:
        contexts[sample.group_index, sample.index] = ctx
        return Score(1.0)

    asyncio.run(make_bench(rewards=[reward_use(listens)], n=2).scheduler.collect(7, 2))
    assert contexts == {
        (draw, index): RewardContext(7, False, derive_seed(5, "numbers", 0, draw, draw, index, "reward"))
        for draw in (0, 1)
        for index in (0, 1)
    }
    assert not caplog.records


def test_a_generator_s_score_is_weighed_with_the_rewards() -> None:
    bench = make_bench(generator=ScoresItself(), rewards=[reward_use(one, "a", 0.5), own_use(2.0)], n=2)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    assert result.kept[0].rewards == [2.0, 2.0]
    assert result.metrics["rollout/reward/environment"] == 0.75
    assert result.metrics["rollout/reward/environment/steps"] == 4.0


def test_a_generator_s_score_without_a_weight_is_measured_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    bench = make_bench(generator=ScoresItself(), rewards=[reward_use(one, "a")], n=2)
    with caplog.at_level(logging.WARNING):
        result = asyncio.run(bench.scheduler.collect(0, 2))
    assert result.kept[0].rewards == [1.0, 1.0]
    assert result.metrics["rollout/reward/environment"] == 0.75
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "generator scripted of plugin tests scores samples itself, without effect"
    ]


@table(
    "reward, reason",
    [
        (crash, "r_ZeroDivisionError"),
        (hang, "r_timeout"),
        (unscored, "r_no_gold_answer"),
        (cancel_itself, "r_cancelled"),
        (cancel_its_task, "r_cancelled"),
        (bare_text, "r_contract"),
        (at_length, "r_contract"),
        (abstain, "no_reward_applies"),
    ],
)
def test_a_failing_reward_costs_its_sample_alone(reward: object, reason: str) -> None:
    async def sometimes(sample: Sample, ctx: RewardContext) -> Verdict:
        return await (reward if sample.index == 1 else one)(sample, ctx)  # type: ignore[operator, no-any-return]

    bench = make_bench(rewards=[reward_use(sometimes, timeout_s=0.01)], n=4)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    assert [sample.index for sample in result.kept[0].samples] == [0, 2, 3]
    assert result.metrics[f"rollout/errors/{reason}"] == 1.0


class Failing(SingleTurn):
    """Fails sample 1 of each group in the given way."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        made = await super().__call__(sample, ctx)
        if sample.index != 1:
            return made
        match self.way:
            case "crash":
                sample.metadata["notes"].append("half done")  # type: ignore[union-attr]
                raise ValueError("the tool broke")
            case "hang":
                await asyncio.Event().wait()
            case "cancel":
                raise asyncio.CancelledError
            case "set failed":
                sample.status = Status.FAILED
            case "no list":
                return sample  # type: ignore[return-value]
            case "bad lengths":
                sample.loss_mask = [1]
        return made


def test_the_log_shows_the_plugins_own_lines_and_none_of_the_cores(caplog: pytest.LogCaptureFixture) -> None:
    bench = make_bench(rewards=[reward_use(crash)], max_error_rate=1.0)
    with caplog.at_level(logging.WARNING), pytest.raises(RolloutError):
        asyncio.run(bench.scheduler.collect(0, 1))
    assert "failed (r_ZeroDivisionError): " in caplog.text
    assert "in crash" in caplog.text
    assert "slime_core/" not in caplog.text


@table(
    "way, reason, policy",
    [
        (way, reason, policy)
        for way, reason in [
            ("crash", "generator_ValueError"),
            ("hang", "generator_timeout"),
            ("cancel", "generator_cancelled"),
            ("set failed", "generator_failed"),
            ("no list", "generator_contract"),
            ("bad lengths", "generator_contract"),
        ]
        for policy in [RewardOnError.DROP, RewardOnError.MASK]
    ],
)
def test_a_failing_generator_costs_its_sample_alone(way: str, reason: str, policy: RewardOnError) -> None:
    timeout_s = 0.1 if way == "hang" else 600.0
    bench = make_bench(generator=Failing(way), n=3, sample_timeout_s=timeout_s, reward_on_error=policy)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    samples = result.kept[0].samples
    assert result.metrics[f"rollout/errors/{reason}"] == 1.0
    assert result.kept[0].rewards == [1.0, 1.0]
    if policy is RewardOnError.DROP:
        assert [sample.index for sample in samples] == [0, 2]
    else:
        failed = samples[1]
        assert (failed.status, failed.reward, failed.remove_sample) == (Status.FAILED, None, True)
        assert failed.metadata == {"notes": []}


@table("error", [ValueError("the tool broke"), WorkerError("the engines are gone"), ConfigError("parser = 'plain'")])
def test_an_exception_group_fails_a_sample_by_its_first_error(error: Exception) -> None:
    async def grouped(sample: Sample, ctx: GenerateContext) -> list[Sample]:
        async def fails() -> None:
            raise error

        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
        raise AssertionError("not reached")

    bench = make_bench(generator=grouped, n=2, max_filter_waves=1)
    if not isinstance(error, ValueError) or isinstance(error, ConfigError):
        with pytest.raises(type(error), match=str(error)):
            asyncio.run(bench.scheduler.collect(0, 1))
        return
    with pytest.raises(RolloutError):
        asyncio.run(bench.scheduler.collect(0, 1))
    [dropped] = [each for each in bench.events if isinstance(each, SamplesDone)]
    assert {sample.failure_reason for sample in dropped.samples} == {"generator_ValueError"}


def test_the_policy_can_be_to_raise() -> None:
    bench = make_bench(rewards=[reward_use(crash)], reward_on_error=RewardOnError.RAISE)
    with pytest.raises(
        RolloutError, match=r"sample 0 of group 0 failed \(r_ZeroDivisionError\): division by zero"
    ) as caught:
        asyncio.run(bench.scheduler.collect(0, 1))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(bench.source.back) == 1


@table("policy", [RewardOnError.DROP, RewardOnError.MASK])
def test_a_group_left_with_one_sample_is_dropped(policy: RewardOnError) -> None:
    async def sometimes(sample: Sample, ctx: RewardContext) -> Verdict:
        return Unscored("?") if sample.index and sample.group_index == 0 else Score(1.0)

    bench = make_bench(rewards=[reward_use(sometimes)], n=2, reward_on_error=policy)
    result = asyncio.run(bench.scheduler.collect(0, 2))
    assert [group.id.draw for group in result.kept] == [1, 2]
    assert {group.draw: reason for group, reason in result.reasons.items()} == {0: "unscored"}


def test_a_rollout_in_which_too_much_fails_stops_with_the_commonest_reasons() -> None:
    async def sometimes(sample: Sample, ctx: RewardContext) -> Verdict:
        if sample.index == 0:
            raise ValueError("bad answer")
        return Score(1.0) if sample.index != 1 or sample.group_index else Unscored("late")

    bench = make_bench(rewards=[reward_use(sometimes)], n=4, max_error_rate=0.25)
    says = r"(?s)rollout 3: 3 of 8 samples failed.* allows 2\. .*:\n  2 x r_ValueError: bad answer\n  1 x r_late: late"
    with pytest.raises(RolloutError, match=says):
        asyncio.run(bench.scheduler.collect(3, 2))
    assert [group.id.draw for group in bench.source.back] == [0, 1]
