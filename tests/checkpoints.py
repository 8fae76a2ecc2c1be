"""A checkpoint written whole, for tests that need one and not a run.

from tests.checkpoints import write_checkpoint

checkpoint = asyncio.run(write_checkpoint(root, 20, NO_STATE, save_model, keep=1))
"""

from collections.abc import Mapping
from pathlib import Path

from slime_core.run import Checkpoint, Saver
from slime_core.run.checkpoint import FinishModel, SaveModel
from slime_core.sample import Json


async def is_written(wait: bool) -> bool:
    """Whether the model's files are complete, of a `SaveModel` that writes them at once."""
    return True


async def write_checkpoint(
    root: Path,
    rollout_id: int,
    state: Mapping[str, Json],
    save_model: SaveModel,
    keep: int,
    finish_model: FinishModel = is_written,
) -> Checkpoint:
    """Save as a run does, and wait for the end; errors as of `Saver`."""
    saver = Saver(root, keep)
    await saver.save(rollout_id, state, save_model, finish_model)
    checkpoint = await saver.finished(wait=True)
    assert checkpoint is not None, "it was waited for"
    return checkpoint
