"""SlimeRunner on a Ray cluster: joined by its address, and as a job of it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slime_compat.runner.process import Outcome
from slime_compat.runner.runner import SlimeRunner
from slime_core.errors import ConfigError
from tests.tables import table

Small = Callable[..., SlimeRunner]
NOBODY = "127.0.0.1:9"


@pytest.fixture(scope="module")
def jobs() -> Iterator[str]:
    """The address of a server of jobs, and this machine open to it."""
    pytest.importorskip("slime_launcher_ray")
    from job_server import OPEN, job_server

    with pytest.MonkeyPatch.context() as patch, job_server({}, cpus=4) as url:
        for name, value in OPEN.items():
            patch.setenv(name, value)
        yield url


@pytest.mark.cluster
def test_a_job_is_trained_followed_and_read(small: Small, jobs: str) -> None:
    pytest.importorskip("slime_local")
    runner = small(ray_address=jobs)
    trained = runner.train(2)
    assert trained.outcome is Outcome.DONE
    assert list(trained.rewards) == [0, 1]
    later = small(ray_address=jobs)
    assert later.status() == trained
    assert "rollout 2/2" in later.logs()
    assert later.stop() is False


@pytest.mark.cluster
def test_a_job_is_stopped_from_elsewhere_and_goes_on(small: Small, jobs: str) -> None:
    pytest.importorskip("slime_local")
    runner = small(ray_address=jobs, exp_id="long", extra_flags=["--save-interval", "50"])
    with ThreadPoolExecutor() as threads:
        trained = threads.submit(runner.train, num_rollout=150)
        while "rollout   2/150" not in runner.logs():
            assert not trained.done(), runner.logs()
            time.sleep(0.1)
        other = small(ray_address=jobs, exp_id="long")
        assert other.status().outcome is Outcome.RUNNING
        with pytest.raises(ConfigError, match=rf"is trained already, by job \S+ of {jobs}: stop\(\) ends it"):
            other.train(150)
        assert other.stop() is True
        stopped = trained.result()
    assert stopped.outcome is Outcome.STOPPED
    assert 2 <= len(stopped.rewards) < 150
    whole = runner.resume()
    assert whole.outcome is Outcome.DONE
    assert list(whole.rewards) == list(range(150))
    assert {rollout: whole.rewards[rollout] for rollout in stopped.rewards} == dict(stopped.rewards)


@pytest.mark.cluster
def test_a_cluster_is_joined_and_goes_on_without_the_run(home: Path, small: Small) -> None:
    pytest.importorskip("slime_local")
    pytest.importorskip("slime_launcher_ray")
    import sys

    from heads import OPEN, head

    with pytest.MonkeyPatch.context() as patch:
        for name, value in OPEN.items():
            patch.setenv(name, value)
        with head([Path(sys.executable).with_name("ray")], home) as cluster:
            for exp_id in ("first", "second"):
                assert small(ray_address=cluster.address, exp_id=exp_id).train(1).outcome is Outcome.DONE


@table(
    "address, said",
    [(f"http://{NOBODY}", "no server of Ray's jobs answers at http://127.0.0.1:9"), (NOBODY, "127.0.0.1:9")],
)
def test_a_cluster_that_does_not_answer_is_named_and_nothing_is_begun(small: Small, address: str, said: str) -> None:
    pytest.importorskip("slime_launcher_ray")
    pytest.importorskip("slime_local")
    runner = small(ray_address=address)
    with pytest.raises(ConfigError, match="ended with 2") as raised:
        runner.train()
    assert said in str(raised.value)
    assert not (runner.folder / "metrics.jsonl").exists()
    assert runner.status().outcome is Outcome.FAILED
    assert "Traceback" not in runner.logs()
