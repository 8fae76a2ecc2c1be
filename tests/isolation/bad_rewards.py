"""Rewards that misbehave, each in its own way; copied into a project and run from there."""

import asyncio
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from slime_core import Score, Unscored
from slime_core.roles import LIGHT_FIELDS, Isolation, RewardContext, RewardSpec
from slime_core.sample import Sample
from slime_core.score import Verdict

CALLS = 0


def offer(function: Callable[..., object], **limits: object) -> RewardSpec:
    return RewardSpec(
        function.__name__, lambda settings, setup: function, **{"max_concurrency": 1, "timeout_s": 20.0} | limits
    )


def length(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(float(len(sample.response)), {"seed": float(ctx.seed)})


def sleeps(sample: Sample, ctx: RewardContext) -> Verdict:
    time.sleep(600)


def spins_in_c(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(float(9**9**9))


def swallows(sample: Sample, ctx: RewardContext) -> Verdict:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        with suppress(BaseException):
            time.sleep(600)


def exits(sample: Sample, ctx: RewardContext) -> Verdict:
    print("about to exit")
    os._exit(7)


def says_exit(sample: Sample, ctx: RewardContext) -> Verdict:
    sys.exit("enough")


def kills_itself(sample: Sample, ctx: RewardContext) -> Verdict:
    os.kill(os.getpid(), signal.SIGKILL)


def eats_memory(sample: Sample, ctx: RewardContext) -> Verdict:
    eaten = [bytearray(16 << 20) for _ in range(1000)]
    return Score(float(len(eaten)))


def shares_memory(sample: Sample, ctx: RewardContext) -> Verdict:
    shared = mmap.mmap(-1, 3 << 30)
    for start in range(0, len(shared), 4096):
        shared[start] = 1
    time.sleep(600)
    return Score(1.0)


def child_eats_memory(sample: Sample, ctx: RewardContext) -> Verdict:
    eat = "eaten = b'x' * (150 << 20); import time; time.sleep(600)"
    children = [subprocess.Popen([sys.executable, "-S", "-c", eat]) for _ in range(2)]
    children[0].wait()


def forks_without_end(sample: Sample, ctx: RewardContext) -> Verdict:
    while True:
        os.fork()


def shell_bomb(sample: Sample, ctx: RewardContext) -> Verdict:
    subprocess.run(["sh", "-c", "for i in $(seq 100); do sleep 600 & done; wait"], check=False)


def forks_and_both_return(sample: Sample, ctx: RewardContext) -> Verdict:
    os.fork()
    return Score(1.0)


def prints(sample: Sample, ctx: RewardContext) -> Verdict:
    os.write(1, b"\x00\x00\x00\x00\x00\x00\x00\x02{}" * 10_000)
    os.write(2, b"garbage on stderr\n")
    return Score(2.0)


def prints_and_fails(sample: Sample, ctx: RewardContext) -> Verdict:
    print("the last words")
    raise ValueError("no such thing")


def writes_to_every_descriptor(sample: Sample, ctx: RewardContext) -> Verdict:
    for descriptor in range(3, 32):
        with suppress(OSError):
            os.write(descriptor, b"\x00\x00\x00\x00\x00\x00\x00\x02{}")
    return Score(1.0)


def closes_every_descriptor(sample: Sample, ctx: RewardContext) -> Verdict:
    os.closerange(0, 64)
    return Score(1.0)


def answers_at_length(sample: Sample, ctx: RewardContext) -> Verdict:
    return Unscored("x" * (2 << 20))


def changes_its_sample(sample: Sample, ctx: RewardContext) -> Verdict:
    sample.response = "changed"
    sample.metadata["changed"] = True
    return Score(1.0)


def sets_an_alarm(sample: Sample, ctx: RewardContext) -> Verdict:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(1)
    return Score(1.0)


def reads_tokens(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(float(sample.prompt_length))


def returns_none(sample: Sample, ctx: RewardContext) -> Verdict:
    return None


async def awaits(sample: Sample, ctx: RewardContext) -> Verdict:
    await asyncio.sleep(0.001)
    return Score(5.0)


def dies_at_one(sample: Sample, ctx: RewardContext) -> Verdict:
    if len(sample.response) == 1:
        os.abort()
    return Score(float(len(sample.response)))


def counts(sample: Sample, ctx: RewardContext) -> Verdict:
    global CALLS
    CALLS += 1
    return Score(float(CALLS))


reads_tokens_declared = offer(reads_tokens, fields=(*LIGHT_FIELDS, "tokens"))
many_spec = offer(length, max_concurrency=2)
LIMITS: dict[str, dict[str, object]] = {
    **{name: {"timeout_s": 0.4} for name in ("sleeps", "spins_in_c", "swallows")},
    "eats_memory": {"memory_mb": 128},
    "forks_without_end": {"memory_mb": 1 << 14},  # or that is what it meets first
    "shares_memory": {"memory_mb": 256},
    "child_eats_memory": {"memory_mb": 256},
    "awaits": {"isolation": Isolation.PROCESS},
}
for name, function in [*globals().items()]:
    if getattr(function, "__module__", "") == __name__ and "ctx" in getattr(function, "__annotations__", ()):
        globals()[f"{name}_spec"] = offer(function, **LIMITS.get(name, {}))
