"""What adds up to a sample's reward, for one sample, an execution and a group, and what rows choose."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import ContractError, RolloutError
from slime_core.processes import OnLoop
from slime_core.roles import GenerateContext, GroupReward, RewardContext, SamplingParams
from slime_core.rollout import (
    EvalSet,
    RewardOnError,
    Scoring,
    SingleTurn,
    UsedGenerator,
    UsedReward,
    evaluate,
    execution_rewards,
    executions,
    main_of,
)
from slime_core.rollout.scoring import MAX_REASON, Execution, Failure, ScoredSample, countable
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_core.seeds import derive_seed
from slime_core.stats import CallStats
from slime_testing.samples import make_sample
from tests.rollout.bench import Bench, make_bench, reward_use
from tests.rollout.test_runner import own_use
from tests.tables import table


async def never_called(sample: object, ctx: object) -> Score:
    raise AssertionError("no reward is asked")


def closed(answers: Sequence[tuple[str, float, object]], keeps_parts: bool = False, **fields: object) -> ScoredSample:
    """The closed score of a sample with these fields after such answers: name, weight and verdict of each reward."""
    scored = ScoredSample(replace(make_sample(reward=1.0), **fields), keeps_parts)  # type: ignore[arg-type]
    for name, weight, answer in answers:
        scored.add("reward", reward_use(never_called, name, weight), answer)  # type: ignore[arg-type]
    return scored.close()


UNSCORED = "no_reward_applies", "none of a, b scored it"
GAVE_UP = "the generator set Status.FAILED"
FAILED, TRACE = Status.FAILED, "Traceback ...\nKeyError: 'nope'\n"


@table(
    "answers, fields, reward, failure",
    [
        ([("a", 2.0, Score(0.5)), ("b", -1.0, Score(3.0))], {}, -2.0, None),
        (
            [("a", 0.0, Score(1.0)), ("b", 1.0, NotApplicable())],
            {},
            None,
            ("no_reward_applies", "none of a, b scored it"),
        ),
        ([("a", 1.0, Score(1.0)), ("b", 1.0, Unscored("no  answer", detail="x"))], {}, None, ("b_no_answer", "x")),
        ([("a", 1.0, Score(1.0)), ("b", -1.0, Unscored("no answer"))], {}, None, ("b_no_answer", "no answer")),
        ([("a", 1.0, Score(1.0)), ("b", 0.0, Unscored("no answer"))], {}, 1.0, None),
        ([("a", 1.0, Failure("timeout", "60 s")), ("b", 1.0, Unscored("busy"))], {}, None, ("timeout", "60 s")),
        ([], {"status": FAILED, "failure_reason": "no room"}, None, ("no_room", f"{GAVE_UP} (no room)")),
        ([], {"status": FAILED, "failure_reason": ""}, None, ("generator_failed", f"{GAVE_UP} (generator_failed)")),
        (
            [],
            {"status": FAILED, "failure_reason": "agent_KeyError", "metadata": {"failure_detail": TRACE}},
            None,
            ("agent_KeyError", f"{GAVE_UP} (agent_KeyError): {TRACE.strip()}"),
        ),
        ([], {"status": Status.ABORTED}, None, None),
    ],
)
def test_answers_add_up_by_weight_and_the_first_failure_with_a_weight_counts(
    answers: list[tuple[str, float, object]],
    fields: dict[str, object],
    reward: float | None,
    failure: tuple[str, str] | None,
) -> None:
    found = closed(answers, **fields)
    assert (found.sample.reward, found.failure) == (reward, failure and Failure(*failure))
    assert found.is_scorable == (not fields)
    assert found.sample.failure_reason == (failure and failure[0])
    if failure is not None:
        assert found.sample.status is Status.FAILED
    assert list(found.verdicts) == [f"reward/{name}" for name, *_ in answers]


def test_parts_are_kept_beside_the_sum_for_who_reads_them() -> None:
    answers = [("a", 2.0, Score(0.5, components={"style": 0.25})), ("b", 0.0, NotApplicable())]
    assert closed(answers, keeps_parts=True).sample.reward == {"score": 1.0, "a": 0.5, "a/style": 0.25, "b": 0.0}


@table(
    "status, says", [(Status.COMPLETED, "An agent returns a number"), (Status.TRUNCATED, "Return a score, such as 0.0")]
)
def test_a_sample_without_a_score_of_its_generators_says_what_to_return(status: Status, says: str) -> None:
    failure = closed([("environment", 1.0, NotApplicable())], status=status).failure
    assert failure is not None
    assert failure.reason == "no_reward_applies"
    assert failure.detail.startswith("none of environment scored it; environment is the generator's own score, and")
    assert says in failure.detail


def test_a_long_reason_is_cut_and_keeps_what_it_says_of_asking_again() -> None:
    long, failed = Unscored("r" * 300, retryable=True, detail="d"), Failure("crash", "trace", retryable=True)
    assert closed([("a", 0.0, long), ("b", 0.0, failed), ("c", 1.0, Score(1.0))]).verdicts == {
        "reward/a": Unscored("r" * MAX_REASON, retryable=True, detail="d"),
        "reward/b": Unscored("crash", retryable=True, detail="trace"),
        "reward/c": Score(1.0),
    }


def test_siblings_get_the_main_sample_s_verdict_which_counts_once() -> None:
    samples = [make_sample(index=0), make_sample(index=1, reward=0.25, metadata={"main": True}), make_sample(index=2)]
    samples[2].reward = 0.75
    execution = Execution(samples, keeps_parts=False)
    assert execution.main.sample is samples[1]
    assert [sample.reward for sample in samples] == [0.25, 0.25, 0.75]  # until they are closed
    execution.add("reward", reward_use(never_called, "a"), Score(1.0))
    closed = execution.close()
    assert [each.sample.reward for each in closed] == [1.0, 1.0, 1.0]
    assert [dict(each.verdicts) for each in closed] == [{}, {"reward/a": Score(1.0)}, {}]


def test_a_reason_is_one_short_word_in_a_metric() -> None:
    assert countable(" no \n answer\tat all ") == "no_answer_at_all"
    assert len(countable("r" * 300)) == MAX_REASON


# What one execution fans out into is one success or one failure, scored once or sample by sample.


class FansOut(SingleTurn):
    """Three samples of each execution; the marked one, if any, is the main one; some may fail or be scored."""

    def __init__(
        self, marked: int | None = None, failed: tuple[int, ...] = (), own: dict[int, float] | None = None
    ) -> None:
        super().__init__()
        self.marked, self.failed, self.own = marked, failed, own or {}

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        [made] = await super().__call__(sample, ctx)
        return [self._copy(made, place) for place in range(3)]

    def _copy(self, made: Sample, place: int) -> Sample:
        failed = place in self.failed and made.index == 0
        return replace(
            made,
            metadata={"place": place} | ({"main": True} if place == self.marked else {}),
            status=Status.FAILED if failed else made.status,
            failure_reason="tool broke" if failed else None,
            reward=self.own.get(place),
        )


class Asked:
    """Scores the place of a sample, and remembers which it was asked about."""

    def __init__(self) -> None:
        self.places: list[object] = []

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        self.places.append(sample.metadata["place"])
        return Score(float(sample.metadata["place"]))  # type: ignore[arg-type]


@table("marked, asked", [(None, 2), (0, 0), (1, 1)])
def test_the_main_sample_is_asked_about_and_all_have_the_answer(marked: int | None, asked: int) -> None:
    reward = Asked()
    bench = make_bench(generator=FansOut(marked), rewards=[reward_use(reward)], n=2)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    assert reward.places == [asked, asked]
    assert result.kept[0].rewards == [float(asked)] * 6
    assert result.metrics["rollout/raw_reward"] == result.metrics["rollout/reward/r"] == asked


def test_a_reward_may_ask_for_every_sample() -> None:
    reward = Asked()
    each = replace(reward_use(reward), each_sample=True)
    result = asyncio.run(make_bench(generator=FansOut(1), rewards=[each], n=1).scheduler.collect(0, 1))
    assert reward.places == [0, 1, 2]
    assert result.kept[0].rewards == [0.0, 1.0, 2.0]
    assert result.metrics["rollout/raw_reward"] == 1.0, "the main sample's"
    assert result.metrics["rollout/reward/r"] == 1.0, "the mean of all verdicts"


def test_a_sibling_that_failed_costs_its_own_tokens_and_one_error() -> None:
    bench = make_bench(generator=FansOut(failed=(0, 1)), rewards=[reward_use(Asked())], n=2)
    result = asyncio.run(bench.scheduler.collect(0, 1))
    assert [sample.metadata["place"] for sample in result.kept[0].samples] == [2, 0, 1, 2]
    assert result.metrics["rollout/errors/tool_broke"] == 1.0


def test_a_main_sample_that_failed_costs_its_siblings() -> None:
    reward = Asked()
    bench = make_bench(
        generator=FansOut(failed=(2,)), rewards=[reward_use(reward)], n=3, reward_on_error=RewardOnError.MASK
    )
    result = asyncio.run(bench.scheduler.collect(0, 1))
    lost = result.kept[0].samples[:3]
    assert [(each.status, each.failure_reason, each.reward) for each in lost] == [
        (Status.FAILED, "tool_broke", None)
    ] * 3
    assert all(each.remove_sample and each.response_length == 2 for each in lost), "and they keep their tokens"
    assert reward.places == [2, 2]
    assert result.metrics["rollout/errors/tool_broke"] == 1.0


def test_a_group_is_kept_for_its_executions_not_for_their_samples() -> None:
    bench = make_bench(generator=FansOut(failed=(2,)), rewards=[reward_use(Asked())], n=2, max_filter_waves=1)
    with pytest.raises(RolloutError, match="1 x unscored"):
        asyncio.run(bench.scheduler.collect(0, 1))


@table("own, rewards", [({2: 0.5}, [0.5, 0.5, 0.5]), ({0: 0.25, 2: 0.5}, [0.25, 0.5, 0.5])])
def test_siblings_without_a_score_of_their_own_have_the_main_ones(own: dict[int, float], rewards: list[float]) -> None:
    bench = make_bench(generator=FansOut(own=own), rewards=[own_use(1.0)], n=1)
    assert asyncio.run(bench.scheduler.collect(0, 1)).kept[0].rewards == rewards


def test_an_evaluation_counts_executions() -> None:
    async def first_passes(sample: Sample, ctx: RewardContext) -> Verdict:
        return Score(float(sample.index == 0))

    groups = [
        Group(GroupId("eval:x", 0, row, row), [Sample(None, index, 2 * row + index, str(row)) for index in range(2)])
        for row in range(2)
    ]
    for group in groups:
        for sample in group.samples:
            sample.group_index = group.id.row
    bench = make_bench(generator=FansOut(), rewards=[reward_use(first_passes)])
    metrics = asyncio.run(evaluate(bench.scheduler, [EvalSet("x", groups, SamplingParams(4))], rollout_id=0)).metrics
    assert metrics["eval/x"] == metrics["eval/x-pass@1"] == 0.5
    assert metrics["eval/x-pass@2"] == 1.0
    assert not any("pass@4" in name for name in metrics)


@given(numbers=st.lists(st.none() | st.integers(0, 3), max_size=12), marks=st.sets(st.integers(0, 11)))
def test_every_sample_is_in_one_execution_and_in_order(numbers: list[int | None], marks: set[int]) -> None:
    samples = [
        Sample(index=place, rollout_id=number, reward=float(place), metadata={"main": True} if place in marks else {})
        for place, number in enumerate(numbers)
    ]
    found = executions(samples)
    assert sorted(sample.index or 0 for siblings in found for sample in siblings) == list(range(len(samples)))
    for siblings in found:
        assert [sample.index for sample in siblings] == sorted(sample.index or 0 for sample in siblings)
        assert len(siblings) == 1 or len({sample.rollout_id for sample in siblings}) == 1
        marked = [sample for sample in siblings if sample.metadata]
        assert main_of(siblings) is (marked or siblings[-1:])[0]
    assert execution_rewards(samples) == [float(main_of(siblings).index or 0) for siblings in found]


# Group rewards: asked once all samples of a group are finished, summed with the others, and failing as one.


def group_use(
    reward: GroupReward, name: str = "g", weight: float = 1.0, timeout_s: float = 5.0
) -> UsedReward[GroupReward]:
    calls = CallStats("group_reward", name, "tests")
    return UsedReward(name, "tests", OnLoop(reward, timeout_s=timeout_s, max_concurrency=None, calls=calls), weight)


async def by_place(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Score(float(place), {"size": float(len(samples))}) for place in range(len(samples))]


async def hang(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    await asyncio.Event().wait()
    raise AssertionError("not reached")


async def crash(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    raise ZeroDivisionError("division by zero")


async def too_few(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Score(1.0)]


async def partly(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Unscored("a tie"), *[Score(1.0)] * (len(samples) - 2), NotApplicable()]


async def constant(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(10.0)


def collect(bench: Bench, want: int = 1) -> tuple[list[list[float]], dict[str, float]]:
    result = asyncio.run(bench.scheduler.collect(0, want))
    return [group.rewards for group in result.kept], dict(result.metrics)


def test_it_is_summed_by_weight_with_the_rewards() -> None:
    bench = make_bench(rewards=[reward_use(constant)], group_rewards=[group_use(by_place, weight=0.5)], n=3)
    rewards, metrics = collect(bench, want=2)
    assert rewards == [[10.0, 10.5, 11.0]] * 2
    assert metrics["rollout/reward/r"] == 10.0
    assert metrics["rollout/group_reward/g"] == 1.0
    assert metrics["rollout/group_reward/g/size"] == 3.0


@table(
    "first, calls",
    [
        (Unscored("busy", retryable=True), 2),
        (Unscored("busy"), 1),
        (TimeoutError(), 2),
        (RuntimeError("down"), 1),
    ],
)
def test_a_retryable_answer_is_retried_once_for_the_whole_group(first: Unscored | Exception, calls: int) -> None:
    asked: list[int] = []

    async def busy_at_first(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        asked.append(len(samples))
        if len(asked) == 1 and isinstance(first, Exception):
            raise first
        return [first if len(asked) == 1 else Score(2.0), *[Score(2.0)] * (len(samples) - 1)]  # type: ignore[list-item]

    bench = make_bench(rewards=[], group_rewards=[group_use(busy_at_first)], n=3, max_filter_waves=2)
    kept, _ = collect(bench)
    assert asked[:calls] == [3] * calls
    assert kept == [[2.0] * (2 if first == Unscored("busy") else 3)]
    assert bench.source.drawn == (2 if isinstance(first, RuntimeError) else 1), "only a failed group is drawn again"


def test_it_is_enough_alone_and_weight_zero_only_measures() -> None:
    alone = make_bench(rewards=[], group_rewards=[group_use(by_place), group_use(crash, "measure", 0.0)], n=2)
    rewards, metrics = collect(alone)
    assert rewards == [[0.0, 1.0]]
    assert "rollout/group_reward/measure" not in metrics
    assert not any(name.startswith("rollout/errors") for name in metrics)


@table(
    "each_sample, shown, scored",
    [
        (False, [0, 1], [0.0] * 3 + [1.0] * 3),
        (True, [0, 0, 0, 1, 1, 1], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_it_sees_one_sample_of_each_execution_or_all(each_sample: bool, shown: list[int], scored: list[float]) -> None:
    seen: list[list[int | None]] = []

    async def look(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        assert all(sample.status is Status.COMPLETED for sample in samples)
        seen.append([sample.rollout_id for sample in samples])
        return [Score(float(place)) for place in range(len(samples))]

    use = replace(group_use(look), each_sample=each_sample)
    rewards, metrics = collect(make_bench(rewards=[], group_rewards=[use], generator=FansOut(), n=2))
    assert seen == [shown]
    assert rewards == [scored]
    assert metrics["rollout/group_reward/g"] == sum(range(len(shown))) / len(shown)


def test_a_group_reward_gets_its_context_and_seed() -> None:
    contexts = []

    async def look(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
        contexts.append(ctx)
        return [Score(0.0)] * len(samples)

    asyncio.run(make_bench(rewards=[], group_rewards=[group_use(look)]).scheduler.collect(3, 1))
    assert contexts == [RewardContext(3, False, derive_seed(5, "numbers", 0, 0, 0, "group_reward"))]


@table(
    "reward, reason",
    [
        (group_use(hang, timeout_s=0.01), "g_timeout"),
        (group_use(crash), "g_ZeroDivisionError"),
        (group_use(too_few), "g_contract"),
    ],
)
def test_its_failure_is_every_samples(reward: UsedReward[GroupReward], reason: str) -> None:
    bench = make_bench(rewards=[reward_use(constant)], group_rewards=[reward], reward_on_error=RewardOnError.MASK)

    async def run() -> None:
        with pytest.raises(RolloutError, match="2 waves"):
            await bench.scheduler.collect(0, 1)

    bench.scheduler.policy = replace(bench.scheduler.policy, max_filter_waves=2)
    asyncio.run(run())
    dropped = bench.events[-1]
    assert set(dropped.dropped.values()) == {"unscored"}
    [*samples] = bench.events[-2].samples
    assert [(sample.reward, sample.status, sample.remove_sample) for sample in samples] == [
        (None, Status.FAILED, True)
    ] * 2


def test_one_verdict_of_many_may_fail() -> None:
    bench = make_bench(rewards=[reward_use(constant)], group_rewards=[group_use(partly)], n=4)
    rewards, metrics = collect(bench)
    assert rewards == [[11.0, 11.0, 10.0]]
    assert metrics["rollout/errors/g_a_tie"] == 1.0
    assert metrics["rollout/group_reward/g/not_applicable"] == 1.0


def test_samples_that_failed_are_not_shown_to_it() -> None:
    async def first_fails(sample: Sample, ctx: GenerateContext) -> list[Sample]:
        if sample.index == 0:
            raise OSError("no tool")
        return await SingleTurn()(sample, ctx)

    rewards, metrics = collect(make_bench(rewards=[], group_rewards=[group_use(by_place)], generator=first_fails, n=3))
    assert rewards == [[0.0, 1.0]]
    assert metrics["rollout/errors/generator_OSError"] == 1.0


# Choices of rows and of data sets: the row's own, else the set's, else the run's.


async def seven(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(7.0)


async def nine(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(9.0)


async def hundred(samples: Sequence[Sample], ctx: RewardContext) -> Sequence[Verdict]:
    return [Score(100.0)] * len(samples)


async def shouting(sample: Sample, ctx: GenerateContext) -> list[Sample]:
    [made] = await SingleTurn()(sample, ctx)
    made.response = "LOUD"
    return [made]


GROUP_REWARD = UsedReward("hundred", "tests", hundred)
LOUD = UsedGenerator("loud", "tests", shouting)
NAMED = {"seven": reward_use(seven, "seven"), "nine": reward_use(nine, "nine"), "loud": LOUD}


def rows(*changes: dict[str, object]) -> list[Group]:
    """A group of two for each row."""
    return [
        Group(
            GroupId("rows", 0, row, row),
            [
                replace(Sample(group_index=row, index=index, prompt=str(row), source="rows"), **change)  # type: ignore[arg-type]
                for index in range(2)
            ],
        )
        for row, change in enumerate(changes)
    ]


def evaluated(bench: Bench, *sets: EvalSet) -> list[list[Sample]]:
    result = asyncio.run(evaluate(bench.scheduler, sets, rollout_id=0))
    return [list(samples) for samples in result.samples.values()]


def test_a_set_has_its_own_choices_and_a_row_goes_before_them() -> None:
    groups = rows({}, {"metadata": {"rm_type": "seven"}})
    own = EvalSet("own", groups, SamplingParams(4), LOUD, Scoring([reward_use(nine)]))
    runs = EvalSet("runs", groups, SamplingParams(4))
    bench = make_bench(group_rewards=[GROUP_REWARD], named=NAMED)
    of_own, of_run = evaluated(bench, own, runs)
    assert [sample.reward for sample in of_own] == [9.0, 9.0, 7.0, 7.0]
    assert {sample.response for sample in of_own} == {"LOUD"}
    assert [sample.reward for sample in of_run] == [101.0, 100.0, 7.0, 7.0]


@table(
    "change, says",
    [
        ({"metadata": {"rm_type": "sven"}}, "no choice 'sven'"),
        ({"generate_function_path": "seven"}, "no choice 'seven'"),
        ({"metadata": {"rm_type": 3}}, "names a choice by 3; expected a text"),
    ],
)
def test_a_name_that_no_one_knows_ends_the_rollout(change: dict[str, object], says: str) -> None:
    with pytest.raises(ContractError, match=rf"^sample 0 of group 0, drawn from rows: {says}"):
        evaluated(make_bench(named=NAMED), EvalSet("x", rows(change), SamplingParams(4)))
