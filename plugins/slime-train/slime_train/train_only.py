"""Training on kept samples: no engine, no prompts; the same weights and training metrics as the run that kept them.

Example:

    outcome = await train_only(plan, folder, display)       # continues from its own checkpoints
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, cast

from slime_core.catalog import load_part
from slime_core.config import Plan
from slime_core.events import RolloutEnd, RolloutStart
from slime_core.roles import Draw
from slime_core.rollout.metrics import RolloutStats
from slime_core.run import Outcome, RunFolder
from slime_core.run.loop import BaseLoop, run_loop
from slime_core.run.session import BaseSession
from slime_core.telemetry import Display, GeneratedGroups, MetricsLog
from slime_core.telemetry.recording import SampleWriter


class StoredRollouts(Protocol):
    """The rollouts that a run folder keeps; slime-view's `StoredRollouts`."""

    def __len__(self) -> int: ...

    def read(self, rollout_id: int) -> tuple[GeneratedGroups, Draw]:
        """A rollout's samples, and the draw that its training used."""
        ...


async def train_only(plan: Plan, folder: RunFolder, display: Display) -> Outcome:
    """Train on a run folder's stored rollouts, at most as many as the plan has; see `run_loop`."""
    make_stored = cast(
        Callable[[Path, float], StoredRollouts], load_part("stored", "slime-view", "load_debug_rollout_data")
    )
    debug = plan.config.debug
    assert debug.load_debug_rollout_data is not None, "the key that selects this loop"
    stored = make_stored(debug.load_debug_rollout_data, debug.load_debug_rollout_data_subsample)

    def session(plan: Plan, folder: RunFolder, display: Display) -> BaseSession:
        base = BaseSession(plan, folder, display)
        base.set_length(lambda: base.builder.data_source())
        if len(stored) < base.num_rollout:
            display.message(f"samples of {len(stored)} of {base.num_rollout} rollouts were kept")
            base.num_rollout = len(stored)
        return base

    return await run_loop(plan, folder, display, session, partial(TrainOnlyLoop, stored))


class TrainOnlyLoop(BaseLoop):
    """The second half of a run in progress."""

    def __init__(
        self, stored: StoredRollouts, session: BaseSession, display: Display, metrics: MetricsLog, samples: SampleWriter
    ) -> None:
        super().__init__(session, display, metrics, samples)
        self._stored = stored

    async def _next(self) -> tuple[Draw, dict[str, float], None]:
        rollout_id = self.rollout_id
        await self._base.emit(RolloutStart(rollout_id, rollout_id))
        self._display.phase("reading kept samples")
        generated, draw = await asyncio.to_thread(self._stored.read, rollout_id)
        stats = RolloutStats(f"rollout {rollout_id}")
        stats.kept += generated.kept
        for group in generated.dropped:
            stats.drop(group, generated.reasons[group.id])
        metrics = stats.metrics()
        await self._base.emit(RolloutEnd(rollout_id, generated.kept, generated.dropped, metrics))
        return draw, metrics, None
