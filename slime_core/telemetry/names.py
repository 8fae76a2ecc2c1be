"""Names of metrics that the display and the report read; slime's names where slime has the metric.

`data/`, `rollout/`, `train/` and `eval/` depend only on the run's seed. `perf/` has time, speed and memory, and
`plugin/` the time that plugins took: both differ between runs.

    metrics = {names.REWARD: 0.61, names.RESPONSE_LENGTH: 41.2, names.eval_reward("chain"): 0.82}
"""

import re
from collections.abc import Mapping

REWARD = "rollout/raw_reward"
"""Mean raw reward of the rollout's samples."""
RESPONSE_LENGTH = "rollout/response_len/mean"
"""Mean number of response tokens per sample."""
LOSS = "train/loss"
"""The loss that the optimizer minimizes."""
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
"""Name prefixes of measurements that differ between runs."""

_DETAIL = re.compile(r"-(truncated_ratio|pass@[0-9]+)$")


def memory(process: str) -> str:
    """Name of the peak resident memory, in MiB, of a kind of process ("driver", "trainer", "engine")."""
    return MEMORY_PREFIX + process


def eval_reward(dataset: str) -> str:
    """Name of the mean reward of an evaluation data set."""
    return EVAL_PREFIX + dataset


def eval_datasets(metrics: Mapping[str, float]) -> list[str]:
    """Data sets with a mean reward in `metrics`, sorted: `eval/NAME`, but not `eval/NAME-pass@4` or similar names."""
    found = (name.removeprefix(EVAL_PREFIX) for name in metrics if name.startswith(EVAL_PREFIX))
    return sorted(name for name in found if "/" not in name and not _DETAIL.search(name))
