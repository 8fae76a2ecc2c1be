"""Turns finished groups into the batches of a training step: prepares them, splits them over ranks, checks results.

All of it runs in the driver and needs no torch. Advantages and losses run on the ranks, in the package slime-train.

Example:

    prepared = Preparation(shapers, columns).of(draw, rollout_id=3)
    batches = split_step(prepared, 2, rollout_id=3)
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.batching.prepare import ColumnMaker as ColumnMaker
    from slime_core.batching.prepare import MismatchLimits as MismatchLimits
    from slime_core.batching.prepare import Preparation as Preparation
    from slime_core.batching.prepare import TrainGroup as TrainGroup
    from slime_core.batching.prepare import TrainSample as TrainSample
    from slime_core.batching.prepare import check_columns as check_columns
    from slime_core.batching.prepare import check_shaped as check_shaped
    from slime_core.batching.prepare import check_slots as check_slots
    from slime_core.batching.prepare import check_step_result as check_step_result
    from slime_core.batching.prepare import reward_columns as reward_columns
    from slime_core.batching.prepare import shaping_metrics as shaping_metrics
    from slime_core.batching.prepare import teacher_column as teacher_column
    from slime_core.batching.split import Cost as Cost
    from slime_core.batching.split import Shares as Shares
    from slime_core.batching.split import split_step as split_step
    from slime_core.batching.split import steps_of as steps_of
else:
    __getattr__, __all__ = exports(__name__)
