"""Rewards that raise, sleep, spin, take 32 GB, call exit, crash or return garbage: one sample each, in time."""

import json
import sys
from pathlib import Path

import pytest

from slime_core.stats import percentile
from slime_core.telemetry import MetricsLog
from tests.faults.accounts import Accounts
from tests.faults.bad_reward import BAD, TIMEOUT_S
from tests.faults.figures import ALL, Figures
from tests.faults.toy import train, write_project

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits memory by cgroups' figures")

ROWS = 13
FAILURES = {"ValueError": 1, "timeout": 2, "memory": 1, "died": 2, "contract": 1}
"""By reason; asleep and spinning samples time out, and exits and crashes are deaths."""
LATE_S, LAG_S = 1.0, 0.5
"""Most seconds beyond the time limit, and the latest turn of the loop but for one in a hundred: ten times the aim of
0.05, for a machine that others use."""


@pytest.mark.faults_full
def test_only_that_sample_fails_in_time_and_by_name(tmp_path: Path) -> None:
    """A rollout of all rows, in which seven samples meet a bad end."""
    modules = [str(Path(__file__).with_name(name)) for name in ("toy.py", "bad_reward.py")]
    run_file = write_project(
        tmp_path,
        rows=ROWS,
        plugins={"only": [], "modules": modules},
        reward={"use": "judge"},
        rollout_batch_size=ROWS,
        over_sampling_batch_size=None,
        group_filter=None,
        num_rollout=1,
        rollout_shuffle=False,
        max_error_rate=0.5,
    )
    run = train(run_file)
    metrics = MetricsLog.read(run / "metrics.jsonl")[1].metrics
    prefix = "rollout/errors/judge_"
    assert {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)} == FAILURES
    assert sum(FAILURES.values()) == len(BAD)
    accounts = Accounts.of(run, max_uses=1)
    assert (accounts.drawn, accounts.lost, accounts.over_used) == (ROWS, [], [])
    slowest = metrics["plugin/reward/judge/p99"]
    lag = percentile(sorted(json.loads((tmp_path / "lags.json").read_text())), 0.99)
    what = f"rewards of 7 bad kinds (slowest call {slowest:.2f} s of {TIMEOUT_S:g}; lag p99 {1e3 * lag:.1f} ms)"
    ALL.append(Figures(what, tried=len(BAD), resumed=len(BAD), seconds=metrics["perf/rollout_time"]))
    assert slowest <= TIMEOUT_S + LATE_S
    assert lag <= LAG_S
