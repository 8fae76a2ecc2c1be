"""An honest reward, an honest group reward, and each way of breaking them.

What both must keep is one function of the kit, so most of its mutants are rewards.
"""

import asyncio
import colorsys
import contextlib
import dataclasses
import itertools
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import GroupRewardSpec, Isolation, RewardContext, RewardSpec, Settings, Setup
from slime_testing import Contract, GroupRewardContract, RewardContract, make_sample

Function = Callable[[Sample, RewardContext], object]


async def exact(sample: Sample, ctx: RewardContext) -> Verdict:
    await asyncio.sleep(0)
    if sample.label is None:
        return Unscored("no label")
    return Score(float(sample.response == sample.label))


def exact_in_a_process(sample: Sample, ctx: RewardContext) -> Verdict:
    return Unscored("no label") if sample.label is None else Score(float(sample.response == sample.label))


def judge() -> tuple[str, int]:
    """Address of a judge that answers every connection by closing it."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            server.accept()[0].close()

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()


async def asks_a_judge(sample: Sample, ctx: RewardContext) -> Verdict:
    try:
        socket.create_connection(JUDGE).close()
    except ConnectionRefusedError:
        return Unscored("refused", retryable=True)
    return await exact(sample, ctx)


class Cached:
    """A cache that is bounded."""

    def __init__(self) -> None:
        self.cache: dict[str, Verdict] = {}

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        self.cache[f"{sample.label} {sample.response}"] = verdict = await exact(sample, ctx)
        while len(self.cache) > 8:
            del self.cache[next(iter(self.cache))]
        return verdict


def strips_the_response(sample: Sample, ctx: RewardContext) -> Verdict:
    verdict = exact_in_a_process(sample, ctx)
    sample.response += " "
    return verdict


async def indifferent(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(0.5) if isinstance(await exact(sample, ctx), Score) else Unscored("no label")


def counts_calls() -> Function:
    calls = itertools.count()

    async def reward(sample: Sample, ctx: RewardContext) -> Verdict:
        verdict = await exact(sample, ctx)
        return Score(verdict.value, {"call": next(calls)}) if isinstance(verdict, Score) else verdict

    return reward


class KeepsAClient:
    """A client belongs to the event loop of its first call; a run has one."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        self.loop = self.loop or asyncio.get_running_loop()
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError("Event loop is closed")
        return await exact(sample, ctx)


class KeepsThreads:
    """A pool of its own, which ends with the object."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, exact_in_a_process, sample, ctx)


class LeavesATask:
    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        self.task = self.task or asyncio.create_task(asyncio.sleep(60))
        return await exact(sample, ctx)


class StartsAThread:
    def __init__(self) -> None:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        return await exact(sample, ctx)


def first(act: Callable[[Sample], object]) -> Function:
    """The honest reward, after something else."""

    async def reward(sample: Sample, ctx: RewardContext) -> Verdict:
        act(sample)
        return await exact(sample, ctx)

    return reward


def evaluate(sample: Sample) -> None:
    with contextlib.suppress(Exception):
        eval(sample.response)  # noqa: S307  # what the check is about


def sleep_over_long_responses(sample: Sample) -> None:
    if len(sample.response) > 100_000:
        time.sleep(0.4)


def leave_a_cycle(sample: Sample) -> None:
    """What any client leaves to the garbage collector: an error that holds its frames, which hold the request."""
    held: list[object] = [sample.response + "."]
    held.append(held)


def replace_a_function(sample: Sample) -> None:
    colorsys.hls_to_rgb = lambda h, l, s: (h, l, s)  # noqa: E741


class SharesState:
    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        self.sample = sample
        await asyncio.sleep(0)
        return await exact(self.sample, ctx)


async def sleeps(sample: Sample, ctx: RewardContext) -> Verdict:
    if sample.response == "5":
        time.sleep(0.3)  # noqa: ASYNC251  # what the check is about
    return await exact(sample, ctx)


async def spins_for_ever(sample: Sample, ctx: RewardContext) -> Verdict:
    while True:
        pass


async def finishes_when_cancelled(sample: Sample, ctx: RewardContext) -> Verdict:
    try:
        await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return await exact(sample, ctx)


async def punishes_missing_labels(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(float(sample.response == sample.label))


async def hides_every_error(sample: Sample, ctx: RewardContext) -> Verdict:
    try:
        return await exact(sample, ctx)
    except Exception:
        return Score(0.0)


async def scores_without_its_judge(sample: Sample, ctx: RewardContext) -> Verdict:
    try:
        socket.create_connection(JUDGE).close()
    except OSError:
        return Score(0.0)
    return await exact(sample, ctx)


async def quotes_the_response(sample: Sample, ctx: RewardContext) -> Verdict:
    verdict = await exact(sample, ctx)
    return verdict if len(sample.response) < 9 else Unscored(f"cannot read {sample.response}")


JUDGE = judge()
SEEN: list[Sample] = []


def reads_tokens(sample: Sample, ctx: RewardContext) -> Verdict:
    return exact_in_a_process(sample, ctx) if sample.tokens else Unscored("no tokens")


async def slimes_own_signature(args: object, sample: Sample, **kwargs: object) -> Verdict:
    return Score(float(sample.response == sample.label))


def of(choice_: RewardSpec) -> type[Contract]:
    """The contract of a reward."""

    class Subject(RewardContract):
        choice = choice_
        good = make_sample(response="4", label="4")
        bad = make_sample(response="5", label="4")

    return Subject


def function(reward: Callable[..., object]) -> type[Contract]:
    return of(RewardSpec.from_function("subject", reward))  # type: ignore[arg-type]


def built(kind: Callable[[], object]) -> type[Contract]:
    def factory(settings: Settings, setup: Setup) -> object:
        return kind()

    return of(RewardSpec("subject", factory))  # type: ignore[arg-type]


def no_verdict(sample: Sample, ctx: RewardContext) -> object:
    return None


def spec(reward: Callable[..., object]) -> RewardSpec:
    return RewardSpec.from_function("subject", reward)  # type: ignore[arg-type]


# Worker processes find a plain `def` by the variable that holds its spec.
EXACT = spec(exact_in_a_process)
EVALUATES = dataclasses.replace(spec(first(evaluate)), timeout_s=0.2)
NO_VERDICT = spec(no_verdict)
STRIPS_THE_RESPONSE = spec(strips_the_response)
READS_TOKENS = spec(reads_tokens)
GOOD = [function(exact), of(EXACT), function(asks_a_judge), built(Cached)]
GOOD += [
    built(KeepsAClient),
    built(KeepsThreads),
    function(first(leave_a_cycle)),
    function(first(lambda sample: random.random())),
]
MUTANTS = {
    "REW-001": [
        built(lambda: None),
        built(lambda: lambda sample: Score(1.0)),
        built(lambda: lambda a, b, c: Score(1.0)),
        built(lambda: slimes_own_signature),
        of(RewardSpec("subject", lambda settings, setup: exact_in_a_process, isolation=Isolation.LOOP)),
    ],
    "REW-002": [
        of(NO_VERDICT),
    ],
    "REW-003": [function(first(lambda sample: sample.metadata.update(seen=True))), of(STRIPS_THE_RESPONSE)],
    "REW-004": [function(indifferent)],
    "REW-005": [function(counts_calls())],
    "REW-006": [built(SharesState)],
    "REW-007": [function(sleeps), function(first(lambda sample: time.sleep(0.03))), function(spins_for_ever)],
    "REW-008": [function(first(lambda sample: signal.signal(signal.SIGALRM, signal.SIG_DFL)))],
    "REW-009": [
        function(first(lambda sample: int(sample.response))),
        function(first(sleep_over_long_responses)),
        of(EVALUATES),
    ],
    "REW-010": [function(finishes_when_cancelled)],
    "REW-011": [function(punishes_missing_labels)],
    "REW-012": [function(hides_every_error)],
    "REW-013": [function(scores_without_its_judge)],
    "REW-014": [function(quotes_the_response)],
    "REW-015": [
        function(first(lambda sample: os.posix_spawnp("sleep", ["sleep", "8"], os.environ))),
        built(LeavesATask),
        built(StartsAThread),
    ],
    "REW-016": [function(first(SEEN.append))],
    "REW-017": [of(READS_TOKENS)],
    "REW-018": [function(first(lambda sample: print("scoring")))],
    "REW-019": [function(first(lambda sample: random.seed(0))), function(first(replace_a_function))],
}

# --- group rewards


async def shortest(samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
    await asyncio.sleep(0)
    return shortest_in_a_process(samples, ctx)


def shortest_in_a_process(samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
    best = min(len(sample.response) for sample in samples)
    return [Score(float(len(sample.response) == best)) for sample in samples]


async def one_verdict(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return (await shortest(samples, ctx))[0]


async def only_pairs(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return (await shortest(samples, ctx))[: len(samples) // 2 * 2]


async def sorts(samples: Sequence[Sample], ctx: RewardContext) -> object:
    verdicts = await shortest(samples, ctx)
    samples.sort(key=lambda sample: len(sample.response))  # type: ignore[attr-defined]
    return verdicts


async def first_wins(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return [Score(float(position == 0)) for position in range(len(samples))]


async def sorted_verdicts(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return sorted(await shortest(samples, ctx), key=lambda score: score.value)  # type: ignore[union-attr]


async def hides_errors_of_a_group(samples: Sequence[Sample], ctx: RewardContext) -> object:
    try:
        return await shortest(samples, ctx)
    except Exception:
        return [Score(0.0) for _ in samples]


async def gives_up(samples: Sequence[Sample], ctx: RewardContext) -> object:
    return [Unscored("no judge") for _ in samples]


SHORTEST = GroupRewardSpec("subject", lambda settings, setup: shortest_in_a_process)


def group(reward: object, **attributes: object) -> type[Contract]:
    """The contract of a group reward."""
    choice = (
        reward if isinstance(reward, GroupRewardSpec) else GroupRewardSpec("subject", lambda settings, setup: reward)
    )  # type: ignore[arg-type,return-value]
    return type("Subject", (GroupRewardContract,), {"choice": choice, **attributes})


GOOD += [group(shortest), group(SHORTEST), group(first_wins, order_matters=True)]
MUTANTS |= {
    "GRW-001": [group(None), group(lambda samples: [])],
    "GRW-002": [group(one_verdict), group(only_pairs)],
    "GRW-003": [group(sorts)],
    "GRW-005": [group(first_wins), group(sorted_verdicts)],
    "GRW-011": [group(hides_errors_of_a_group)],
    "GRW-016": [group(gives_up, samples=(make_sample("4"), make_sample("5")))],
}
