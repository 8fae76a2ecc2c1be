"""Names of the metrics that the display and the report read; slime's own where slime has one.

`data/`, `rollout/`, `train/` and `eval/` are a function of the run's seed; `perf/` is time, speed and memory, and
`plugin/` how long plugins took: both differ from run to run.

    metrics = {names.REWARD: 0.61, names.RESPONSE_LENGTH: 41.2, names.eval_reward("chain"): 0.82}
"""

import re
from collections.abc import Mapping

REWARD = "rollout/raw_reward"
"""Mean raw reward of the rollout's samples."""
RESPONSE_LENGTH = "rollout/response_len/mean"
"""Mean response tokens a sample."""
LOSS = "train/loss"
"""The loss that was descended."""
THROUGHPUT = "perf/tokens_per_sec"
"""Response tokens per second of `perf/step_time`."""
STEP_TIME = "perf/step_time"
"""Seconds of the whole rollout, training included."""
ROLLOUT_TIME = "perf/rollout_time"
"""Seconds spent generating and scoring."""
TRAIN_TIME = "perf/train_time"
"""Seconds spent training."""

MEMORY_PREFIX = "perf/memory_mib/"
EVAL_PREFIX = "eval/"
MEASURED = ("perf/", "plugin/")
"""Beginnings of names of what is measured, and differs from run to run."""

_DETAIL = re.compile(r"-(truncated_ratio|pass@[0-9]+)$")


def memory(process: str) -> str:
    """Peak resident memory of a kind of process ("driver", "trainer", "engine"), in MiB."""
    return MEMORY_PREFIX + process


def eval_reward(dataset: str) -> str:
    """Mean reward of one evaluation data set."""
    return EVAL_PREFIX + dataset


def eval_datasets(metrics: Mapping[str, float]) -> list[str]:
    """Data sets whose mean reward is among `metrics`, sorted: `eval/NAME`, but not `eval/NAME-pass@4` and the like."""
    found = (name.removeprefix(EVAL_PREFIX) for name in metrics if name.startswith(EVAL_PREFIX))
    return sorted(name for name in found if "/" not in name and not _DETAIL.search(name))
