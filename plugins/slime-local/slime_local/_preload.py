"""Slow imports, done once in the process from which workers are forked, so that workers start at once.

Nothing here may start a thread.
"""

import torch
import transformers.generation

import slime_local.engine_worker
import slime_local.rank

torch.set_num_threads(1)
PRELOADED = (
    transformers.generation.__name__,
    slime_local.engine_worker.__name__,
    slime_local.rank.__name__,
)
