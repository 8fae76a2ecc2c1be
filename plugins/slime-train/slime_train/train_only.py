"""Training on kept samples: no engine, no prompts; the same weights and training metrics as the run that kept them.

Example:

    outcome = await train_only(plan, folder, display, Path("runs/first"))       # continues from its own checkpoints
"""

import asyncio
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Protocol, cast

from slime_core.catalog import part
from slime_core.config import Plan
from slime_core.events import RolloutEnd, RolloutStart
from slime_core.roles import Draw
from slime_core.rollout.metrics import Tally
from slime_core.run import Checkpoint, Outcome, RunFolder
from slime_core.telemetry import Display, Generated, MetricsLog
from slime_train.training_loop import TrainingLoop, run_training


class Stored(Protocol):
    """The rollouts that a run folder keeps; slime-view's `StoredRollouts`."""

    def __len__(self) -> int: ...

    def read(self, rollout_id: int) -> tuple[Generated, Draw]:
        """What a rollout generated, and what its training was given."""
        ...


async def train_only(plan: Plan, folder: RunFolder, display: Display, kept: Path) -> Outcome:
    """Train on the rollouts that a run folder keeps, as many as the plan has and it holds; see `run_training`."""
    make_stored = cast(Callable[[Path, float], Stored], part("stored", "slime-view", "load_debug_rollout_data"))
    stored = make_stored(kept, plan.config.debug.load_debug_rollout_data_subsample)

    def make(plan: Plan, folder: RunFolder, display: Display, metrics: MetricsLog) -> TrainOnly:
        return TrainOnly(plan, folder, display, metrics, stored)

    return await run_training(plan, folder, display, make)


class TrainOnly(TrainingLoop):
    """The second half of a run in progress."""

    def __init__(self, plan: Plan, folder: RunFolder, display: Display, metrics: MetricsLog, stored: Stored) -> None:
        """Prompts are read only to count a run that is as long as its epochs."""
        super().__init__(plan, folder, display, metrics)
        self._stored = stored
        self.last = min(self._num_rollout, len(stored))

    def _prompts(self) -> Sized:
        return self.build.data_source(self.build.tokenizer())

    async def run(self, checkpoint: Checkpoint | None) -> Outcome:
        """All remaining rollouts, after those that a checkpoint contains."""
        if self.last < self._num_rollout:
            self._display.message(f"samples of {self.last} of {self._num_rollout} rollouts were kept")
        return await super().run(checkpoint)

    async def _next(self, rollout_id: int) -> tuple[Draw, dict[str, float]]:
        await self.emit(RolloutStart(rollout_id, rollout_id))
        self._display.phase("reading kept samples")
        generated, draw = await asyncio.to_thread(self._stored.read, rollout_id)
        metrics = _rollout_metrics(rollout_id, generated)
        await self.emit(RolloutEnd(rollout_id, generated.kept, generated.dropped, metrics))
        return draw, metrics

    async def _measure(self) -> None:
        """Nothing: there is no engine to evaluate with."""


def _rollout_metrics(rollout_id: int, generated: Generated) -> dict[str, float]:
    """Metrics that can be counted of groups: lengths, rewards, reasons."""
    tally = Tally(f"rollout {rollout_id}")
    tally.kept += generated.kept
    for group in generated.dropped:
        tally.drop(group, generated.reasons[group.id])
    return tally.metrics()
