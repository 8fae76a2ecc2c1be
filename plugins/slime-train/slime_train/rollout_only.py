"""RolloutLoop: generates, scores and stores samples without a trainer, always with the model directory's weights.

`--load-debug-rollout-data` trains on its samples. It writes no checkpoint, so a second call starts over.
"""

import time

from slime_core.roles import Draw
from slime_core.run.loop import Loop
from slime_core.telemetry import GeneratedGroups

REASON = "debug_rollout_only"
"""The ledger's reason why no group was trained on."""


class RolloutLoop(Loop):
    """The loop without its second half."""

    async def _one_rollout(self) -> None:
        session, started, batch = self._session, time.monotonic(), self._config.rollout.rollout_batch_size
        result = await self._collect(batch)
        draw = Draw(result.kept[:batch], [1.0] * min(batch, len(result.kept)))
        generated = GeneratedGroups(result.kept, result.dropped, result.reasons, result.failed)
        await self._samples.write(self.rollout_id, generated, draw)
        session.ledger.drop({group.id: REASON for group in result.kept}, self.rollout_id)
        ended = time.monotonic()
        self._spans.add_phase("generate", self.rollout_id, started, ended)
        spent = {"perf/rollout_time": ended - started, "perf/step_time": ended - started}
        metrics = {**session.source.data_metrics(), **result.metrics, "rollout/step": float(self.rollout_id), **spent}
        await self._log(self.rollout_id, metrics)
        self.rollout_id += 1
        await self._evaluate_if_due()

    async def _save(self, *, is_best: bool = False) -> None:
        await self._samples.flush()
