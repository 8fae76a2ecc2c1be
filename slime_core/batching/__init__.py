"""Turns finished groups into the batches of a training step: prepares them, splits them over ranks, checks results.

All of it runs in the driver and needs no torch. Advantages and losses run on the ranks, in the package slime-train.

Example:

    prepared = Preparation(shapers, columns).prepare(draw, rollout_id=3)
    batches = split_step(prepared, 2, rollout_id=3)
"""
