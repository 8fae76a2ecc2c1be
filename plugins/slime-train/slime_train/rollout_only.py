"""RolloutLoop: generates, scores and keeps samples; no trainer, the weights are the model directory's throughout.

What it keeps can be trained on: `--load-debug-rollout-data`. There is no checkpoint, so a second call starts over.
"""

import time

from slime_core.events import RolloutEnd, RolloutStart
from slime_core.roles import Draw
from slime_core.run.loop import Loop
from slime_core.telemetry import Generated

REASON = "debug_rollout_only"
"""Why the ledger says that no group was trained on."""


class RolloutLoop(Loop):
    """The loop without its second half."""

    async def _one_rollout(self) -> None:
        session, started = self._session, time.monotonic()
        batch = self._config.rollout.rollout_batch_size
        await session.emit(RolloutStart(self.rollout_id, 0))
        session.source.rollout_id = self.rollout_id
        each = self._config.rollout.n_samples_per_prompt
        self._display.phase(f"{batch} groups of {each} samples", lambda: session.scheduler.waiting_for)
        result = await session.scheduler.collect(self.rollout_id, batch)
        await session.emit(RolloutEnd(self.rollout_id, result.kept, result.dropped, result.metrics))
        draw = Draw(result.kept[:batch], [1.0] * min(batch, len(result.kept)))
        generated = Generated(result.kept, result.dropped, result.reasons, result.failed)
        await self._samples.write(self.rollout_id, generated, draw)
        session.ledger.drop({group.id: REASON for group in result.kept}, self.rollout_id)
        ended = time.monotonic()
        self._spans.add_phase("generate", self.rollout_id, started, ended)
        spent = ended - started
        await self._report(result, {}, [], {"perf/rollout_time": spent, "perf/step_time": spent})
        self.rollout_id += 1
        if self._evaluates_after(self.rollout_id):
            await self._evaluate()

    async def _save(self) -> None:
        await self._samples.flush()
