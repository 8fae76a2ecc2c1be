"""SlimeRunner trains on this machine, and end to end with an agent of AgentCore."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
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


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, prompts, and a reward that rises soon."""
    from slime_local.demo.tiny import write_tiny_model

    root = tmp_path_factory.mktemp("runner")
    write_tiny_model(root / "model", task="chain", seed=0)
    rows = [{"prompt": f"{number} + {number}", "label": str(2 * number)} for number in range(32)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (root / "digits.py").write_text(DIGITS, "utf-8")
    return root


def here(home: Path, **fields: object) -> SlimeRunner:
    given = {
        "exp_id": "digits",
        "model_dir": home / "model",
        "data_path": home / "rows.jsonl",
        "run_dir": home / "runs",
        "reward": f"{home / 'digits.py'}:digits",
        "num_gpus": 0,
        "rollout_max_response_len": 8,
        "rollout_batch_size": 8,
        "n_samples_per_prompt": 8,
        "lr": 2e-3,
    }
    return SlimeRunner(**{**given, **fields})  # type: ignore[arg-type]


def test_ten_rollouts_raise_the_reward(home: Path) -> None:
    runner = here(home)
    trained = runner.train(num_rollout=10)
    assert trained.outcome is Outcome.DONE
    assert list(trained.rewards) == list(range(10))
    assert trained.rewards[9] > trained.rewards[0]
    assert trained.model is not None
    assert (trained.model / "config.json").is_file()
    assert trained.report is not None
    later = here(home)
    assert later.status() == trained
    assert "rollout 10/10" in later.logs()
    assert later.stop() is False
    assert later.status().outcome is Outcome.DONE


def test_one_that_is_stopped_goes_on_to_its_end(home: Path) -> None:
    runner = here(home, exp_id="long")
    with ThreadPoolExecutor() as threads:
        trained = threads.submit(runner.train, num_rollout=6)
        while "rollout 2/6" not in runner.logs():
            assert not trained.done(), runner.logs()
            time.sleep(0.02)
        other = here(home, exp_id="long")
        assert other.status().outcome is Outcome.RUNNING
        with pytest.raises(ConfigError, match=r"is trained already, by process \d+: stop\(\) ends it"):
            other.train(num_rollout=6)
        assert other.stop() is True
        stopped = trained.result()
    assert stopped.outcome is Outcome.STOPPED
    assert 2 <= len(stopped.rewards) < 6
    whole = runner.resume()
    assert whole.outcome is Outcome.DONE
    assert list(whole.rewards) == list(range(6))
    assert {rollout: whole.rewards[rollout] for rollout in stopped.rewards} == dict(stopped.rewards)


def test_one_that_has_not_begun_is_new(home: Path) -> None:
    runner = here(home, exp_id="never")
    assert runner.status().outcome is Outcome.NEW
    assert runner.logs() == ""
    assert runner.stop() is False
    with pytest.raises(ConfigError, match=r"no run in .*never to go on with"):
        runner.resume()


def test_one_that_fails_says_how_it_ended(home: Path) -> None:
    (home / "broken.jsonl").write_text("no row\n")
    runner = here(home, exp_id="broken", data_path=home / "broken.jsonl")
    with pytest.raises(ConfigError, match=r"slime train ended with 2; .*broken\.log has all[\s\S]*broken\.jsonl:1"):
        runner.train()
    assert runner.status().outcome is Outcome.FAILED


def test_an_agent_is_trained_end_to_end_against_servers_of_both_apis(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3")
    pytest.importorskip("slime_agent_openai")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "slime-agent-openai" / "tests"))
    from cloud import CREDENTIALS, Cloud

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with Cloud.started() as cloud:
        settings = cloud.settings()
        fields = {
            "agent_runtime_arn": settings["agent_runtime_arn"],
            "s3_bucket": settings["s3_bucket"],
            "acr_endpoint_url": settings["endpoint_url"],
            "s3_endpoint_url": settings["s3_endpoint_url"],
            "gateway_port": 0,
            "reward": None,
            "exp_id": "agent",
            "run_dir": tmp_path,
            "rollout_batch_size": 1,
            "n_samples_per_prompt": 4,
            "rollout_max_response_len": 48,
            "label_key": "label",
            "extra_flags": [
                *("--generator.agent_remote.initial_interval", "0.02"),
                *("--generator.agent_remote.rollout", '{"graded": "by parity"}'),
            ],
        }
        result = here(home, **fields).train(num_rollout=10)
        assert len({each["session"] for each in cloud.log("invoke")}) == 40
    assert result.outcome is Outcome.DONE
    assert list(result.rewards) == list(range(10))
    assert len(set(result.rewards.values())) > 1, "what the agent's results say is what is trained on"
    assert os.environ.get("AWS_SECRET_ACCESS_KEY", "none") not in here(home, **fields).logs()
