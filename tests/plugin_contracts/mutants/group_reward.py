"""An honest group reward, and each way of breaking it."""

import asyncio
import contextlib
import itertools
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import GroupRewardSpec, RewardContext, Settings, Setup
from slime_testing import Contract, GroupRewardContract, make_sample


async def shortest(samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
    await asyncio.sleep(0)
    best = min(len(sample.response) for sample in samples)
    return [Score(float(len(sample.response) == best)) for sample in samples]


def shortest_in_a_process(samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
    best = min(len(sample.response) for sample in samples)
    return [Score(float(len(sample.response) == best)) for sample in samples]


async def one_verdict(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return (await shortest(samples, ctx))[0]


async def only_pairs(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return (await shortest(samples, ctx))[: len(samples) // 2 * 2]


async def evaluates(samples: Sequence[Sample], ctx: RewardContext) -> object:
    with contextlib.suppress(Exception):
        eval(samples[0].response)  # noqa: S307  # what the check is about
    return await shortest(samples, ctx)


async def sets_the_pace(samples: Sequence[Sample], ctx: RewardContext) -> object:
    random.seed(len(samples))
    return await shortest(samples, ctx)


async def keeps_it_short(samples: Sequence[Sample], ctx: RewardContext) -> object:
    time.sleep(0.03)  # noqa: ASYNC251
    return await shortest(samples, ctx)


async def sorts(samples: Sequence[Sample], ctx: RewardContext) -> object:
    verdicts = await shortest(samples, ctx)
    samples.sort(key=lambda sample: len(sample.response))  # type: ignore[attr-defined]
    return verdicts


async def marks(samples: Sequence[Sample], ctx: RewardContext) -> object:
    samples[0].metadata["first"] = True
    return await shortest(samples, ctx)


async def draws(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return [Score(random.random()) for _ in samples]


async def first_wins(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return [Score(float(position == 0)) for position in range(len(samples))]


async def sorted_verdicts(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return sorted(await shortest(samples, ctx), key=lambda score: score.value)  # type: ignore[union-attr]


async def sleeps(samples: Sequence[Sample], ctx: RewardContext) -> object:
    time.sleep(0.3)  # noqa: ASYNC251
    return await shortest(samples, ctx)


class SharesState:
    async def __call__(self, samples: Sequence[Sample], ctx: RewardContext) -> object:
        self.samples = samples
        await asyncio.sleep(0)
        return (await shortest(self.samples, ctx) * len(samples))[: len(samples)]


async def sets_an_alarm(samples: Sequence[Sample], ctx: RewardContext) -> object:
    import signal

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return await shortest(samples, ctx)


async def encodes(samples: Sequence[Sample], ctx: RewardContext) -> object:
    for sample in samples:
        sample.response.encode()
    return await shortest(samples, ctx)


async def goes_on(samples: Sequence[Sample], ctx: RewardContext) -> object:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0.005)
    return await shortest(samples, ctx)


async def hides_every_error(samples: Sequence[Sample], ctx: RewardContext) -> object:
    try:
        return await shortest(samples, ctx)
    except Exception:
        return [Score(0.0) for _ in samples]


async def scores_without_its_judge(samples: Sequence[Sample], ctx: RewardContext) -> object:
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=0.1).close()
    except OSError:
        return [Score(0.0) for _ in samples]
    return await shortest(samples, ctx)


async def knows_its_judge_is_away(samples: Sequence[Sample], ctx: RewardContext) -> object:
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=0.1).close()
    except OSError:
        return [Unscored("refused", retryable=True) for _ in samples]
    return await shortest(samples, ctx)


async def leaves_a_thread(samples: Sequence[Sample], ctx: RewardContext) -> object:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return await shortest(samples, ctx)


SEEN: list[Sample] = []


async def remembers(samples: Sequence[Sample], ctx: RewardContext) -> object:
    SEEN.extend(samples)
    return await shortest(samples, ctx)


async def prints(samples: Sequence[Sample], ctx: RewardContext) -> object:
    print("scoring")
    return await shortest(samples, ctx)


def built(kind: Callable[[], object]) -> type[GroupRewardContract]:
    def factory(settings: Settings, setup: Setup) -> object:
        return kind()

    class Subject(GroupRewardContract):
        choice = GroupRewardSpec("subject", factory)  # type: ignore[arg-type]

    return Subject


def function(reward: Callable[..., object]) -> type[GroupRewardContract]:
    return built(lambda: reward)


SHORTEST = GroupRewardSpec("subject", lambda settings, setup: shortest_in_a_process)


class InAProcess(GroupRewardContract):
    choice = SHORTEST


class OrderMatters(function(first_wins)):  # type: ignore[misc]
    order_matters = True


class Draws(function(draws)):  # type: ignore[misc]
    deterministic = False


def counts() -> Callable[..., object]:
    calls = itertools.count()

    async def counting(samples: Sequence[Sample], ctx: RewardContext) -> object:
        number = next(calls)
        return [Score(float(number)) for _ in samples]

    return counting


class InNoTime(GroupRewardContract):
    choice = GroupRewardSpec("subject", lambda settings, setup: evaluates, timeout_s=0.2)


async def gives_up(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return [Unscored("no judge") for _ in samples]


class GivesUp(function(gives_up)):  # type: ignore[misc]
    samples = (make_sample("4"), make_sample("5"))


GOOD: list[type[Contract]] = [
    function(shortest),
    InAProcess,
    function(knows_its_judge_is_away),
    OrderMatters,
    Draws,
]
MUTANTS: dict[str, list[type[Contract]]] = {
    "GRW-001": [built(lambda: None), function(lambda samples: [])],
    "GRW-002": [function(one_verdict), function(only_pairs)],
    "GRW-003": [function(sorts), function(marks)],
    "GRW-004": [function(draws), function(counts())],
    "GRW-005": [function(first_wins), function(sorted_verdicts)],
    "GRW-006": [function(sleeps), function(keeps_it_short)],
    "GRW-007": [built(SharesState)],
    "GRW-008": [function(sets_an_alarm)],
    "GRW-009": [function(encodes), InNoTime],
    "GRW-010": [function(goes_on)],
    "GRW-011": [function(hides_every_error)],
    "GRW-012": [function(scores_without_its_judge)],
    "GRW-013": [function(leaves_a_thread), function(remembers)],
    "GRW-014": [function(prints)],
    "GRW-015": [function(sets_the_pace)],
    "GRW-016": [GivesUp],
}
