"""The priority buffer against TorchRL's and cpprb's prioritised replay: insert, sample and update, in turns.

    pip install -e . -e ./plugins/slime-buffer-priority torchrl cpprb
    python benchmarks/priority_buffer.py

All hold the same million groups with the same priorities. A draw is made, its groups are fetched and weighed, and their
priorities are changed, as a training step does; the peers draw with putting back, this buffer draws distinct ones and
counts their uses. TorchRL holds the groups in its ListStorage; cpprb holds their numbers, and a list the groups.
Processor time, medians of rounds in turns; the last line printed is one JSON object.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import cpprb
import numpy as np
import torch
from numpy.typing import NDArray
from torchrl.data import ListStorage, PrioritizedReplayBuffer

from slime_buffer_priority.buffer import PriorityBuffer
from slime_buffer_priority.settings import PrioritySettings
from slime_core import Group, GroupId
from slime_core.buffer import FifoBuffer, FifoFilter
from slime_core.roles import BufferContext, BufferSetup, Selection
from slime_testing import make_sample

ALPHA, BETA = 0.6, 0.4
BATCHES = (256, 1024, 4096)
NOW = BufferContext(rollout_id=0, weight_version=0)


class Subject(Protocol):
    """One buffer, filled."""

    def sample(self, batch: int) -> None:
        """Draw, and remember what."""

    def scored(self, priorities: NDArray[np.float64]) -> None:
        """Take the new priorities of what was drawn, in the form that `update` wants; not timed."""

    def update(self) -> None:
        """Change the priorities of what was drawn."""


class Ours:
    """slime-buffer-priority."""

    def __init__(self, groups: Sequence[Group], priorities: NDArray[np.float64]) -> None:
        """Fill it."""
        count = len(priorities)
        settings = PrioritySettings(
            capacity=count, alpha=ALPHA, beta=BETA, epsilon=1e-6, max_uses=1_000_000, replay_ratio=1.0
        )
        self.buffer = PriorityBuffer(settings, BufferSetup(_no_choice, 0, buffer_filter=_NoFilter()))
        started = time.process_time()
        self.buffer.add(groups)
        self.insert_s = time.process_time() - started
        self.buffer.update(dict(zip((group.id for group in groups), priorities.tolist(), strict=True)))
        self._drawn: Sequence[Group] = ()
        self._scores: dict[GroupId, float] = {}

    def sample(self, batch: int) -> None:
        """Draw."""
        self._drawn = self.buffer.sample(batch, NOW).groups

    def scored(self, priorities: NDArray[np.float64]) -> None:
        """What a trainer reports of the draw: its work, and not timed."""
        self._scores = dict(zip((group.id for group in self._drawn), priorities.tolist(), strict=True))

    def update(self) -> None:
        """Change."""
        self.buffer.update(self._scores)


class TorchRL:
    """torchrl's PrioritizedReplayBuffer, on its C++ trees."""

    def __init__(self, groups: Sequence[Group], priorities: NDArray[np.float64]) -> None:
        """Fill it."""
        storage = ListStorage(len(groups))
        self.buffer = PrioritizedReplayBuffer(alpha=ALPHA, beta=BETA, eps=1e-6, storage=storage, collate_fn=list)
        started = time.process_time()
        places = self.buffer.extend(groups)
        self.insert_s = time.process_time() - started
        self.buffer.update_priority(places, torch.from_numpy(priorities).float())
        self._places = places

    def sample(self, batch: int) -> None:
        """Draw."""
        self._drawn, info = self.buffer.sample(batch, return_info=True)
        self._places = torch.as_tensor(info["index"])

    def scored(self, priorities: NDArray[np.float64]) -> None:
        """A tensor."""
        self._priorities = torch.from_numpy(priorities).float()

    def update(self) -> None:
        """Change."""
        self.buffer.update_priority(self._places, self._priorities)


class Cpprb:
    """cpprb's PrioritizedReplayBuffer, on its C++ trees."""

    def __init__(self, groups: Sequence[Group], priorities: NDArray[np.float64]) -> None:
        """Fill it."""
        self._groups = groups
        count = len(groups)
        kinds = {"item": {"dtype": np.int64}}
        self.buffer = cpprb.PrioritizedReplayBuffer(count, kinds, alpha=ALPHA, eps=1e-6)
        items = np.arange(count)
        started = time.process_time()
        self.buffer.add(item=items)
        self.insert_s = time.process_time() - started
        self.buffer.update_priorities(items, priorities)
        self._places = items[:0]

    def sample(self, batch: int) -> None:
        """Draw."""
        self._places = self.buffer.sample(batch, beta=BETA)["indexes"]
        self._drawn = [self._groups[place] for place in self._places.tolist()]

    def scored(self, priorities: NDArray[np.float64]) -> None:
        """An array."""
        self._priorities = priorities

    def update(self) -> None:
        """Change."""
        self.buffer.update_priorities(self._places, self._priorities)


class _NoFilter:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=())


def _no_choice(role: str, name: str, **settings: object) -> object:
    raise LookupError(f"{role} {name}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="items held")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each batch size")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(arguments.size, arguments.rounds)))


def measure(size: int, rounds: int) -> dict[str, object]:
    """Microseconds and ratios at one size; a ratio above 1 means that this buffer is faster."""
    random = np.random.default_rng(0)
    priorities = random.random(size)
    item = make_sample(reward=1.0)
    groups = [Group(GroupId("bench", 0, number, number), [item]) for number in range(size)]
    ours, torchrl, cpp = Ours(groups, priorities), TorchRL(groups, priorities), Cpprb(groups, priorities)
    subjects: dict[str, Subject] = {"slime": ours, "torchrl": torchrl, "cpprb": cpp}
    found: dict[str, object] = {
        "size": size,
        "insert_us": {
            name: round(each.insert_s / size * 1e6, 3)
            for name, each in (("slime", ours), ("torchrl", torchrl), ("cpprb", cpp))
        },
    }
    found |= {f"batch_{batch}": in_turns(subjects, batch, rounds, random) for batch in BATCHES}
    return found | {f"fifo_{held}": measure_fifo(groups, held, rounds) for held in (1_000, size)}


def in_turns(
    subjects: Mapping[str, Subject], batch: int, rounds: int, random: np.random.Generator
) -> dict[str, dict[str, float]]:
    """Median microseconds of a draw, a change and both, and how many times as long both take as with `slime`."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in subjects}
    for _ in range(rounds):
        priorities = random.random(batch)
        for name, subject in subjects.items():
            started = time.process_time()
            subject.sample(batch)
            sample_s = time.process_time() - started
            subject.scored(priorities)
            started = time.process_time()
            subject.update()
            times[name].append((sample_s, time.process_time() - started))
    both = {name: statistics.median(map(sum, each)) for name, each in times.items()}
    return {
        name: {
            "sample_us": round(statistics.median(sample for sample, _ in each) * 1e6, 1),
            "update_us": round(statistics.median(update for _, update in each) * 1e6, 1),
            "both_us": round(both[name] * 1e6, 1),
            "times_slime": round(both[name] / both["slime"], 2),
        }
        for name, each in times.items()
    }


def measure_fifo(groups: Sequence[Group], held: int, rounds: int) -> dict[str, float]:
    """Median microseconds of adding 64 groups and taking 64 while `held` wait, and of a list cut off at its front."""
    fifo = FifoBuffer(BufferSetup(_no_choice, 0, buffer_filter=FifoFilter()))
    fifo.add(groups[:held])
    plain = list(groups[:held])
    ours, cut = [], []
    for number in range(rounds):
        fresh = groups[64 * number : 64 * number + 64]
        started = time.process_time()
        fifo.add(fresh)
        fifo.sample(64, NOW)
        between = time.process_time()
        plain.extend(fresh)
        _ = plain[:64]
        del plain[:64]
        ours.append(between - started)
        cut.append(time.process_time() - between)
    return {
        "fifo_us": round(statistics.median(ours) * 1e6, 1),
        "list_us": round(statistics.median(cut) * 1e6, 1),
    }


if __name__ == "__main__":
    main()
