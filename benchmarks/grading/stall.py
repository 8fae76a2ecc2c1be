"""How long a run's event loop stands still while a thousand hostile answers come in at once.

python benchmarks/grading/stall.py

The loop is a driver's: with what `slime train` imports, a settled heap, and the reward called as a run calls it. A
timer that is due every millisecond notes how late it was. Prints one JSON object: the worst lateness, the median of
five, and the worst time of the processor between two beats, which other programs do not lengthen.
"""

import asyncio
import itertools
import json
import statistics
import sys
import time

import slime_core.cli.train as driver
from slime_core import Sample
from slime_core.processes import OnLoop
from slime_core.roles import RewardContext
from slime_core.run.session import settled_heap
from slime_core.stats import PluginStats
from slime_reward_math.cases import hostile
from slime_reward_math.grader import forget
from slime_reward_math.plugin import MathSettings
from slime_reward_math.rewards import answers

ANSWERS = 1_000
BEAT_S = 0.001


async def stall() -> tuple[float, float]:
    """Milliseconds that a beat came too late at most, and those of the processor between two beats."""
    attacks = itertools.islice(itertools.cycle(list(hostile())), ANSWERS)
    samples = [Sample(label=attack.gold, response=attack.response) for attack in attacks]
    calls = PluginStats().calls("reward", "math", "slime-reward-math")
    reward = OnLoop(answers.math(MathSettings()), timeout_s=60.0, max_concurrency=None, calls=calls)
    loop = asyncio.get_running_loop()
    late: list[tuple[float, float]] = []

    def beat(due: float, worked: float) -> None:
        late.append((loop.time() - due, time.thread_time() - worked))
        follow()

    def follow() -> None:
        due = loop.time() + BEAT_S
        loop.call_at(due, beat, due, time.thread_time())

    follow()
    await asyncio.sleep(10 * BEAT_S)
    await asyncio.gather(*(reward(sample, RewardContext(0, False, 1)) for sample in samples))
    await asyncio.sleep(10 * BEAT_S)
    return 1e3 * max(each for each, _ in late), 1e3 * max(each for _, each in late)


def main() -> int:
    """Measure, and print it."""
    found = []
    assert driver.__name__ in sys.modules, "the driver's modules are part of its heap"
    with settled_heap():
        for _ in range(5):
            forget()
            found.append(asyncio.run(stall()))
    wall, worked = (statistics.median(column) for column in zip(*found, strict=True))
    print(json.dumps({"stall ms": round(wall, 2), "stall CPU ms": round(worked, 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
