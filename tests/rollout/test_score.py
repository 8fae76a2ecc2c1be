"""How a scorer fails is told in its own words: by the metric's name, and in the error that ends a run."""

import asyncio
from collections.abc import Callable

import pytest

from slime_core.roles import Reward
from slime_core.rollout import Scoring, UsedReward
from slime_core.rollout.scoring import ATTEMPTS, Failure, Hearing, hear
from slime_core.score import Score, Unscored, Verdict
from slime_testing.samples import make_sample

Use = Callable[..., UsedReward[Reward]]


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


@pytest.mark.parametrize(
    ("reward", "reason", "detail", "retryable"),
    [
        (hangs, "r_timeout", "0.01 s", True),
        (raises, "r_OSError", "HTTP 500", False),
        (says_nothing, "r_contract", "got str", False),
        (cancels_itself, "r_cancelled", "the reward cancelled itself", False),
    ],
)
def test_a_failure_has_a_short_reason_and_says_what_happened(
    use: Use, reward: Reward, reason: str, detail: str, retryable: bool
) -> None:
    found = heard(use(reward, "r", timeout_s=0.01)).failure
    assert isinstance(found, Failure)
    assert (found.reason, found.retryable) == (reason, retryable)
    assert detail in found.detail
    assert (found.cause is None) == (reward is cancels_itself)


def test_what_may_be_asked_again_is_asked_so_often_and_no_more(use: Use) -> None:
    calls: list[int] = []

    async def busy(sample: object, ctx: object) -> Verdict:
        calls.append(1)
        return Unscored("busy", retryable=True)

    assert heard(use(busy)).verdicts == {"reward/r": Unscored("busy", retryable=True)}
    assert len(calls) == ATTEMPTS == 2


def test_an_answer_is_not_asked_for_again(use: Use) -> None:
    calls: list[int] = []

    async def second(sample: object, ctx: object) -> Verdict:
        calls.append(1)
        return Unscored("never") if len(calls) == 1 else Score(1.0)

    assert heard(use(second)).verdicts == {"reward/r": Unscored("never")}
    assert len(calls) == 1
