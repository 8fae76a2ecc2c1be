"""A checkpoint written whole, for tests that need one and not a run.

from tests.checkpoints import write_checkpoint

checkpoint = asyncio.run(write_checkpoint(root, 20, NO_STATE, save_model, keep=1))
"""

from collections.abc import Mapping
from pathlib import Path

from slime_core.run import Checkpoint, Saver
from slime_core.run.saving import FinishModel, SaveModel, stands
from slime_core.sample import Json


async def write_checkpoint(
    root: Path,
    rollout_id: int,
    state: Mapping[str, Json],
    save_model: SaveModel,
    keep: int,
    finish_model: FinishModel = stands,
) -> Checkpoint:
    """Save as a run does, and wait for the end; errors as of `Saver`."""
    saver = Saver(root, keep)
    await saver.save(rollout_id, state, save_model, finish_model)
    checkpoint = await saver.saved(wait=True)
    assert checkpoint is not None, "it was waited for"
    return checkpoint
