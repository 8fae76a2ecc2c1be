"""How a scorer fails is told in its own words: by the metric's name, and in the error that ends a run."""

import asyncio
from collections.abc import Callable

from slime_core.roles import Reward
from slime_core.rollout import Scoring, UsedReward
from slime_core.rollout.scoring import Failure, Hearing, hear
from slime_core.score import Score
from slime_testing.samples import make_sample
from tests.tables import table

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
    use: Use, reward: Reward, reason: str, detail: str, retryable: bool
) -> None:
    found = heard(use(reward, "r", timeout_s=0.01)).failure
    assert isinstance(found, Failure)
    assert (found.reason, found.retryable) == (reason, retryable)
    assert detail in found.detail
    assert (found.cause is None) == (reward is cancels_itself)
