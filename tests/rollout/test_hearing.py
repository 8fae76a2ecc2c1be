"""Hearing: what adds up to a sample's reward, and what keeps it from having one."""

import asyncio

from slime_core.roles import Reward
from slime_core.rollout import Scoring, UsedReward
from slime_core.rollout.scoring import LONGEST_REASON, Execution, Failure, Hearing, countable, hear
from slime_core.sample import Status
from slime_core.score import NotApplicable, Score, Unscored
from slime_testing.samples import make_sample
from tests.rollout.bench import reward_use
from tests.tables import table


async def nobody(sample: object, ctx: object) -> Score:
    raise AssertionError("a hearing asks nobody")


def test_the_reward_is_the_sum_by_weight() -> None:
    hearing = Hearing(make_sample())
    hearing.add("reward", reward_use(nobody, "a", 2.0), Score(0.5))
    hearing.add("group_reward", reward_use(nobody, "b", -1.0), Score(3.0))
    closed = hearing.close()
    assert closed.sample.reward == -2.0
    assert closed.sample.status is Status.COMPLETED
    assert closed.verdicts == {"reward/a": Score(0.5), "group_reward/b": Score(3.0)}
    assert closed.failure is None


def test_parts_are_kept_beside_the_sum_for_who_reads_them() -> None:
    hearing = Hearing(make_sample(), keeps_parts=True)
    hearing.add("reward", reward_use(nobody, "a", 2.0), Score(0.5, components={"style": 0.25}))
    hearing.add("reward", reward_use(nobody, "b", 0.0), NotApplicable())
    assert hearing.close().sample.reward == {"score": 1.0, "a": 0.5, "a/style": 0.25, "b": 0.0}


def test_a_reward_that_only_measures_gives_none() -> None:
    hearing = Hearing(make_sample())
    hearing.add("reward", reward_use(nobody, "a", 0.0), Score(1.0))
    hearing.add("reward", reward_use(nobody, "b"), NotApplicable())
    closed = hearing.close()
    assert closed.failure == Failure("no_reward_applies", "none of a, b scored it")
    assert (closed.sample.status, closed.sample.failure_reason) == (Status.FAILED, "no_reward_applies")
    assert closed.sample.reward is None


def test_a_sample_without_a_score_of_its_generators_says_what_to_return() -> None:
    hearing = Hearing(make_sample())
    hearing.add("reward", reward_use(nobody, "environment"), NotApplicable())
    failure = hearing.close().failure
    assert failure is not None
    assert failure.reason == "no_reward_applies"
    assert failure.detail.startswith("none of environment scored it; environment is the reward that the generator")
    assert "An agent returns a number" in failure.detail


def test_one_that_was_cut_off_says_so() -> None:
    sample = make_sample()
    sample.status = Status.TRUNCATED
    hearing = Hearing(sample)
    hearing.add("reward", reward_use(nobody, "environment"), NotApplicable())
    failure = hearing.close().failure
    assert failure is not None
    assert "Return what the sample is worth" in failure.detail


@table("weight, fails", [(1.0, True), (-1.0, True), (0.0, False)])
def test_who_has_a_weight_and_does_not_answer_costs_the_reward(weight: float, fails: bool) -> None:
    hearing = Hearing(make_sample())
    hearing.add("reward", reward_use(nobody, "good"), Score(1.0))
    hearing.add("reward", reward_use(nobody, "judge", weight), Unscored("no  answer", detail="HTTP 500"))
    closed = hearing.close()
    if fails:
        assert closed.failure == Failure("judge_no_answer", "HTTP 500")
        assert closed.sample.reward is None
    else:
        assert (closed.failure, closed.sample.reward) == (None, 1.0)


def test_the_first_failure_is_the_one_that_counts() -> None:
    hearing, first = Hearing(make_sample()), Failure("timeout", "60 s")
    hearing.add("reward", reward_use(nobody, "a"), first)
    hearing.add("reward", reward_use(nobody, "b"), Unscored("busy"))
    assert hearing.close().failure is first
    assert hearing.sample.failure_reason == "timeout"


def test_a_long_reason_is_cut_and_keeps_what_it_says_of_asking_again() -> None:
    hearing = Hearing(make_sample())
    hearing.add("reward", reward_use(nobody, "a", 0.0), Unscored("r" * 300, retryable=True, detail="d"))
    assert hearing.verdicts == {"reward/a": Unscored("r" * LONGEST_REASON, retryable=True, detail="d")}
    hearing.add("reward", reward_use(nobody, "b", 0.0), Failure("crash", "trace", retryable=True))
    assert hearing.verdicts["reward/b"] == Unscored("crash", retryable=True, detail="trace")


@table("reason, counted", [("out of room", "out_of_room"), (None, "generator_failed"), ("", "generator_failed")])
def test_what_the_generator_gave_up_is_not_heard(reason: str | None, counted: str) -> None:
    sample = make_sample(reward=1.0)
    sample.status, sample.failure_reason = Status.FAILED, reason
    hearing = Hearing(sample)
    assert not hearing.is_open
    closed = hearing.close()
    assert closed.failure == Failure(counted, f"the generator set Status.FAILED ({reason or 'generator_failed'})")
    assert (sample.reward, sample.failure_reason) == (None, counted)


def test_what_else_a_generator_says_of_a_failure_is_told() -> None:
    sample = make_sample(reward=1.0)
    sample.status, sample.failure_reason = Status.FAILED, "agent_KeyError"
    sample.metadata["failure_detail"] = "Traceback ...\nKeyError: 'nope'\n"
    told = "the generator set Status.FAILED (agent_KeyError): Traceback ...\nKeyError: 'nope'"
    assert Hearing(sample).close().failure == Failure("agent_KeyError", told)


def test_what_was_interrupted_has_no_reward_and_no_failure() -> None:
    sample = make_sample(reward=1.0)
    sample.status = Status.ABORTED
    closed = Hearing(sample).close()
    assert (closed.failure, sample.reward, sample.status) == (None, None, Status.ABORTED)


def test_siblings_have_what_is_said_of_the_main_one_and_it_is_counted_once() -> None:
    samples = [make_sample(index=0), make_sample(index=1, reward=0.25, metadata={"main": True}), make_sample(index=2)]
    samples[2].reward = 0.75
    execution = Execution(samples, keeps_parts=False)
    assert execution.main.sample is samples[1]
    assert [sample.reward for sample in samples] == [0.25, 0.25, 0.75]  # until they are closed
    execution.add("reward", reward_use(nobody, "a"), Score(1.0))
    closed = execution.close()
    assert [each.sample.reward for each in closed] == [1.0, 1.0, 1.0]
    assert [dict(each.verdicts) for each in closed] == [{}, {"reward/a": Score(1.0)}, {}]


def test_a_reason_is_one_short_word_in_a_metric() -> None:
    assert countable(" no \n answer\tat all ") == "no_answer_at_all"
    assert len(countable("r" * 300)) == LONGEST_REASON


async def hangs(sample: object, ctx: object) -> Score:
    await asyncio.Event().wait()
    raise AssertionError


async def raises(sample: object, ctx: object) -> Score:
    raise OSError("HTTP 500")


async def says_nothing(sample: object, ctx: object) -> Score:
    return "good"  # type: ignore[return-value]


async def cancels_itself(sample: object, ctx: object) -> Score:
    raise asyncio.CancelledError


def heard(use: UsedReward[Reward]) -> Hearing:
    execution = hear([make_sample()], Scoring([use]), None)  # type: ignore[arg-type]  # these rewards read no context
    return asyncio.run(execution).main


@table(
    "reward, reason, detail, retryable",
    [
        (hangs, "r_timeout", "0.01 s", True),
        (raises, "r_OSError", "HTTP 500", False),
        (says_nothing, "r_contract", "got str", False),
        (cancels_itself, "r_cancelled", "the reward cancelled itself", False),
    ],
)
def test_a_failure_has_a_short_reason_and_says_what_happened(
    reward: Reward, reason: str, detail: str, retryable: bool
) -> None:
    found = heard(reward_use(reward, "r", timeout_s=0.01)).failure
    assert isinstance(found, Failure)
    assert (found.reason, found.retryable) == (reason, retryable)
    assert detail in found.detail
    assert (found.cause is None) == (reward is cancels_itself)
