"""Imported once by the server process from which workers are forked: what takes time, so that a worker starts at once.

Nothing here may start a thread.
"""

import os

import torch
import transformers.generation

import slime_core.local.engine_worker
import slime_core.local.launcher
import slime_core.local.rank
import slime_core.train.rank_host

torch.set_num_threads(1)
if os.environ.get("PYTHONSAFEPATH") == slime_core.local.launcher.SAFE_PATH:
    del os.environ["PYTHONSAFEPATH"]  # programs that plugins start find what lies beside them, as ever
PRELOADED = (
    transformers.generation.__name__,
    slime_core.local.engine_worker.__name__,
    slime_core.local.rank.__name__,
    slime_core.train.rank_host.__name__,
)
