"""Training without engines: the session and the loop that training on kept samples and finetuning share.

Example:

    class Finetuning(TrainingLoop):
        async def _next(self): ...           # the groups to train on, and what is reported of them
"""

from collections.abc import Callable, Mapping, Sized

from slime_core.config import Plan
from slime_core.errors import CheckpointError
from slime_core.run import Checkpoint, RunFolder
from slime_core.run.build import tokenizer_notes
from slime_core.run.ledger import SavedState
from slime_core.run.loop import BaseLoop
from slime_core.run.session import BaseSession
from slime_core.sample import Json
from slime_core.telemetry import Display


class TrainingSession(BaseSession):
    """A trainer alone."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        display: Display,
        prompts: Callable[["TrainingSession"], Sized],
        unit: str = "rollout",
    ) -> None:
        """Build what needs no process; `prompts` returns the rows of an epoch, and `unit` is what the run counts."""
        super().__init__(plan, folder, display)
        self.unit = unit
        self.preparation = self.build.preparation()
        self.launcher = self.build.launcher(folder)
        self._count(lambda: prompts(self))
        for note in tokenizer_notes(self.build):
            display.message(note)

    async def close(self) -> None:
        await self.launcher.close()
        await self.trackers.close()


class TrainingLoop(BaseLoop):
    """A training in progress; a subclass supplies the groups of each rollout."""

    async def _begin(self, *, resumed: bool) -> None:
        if not resumed:
            self._saved_at = 0  # nothing is to be resumed before the first step
            await self._evaluate_if_due()

    def _own_state(self) -> dict[str, Json]:
        return {}

    async def _parts(self) -> Mapping[str, Json]:
        return self._own_state()

    def _restore(self, checkpoint: Checkpoint, state: SavedState) -> None:
        accepts, kept = self._config.data.accept_changed_data, state.model_extra or {}
        if not accepts and any(kept.get(key) != value for key, value in self._own_state().items()):
            raise CheckpointError(
                "the training data has changed since the checkpoint was written: put the old data back, pass "
                "--accept-changed-data to go on with the new from the same place, or start anew with another --save"
            )
