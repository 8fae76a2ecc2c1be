"""SlimeRunner trains on this machine."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from slime_compat.runner.process import Outcome
from slime_compat.runner.runner import SlimeRunner
from slime_core.errors import ConfigError

pytest.importorskip("slime_local", reason="the runs train with slime-local")
DIGITS = """from slime_core import Score


def digits(sample, ctx):
    return Score(sum(c.isdigit() for c in sample.response) / max(1, len(sample.response)))
"""


@pytest.fixture
def here(home: Path, small: Callable[..., SlimeRunner]) -> Callable[..., SlimeRunner]:
    """Makes a runner whose reward rises within few rollouts."""
    (home / "digits.py").write_text(DIGITS, "utf-8")
    sizes = {"rollout_max_response_len": 8, "rollout_batch_size": 8, "n_samples_per_prompt": 8, "lr": 2e-3}
    return partial(small, exp_id="digits", reward=f"{home / 'digits.py'}:digits", **sizes)


def test_stopped_run_resumes_and_learns(here: Callable[..., SlimeRunner]) -> None:
    runner = here(exp_id="long")
    with ThreadPoolExecutor() as threads:
        trained = threads.submit(runner.train, num_rollout=6)
        while "rollout 2/6" not in runner.logs():
            assert not trained.done(), runner.logs()
            time.sleep(0.02)
        other = here(exp_id="long")
        assert other.status().outcome is Outcome.RUNNING
        with pytest.raises(ConfigError, match=r"process \d+ already trains .*; stop\(\) ends it"):
            other.train(num_rollout=6)
        assert other.stop() is True
        stopped = trained.result()
    assert stopped.outcome is Outcome.STOPPED
    assert 2 <= len(stopped.rewards) < 6
    whole = runner.resume()
    assert whole.outcome is Outcome.DONE
    assert list(whole.rewards) == list(range(6))
    assert {rollout: whole.rewards[rollout] for rollout in stopped.rewards} == dict(stopped.rewards)
    assert whole.rewards[5] > whole.rewards[0]
    assert whole.model is not None
    assert (whole.model / "config.json").is_file()
    assert whole.report is not None
    later = here(exp_id="long")
    assert later.status() == whole
    assert "rollout 6/6" in later.logs()
    assert later.stop() is False
    assert later.status().outcome is Outcome.DONE


def test_unstarted_run_is_new(here: Callable[..., SlimeRunner]) -> None:
    runner = here(exp_id="never")
    assert runner.status().outcome is Outcome.NEW
    assert runner.logs() == ""
    assert runner.stop() is False
    with pytest.raises(ConfigError, match=r"no run in .*never to resume"):
        runner.resume()


def test_failed_run_reports_its_error(home: Path, here: Callable[..., SlimeRunner]) -> None:
    (home / "broken.jsonl").write_text("no row\n")
    runner = here(exp_id="broken", data_path=home / "broken.jsonl")
    with pytest.raises(
        ConfigError, match=r"slime train ended with exit code 2; .*broken\.log has its[\s\S]*broken\.jsonl:1"
    ):
        runner.train()
    assert runner.status().outcome is Outcome.FAILED
