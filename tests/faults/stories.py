"""Stories: a run that is killed, perhaps again and again, and at last left alone; and what it must end with.

world = World.make("fifo", root, nurseries, {}, max_uses=1)
world.run_stories([Story((At("enter slime_core.run.checkpoint:Saver.save", 2),))], figures)
"""

import random
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from slime_core.run import newest_checkpoint
from slime_core.sample import Json
from tests.faults.accounts import Accounts, contents, differences
from tests.faults.figures import Figures
from tests.faults.nursery import DONE, After, At, Kill, Life, Nursery
from tests.faults.toy import write_project

HALF_WAY = At("leave slime_core.telemetry.display:Display.row", 8)
"""Kills the run that stories may continue, after the row of its sixth rollout, which is not saved yet.

Two rows before it are of evaluations.
"""
COMMITS = "slime_core.run."
"""What saves and accounts."""
CHANGES = ("before", "after")
"""How changes of files are named (boundaries.py)."""


@dataclass(frozen=True)
class Story:
    """One run's kills, in turn."""

    kills: tuple[Kill, ...]
    half_way: bool = False
    """It begins with the run that was killed half-way."""

    def __str__(self) -> str:
        begun = "half-way, then " if self.half_way else ""
        return begun + ", then ".join(
            f"{each.name!r}, {each.count}" if isinstance(each, At) else f"after {each.seconds:.4f} s"
            for each in self.kills
            if each is not None
        )


@dataclass(frozen=True)
class World:
    """A run file, an undisturbed run of it, and where such runs can be cut."""

    root: Path
    run_file: Path
    nurseries: "SimpleQueue[Nursery]"
    workers: int
    max_uses: int
    exact: bool
    """Whether every run must end with the same."""
    expected: Mapping[str, object]
    """Contents of the undisturbed run."""
    fresh: Mapping[str, int]
    """How often it passes each boundary."""
    resumed: Mapping[str, int]
    """How often the run that was killed half-way does."""
    seconds: float
    """How long it takes."""

    @classmethod
    def make(
        cls,
        root: Path,
        nurseries: "SimpleQueue[Nursery]",
        workers: int,
        changes: Mapping[str, Json],
        *,
        max_uses: int = 1,
        exact: bool = True,
    ) -> "World":
        """Write the project and run it undisturbed."""
        root.mkdir()
        run_file, nursery = write_project(root, **changes), nurseries.get()
        fresh = nursery.boundaries(root / "undisturbed", run_file)
        timed = nursery.live(root / "timed", run_file)
        assert timed.code == DONE, timed.output
        dead = nursery.live(root / "half-way", run_file, HALF_WAY)
        assert dead.killed, dead.output
        shutil.copytree(root / "half-way", root / "other half")
        resumed = nursery.boundaries(root / "other half", run_file)
        nurseries.put(nursery)
        expected = contents(root / "undisturbed")
        assert not exact or differences(root / "timed", expected) == []
        return cls(root, run_file, nurseries, workers, max_uses, exact, expected, fresh, resumed, timed.seconds)

    @classmethod
    def alone(cls, root: Path, nursery: Nursery) -> "World":
        """Of the toys' own run file, with one nursery."""
        free = SimpleQueue[Nursery]()
        free.put(nursery)
        return cls.make(root, free, 1, {})

    def run_stories(self, stories: Iterable[Story], figures: Figures, most_kills: int | None = None) -> None:
        """Run stories, several at a time, until they end or so many kills were tried."""
        numbers = count()

        def run_one(story: Story) -> None:
            if most_kills is not None and figures.tried >= most_kills:
                return
            folder, nursery = self.root / f"{figures.what}-{next(numbers)}".replace(" ", "-"), self.nurseries.get()
            try:
                problems = self._run(story, folder, nursery, figures)
            finally:
                self.nurseries.put(nursery)
            if problems:
                figures.problems.append(f"{story}: {'; '.join(problems)} ({folder})")
            else:
                shutil.rmtree(folder)

        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(run_one, stories))

    def _run(self, story: Story, folder: Path, nursery: Nursery, figures: Figures) -> list[str]:
        """What is wrong at the end."""
        if story.half_way:
            shutil.copytree(self.root / "half-way", folder)
        tried = 0
        for kill in story.kills:
            if (life := nursery.live(folder, self.run_file, kill)).killed:
                tried += 1
            elif life.code != DONE:
                return [f"it ended with {life.code} before the kill: {life.output}"]
        figures.tried += tried
        saved = newest_checkpoint(folder / "checkpoints", print) if (folder / "checkpoints").exists() else None
        last = nursery.live(folder, self.run_file)
        if last.code != DONE:
            return [f"resuming ended with {last.code}: {last.output}"]
        figures.resumed += tried
        return [*_went_on(last, saved.rollout_id if saved else 0), *self._judge(folder, figures)]

    def _judge(self, folder: Path, figures: Figures) -> list[str]:
        """The run's results and accounts."""
        accounts, problems = Accounts.of(folder, self.max_uses), []
        if self.exact and (different := differences(folder, self.expected)):
            figures.different += 1
            problems.append(f"not as undisturbed: {', '.join(different)}")
        if accounts.lost:
            figures.lost += len(accounts.lost)
            problems.append(f"lost: {', '.join(accounts.lost)}")
        if accounts.over_used:
            figures.over_used += len(accounts.over_used)
            problems.append(f"used beyond allowance: {', '.join(accounts.over_used)}")
        return problems

    def at_boundaries(self, draw: random.Random, most: int | None) -> list[Story]:
        """A kill at each boundary of a fresh run, then of a resumed one, in one of its passings.

        What saves and accounts, and every change of a file, is cut at its first and its last passing too.

        Args:
            draw: decides which passing, and which boundaries if not all.
            most: so many of each; None for all.
        """
        stories = []
        for half_way, passed in ((False, self.fresh), (True, self.resumed)):
            kills = []
            for name, times in passed.items():
                passings = {draw.randint(1, times)}
                if most is None and (COMMITS in name or name.startswith(CHANGES)):
                    passings |= {1, times}
                kills += [At(name, number) for number in sorted(passings)]
            chosen = kills if most is None else draw.sample(kills, most)
            stories += [Story((kill,), half_way) for kill in chosen]
        return stories

    def at_instants(self, draw: random.Random) -> Iterable[Story]:
        """Kills at any time, one to four in the life of one run; without end."""
        while True:
            times = draw.randint(1, 4)
            yield Story(tuple(After(draw.uniform(0, 1.1 * self.seconds)) for _ in range(times)))


def _went_on(life: Life, saved: int) -> list[str]:
    """Whether it continued where the newest checkpoint was."""
    if not saved or f"continuing after rollout {saved} " in life.output or " is done: " in life.output:
        return []
    return [f"rollout {saved} was saved, and it went on elsewhere: {life.output}"]
