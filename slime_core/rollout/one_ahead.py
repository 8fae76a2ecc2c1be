"""OneAhead: the policy `async`: the next rollout is generated while the trainer works, with weights one version older.

The weights change only between two rollouts, so that each is made by one version; a checkpoint holds the rollout that
waits for its training.
"""

import asyncio
from collections.abc import Mapping
from typing import cast

from slime_core.rollout.scheduler import RolloutResult, refuse_foreign
from slime_core.rollout.waves import Waves
from slime_core.rollout.work import cancel_all
from slime_core.sample import Group, Json


class OneAhead(Waves):
    """Generates during training steps."""

    _ahead: "asyncio.Task[RolloutResult] | None" = None
    _ready: RolloutResult | None = None

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """The rollout that was generated ahead, or one that is generated now; errors as in `Scheduler`."""
        await self.settle()
        result, self._ready = self._ready, None
        return result or await super().collect(rollout_id, want)

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """Begin to generate that rollout."""
        self._ahead = asyncio.create_task(super().collect(rollout_id, want))

    async def settle(self) -> None:
        """Wait until the rollout under way is finished: it is made by one version of the weights."""
        if self._ahead is not None:
            task, self._ahead = self._ahead, None
            try:
                self._ready = await task
            except asyncio.CancelledError:
                await cancel_all([task])
                raise

    def live(self) -> tuple[int, int]:
        """Nothing is in flight once it settled; what is ready waits."""
        return 0, len(self._ready.kept) if self._ready else 0

    def state_dict(self) -> dict[str, Json]:
        """The rollout that waits."""
        if self._ready is None:
            return {}
        return {"kept": [group.to_dict() for group in self._ready.kept], "metrics": dict(self._ready.metrics)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Wait with it again; of its dropped groups only the metrics are left. Errors as in `Scheduler`."""
        refuse_foreign(state, {"kept", "metrics"})
        if state:
            kept = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["kept"])]
            self._ready = RolloutResult(kept, [], {}, cast(Mapping[str, float], state["metrics"]))

    async def close(self) -> None:
        """End the rollout under way."""
        if self._ahead is not None:
            await cancel_all([self._ahead])
            self._ahead = None
