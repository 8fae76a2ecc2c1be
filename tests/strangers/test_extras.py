"""A stranger's engine says all that is known of each token: its contract, and a run with a stranger's trainer, who
reads some of it.
"""

from pathlib import Path
from typing import Any

import pytest

from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard
from tests.strangers.conftest import HERE, Site

Project = Any


@pytest.mark.long
def test_its_contract_holds(site: Site, tmp_path: Path) -> None:
    said = site.pytest(HERE / "naive" / "test_naive.py", tmp_path)
    assert " passed" in said
    assert "gives" not in said  # no check of extras is skipped


def test_a_run_has_in_its_samples_and_its_trainer_what_only_the_engine_knew(site: Site, project: Project) -> None:
    chosen = {"engine": {"use": "naive"}, "trainer": {"use": "halves"}}
    project.write_run(rollout_top_p=0.9, rollout_num_engines=2, **chosen)
    site.run(project.root, "-m", "slime_core", "train", "run.toml", "--no-progress")

    rows = [dict(row.metrics) for row in MetricsLog.read(project.run / "metrics.jsonl")]
    assert len(rows) == 2
    for row in rows:
        assert row["train/top_p_kept"] > 1.0
        assert row["train/train_rollout_logprob_abs_diff"] < 1e-5
        assert row["train/grad_norm"] > 0.0
    first = Shard(project.run / "samples" / "rollout_000000.parquet").groups().kept
    for sample in (sample for group in first for sample in group.samples):
        assert sample.prefix_cache_info.total_prompt_tokens == sample.prompt_length
