"""SlimeRunner on a Ray cluster, joined by its address."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime_compat.runner.process import Outcome
from slime_compat.runner.runner import SlimeRunner
from slime_core.errors import ConfigError

Small = Callable[..., SlimeRunner]
NOBODY = "127.0.0.1:9"


@pytest.mark.cluster
def test_joined_cluster_outlives_the_run(home: Path, small: Small) -> None:
    pytest.importorskip("slime_local")
    pytest.importorskip("slime_launcher_ray")
    import sys

    from ray_clusters import OPEN, head

    with pytest.MonkeyPatch.context() as patch:
        for name, value in OPEN.items():
            patch.setenv(name, value)
        with head([Path(sys.executable).with_name("ray")], home) as cluster:
            for exp_id in ("first", "second"):
                assert small(ray_address=cluster.address, exp_id=exp_id).train(1).outcome is Outcome.DONE


def test_unreachable_cluster_is_named(small: Small) -> None:
    pytest.importorskip("slime_launcher_ray")
    pytest.importorskip("slime_local")
    runner = small(ray_address=NOBODY)
    with pytest.raises(ConfigError, match=rf"ended with exit code 2[\s\S]*{NOBODY}"):
        runner.train()
    assert not (runner.folder / "metrics.jsonl").exists()
    assert runner.status().outcome is Outcome.FAILED
    assert "Traceback" not in runner.logs()
