"""A run whose agents differ in their rewards by turn alone: an estimator that reads these learns."""

import pytest

from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Slime

AGENT = '''
import json
import urllib.request

from slime_agent_openai import Result


def asks_twice(task):
    """What each turn earns is a function of what the model said; the whole earns nothing."""
    messages, earned = [{"role": "user", "content": task.prompt}], []
    for _ in range(2):
        body = json.dumps({"model": task.model, "messages": messages}).encode()
        request = urllib.request.Request(f"{task.openai_base_url}/chat/completions", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            said = json.load(answer)["choices"][0]["message"]
        messages += [said, {"role": "user", "content": "more"}]
        earned.append(sum(map(ord, said["content"])) % 7)
    return Result(0.0, turn_rewards=earned)
'''


def test_rewards_by_turn_teach_where_the_estimator_reads_them(project: Project, slime: Slime) -> None:
    pytest.importorskip("slime_agent_openai", reason="needs the plugin slime-agent-openai")
    (project.root / "agents.py").write_text(AGENT)
    project.write_run(
        num_rollout=1,
        apply_chat_template=None,
        rollout_max_response_len=40,
        generator={"use": "agent", "agent": {"agent": "./agents.py:asks_twice", "workers": 1, "max_turn_tokens": 6}},
        reward={"use": "environment"},
        batch_transform={"use": ["turn_rewards"]},
        advantage={"use": "turn_level"},
    )
    slime.ok("train", "run.toml")
    (row,) = MetricsLog.read(project.run / "metrics.jsonl")
    assert row.metrics["rollout/raw_reward"] == 0.0
    assert row.metrics["rollout/agent/turns/mean"] == 2.0
    assert row.metrics["train/grad_norm"] > 0.0
