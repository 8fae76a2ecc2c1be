"""A long run in which engines and rewards fail at random: it ends, nearly all samples count, and memory stays."""

import json
import sys
import time
from pathlib import Path
from statistics import median

import pytest

from slime_core.telemetry import MetricsLog
from tests.faults.accounts import Accounts
from tests.faults.figures import ALL, WHOLE, Figures
from tests.faults.toy import train, write_project

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory in /proc")

GROUPS, GROUP = 128, 8
ROLLOUTS = 1000 if WHOLE else 20
MOST_GROWTH, LEAST_EFFECTIVE = 0.05, 0.97
FAULTS = (
    *(f"perf/engine/quarantined/{cause}" for cause in ("died", "hung", "garbage", "stale")),
    *(f"rollout/errors/faulty_{reason}" for reason in ("ValueError", "contract")),
    "plugin/reward/faulty/timeouts",
)


@pytest.mark.timeout(3600)
def test_a_long_run_with_random_faults_loses_few_samples_and_keeps_its_memory(tmp_path: Path) -> None:
    modules = [str(Path(__file__).with_name(name)) for name in ("toy.py", "faulty.py")]
    run_file = write_project(
        tmp_path,
        rows=10_000,
        plugins={"only": [], "modules": modules},
        rollout_batch_size=GROUPS,
        over_sampling_batch_size=None,
        n_samples_per_prompt=GROUP,
        num_rollout=ROLLOUTS,
        rollout_num_engines=8,
        rollout_engine_timeout_s=2.0,
        group_filter=None,
        eval_interval=100,
        save_interval=50,
        reward={"use": "faulty"},
        engine={"use": "faulty"},
        launcher={"use": "counted"},
    )
    began = time.monotonic()
    run = train(run_file)
    accounts = Accounts.of(run, max_uses=1)
    assert (accounts.drawn, accounts.lost, accounts.over_used) == (ROLLOUTS * GROUPS, [], [])
    rows = [row.metrics for row in MetricsLog.read(run / "metrics.jsonl")]
    told = [json.loads(line) for line in (tmp_path / "soak.jsonl").read_text().splitlines()]
    *before, last = told  # a line is written before its rollout is trained on
    effective = last["trained"] / (GROUP * sum(each["groups"] for each in before))
    tenth = ROLLOUTS // 10
    early, late = (median(each["kib"] for each in part) for part in (told[tenth : 2 * tenth], told[-tenth:]))
    faults = {name: int(sum(row.get(name, 0.0) for row in rows)) for name in FAULTS}
    assert all(faults.values()) or not WHOLE
    what = (
        f"random faults in {ROLLOUTS * GROUPS * GROUP:,} samples ({100 * effective:.1f} % trained on, memory "
        f"{100 * (late / early - 1):+.1f} %)"
    )
    tried = sum(faults.values())
    ALL.append(Figures(what, tried=tried, resumed=tried, seconds=time.monotonic() - began))
    assert effective >= LEAST_EFFECTIVE
    assert late <= early * (1 + MOST_GROWTH) or not WHOLE, "a short run still fills its caches"
