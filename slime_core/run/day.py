"""Day: the date that a run's chat templates write, that of its first start, which its checkpoints keep.

Example:

    HfTokenizer.load(model, run_day(save, model))
"""

from datetime import date, datetime
from functools import cache
from pathlib import Path

from slime_core.errors import CheckpointError
from slime_core.run.checkpoint import STATE, Checkpoint, list_checkpoints


def run_day(save: Path, model: Path) -> date:
    """The day of a run: its checkpoints', else that of the checkpoint that `model` is a part of, else today.

    Args:
        save: the run folder; there may be none.
        model: the model directory.
    """
    for path in reversed(list_checkpoints(save / "checkpoints")):
        if day := _day_of(path):
            return day
    return model_day(model)


def model_day(model: Path) -> date:
    """The day of the checkpoint that a model directory is a part of, else today."""
    beside = model.resolve().parent
    return (_day_of(beside) if (beside / STATE).is_file() else None) or today()


@cache
def today() -> date:
    """The local date when this process asked first: one process reads all prompts with one date."""
    return datetime.now().astimezone().date()


def _day_of(path: Path) -> date | None:
    try:
        return Checkpoint(path, 0).state().day
    except CheckpointError:  # reported where it is loaded
        return None
