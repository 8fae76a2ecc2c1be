"""The generator as a run calls it: a deployed agent asks the gateway, whose engine says what it is told."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from cloud import Cloud
from generating import generated, generator_named
from talker import Talker

from slime_core import Sample, Status
from slime_testing import GeneratorContract, make_pending
from slime_view.samples import Shard


def play(
    cloud: Cloud, talker: Talker, label: str = "Answer 0", *, evaluation: bool = False, **settings: object
) -> Sample:
    """The sample of a prompt."""
    generator = generator_named("agent_remote", **cloud.settings(**settings))
    ((sample,),) = generated(generator, talker, make_pending(prompt="17 + 25?", label=label), evaluation=evaluation)
    assert not list(sample.problems())
    return sample


def last(cloud: Cloud, what: str) -> dict[str, object]:
    return cloud.log(what)[-1]


def test_a_conversation_is_one_sample_with_the_reward_of_the_result(cloud: Cloud, talker: Talker) -> None:
    sample = play(cloud, talker, "Answer 1", rollout={"turns": 2})
    assert (sample.status, sample.reward) == (Status.COMPLETED, 1.0)
    trained = [t for t, bit in zip(sample.tokens[sample.prompt_length :], sample.loss_mask or (), strict=True) if bit]
    assert trained == [token for asked in talker.log for token in asked.output]


def test_the_agent_is_told_the_runs_sampling_which_is_no_reason_to_refuse_it(cloud: Cloud, talker: Talker) -> None:
    play(cloud, talker, model_id="my-policy")
    payload = last(cloud, "invoke")["payload"]
    assert isinstance(payload, dict)
    told = payload["_rollout"]
    assert told["sampling_params"] == {"temperature": 1.0, "top_p": 1.0, "max_tokens": 400}
    assert (told["model_id"], told["evaluation"]) == ("my-policy", False)
    assert (payload["prompt"], payload["answer"]) == ("17 + 25?", "Answer 0")
    play(cloud, talker, evaluation=True)
    assert last(cloud, "invoke")["payload"]["_rollout"]["evaluation"] is True


@pytest.mark.long  # TestAgent runs the same gateway; the tests above show what a runtime adds
class TestAgentRemote(GeneratorContract):
    choice = "slime-agent-openai/agent_remote"
    settings: ClassVar[dict[str, object]] = {}
    answers = ("one", "two", "three")

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _lead_there(cls, cloud: Cloud) -> None:
        """They are the cloud's, whose port is known once it runs."""
        cls.settings = cloud.settings(rollout={"turns": 3})


RUN = """
hf_checkpoint = "model"
save = "run"
prompt_data = "rows.jsonl"
input_key = "question"
label_key = "gold"
num_rollout = 2
rollout_batch_size = 1
n_samples_per_prompt = 4
rollout_max_response_len = 48
reward = {use = "environment"}

[generator]
use = "agent_remote"

[generator.agent_remote]
"""


@pytest.fixture(scope="module")
def run(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one that made two steps of four samples each."""
    write_tiny_model = pytest.importorskip("slime_local.demo.tiny").write_tiny_model

    root = tmp_path_factory.mktemp("remote")
    write_tiny_model(root / "model", task="chain", seed=0)
    rows = [{"question": f"{number} + {number}", "gold": str(2 * number)} for number in range(8)]
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = [f"{key} = {json.dumps(value)}" for key, value in cloud.settings(max_turn_tokens=12).items()]
    (root / "run.toml").write_text("\n".join([RUN, *settings, 'rollout = {turns = 2, graded = "by parity"}', ""]))
    argv = [sys.executable, "-m", "slime_core", "train", "run.toml"]
    done = subprocess.run(argv, cwd=root, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "run"


@pytest.mark.long
def test_a_model_is_trained_through_an_agent_in_a_runtime(run: Path, cloud: Cloud) -> None:
    rows = [row.to_dict() for path in sorted((run / "samples").glob("rollout_*.parquet")) for row in Shard(path).rows()]
    assert len(rows) == 8
    assert {row["status"] for row in rows} <= {"completed", "truncated"}
    assert {row["reward"] for row in rows} <= {0.0, 1.0}
    assert all("More, 0" in row["response"] for row in rows)
    asked = [each for each in cloud.log("invoke") if each["payload"]["_rollout"].get("graded")]
    assert len({each["session"] for each in asked}) == 8
    assert {each["session"] for each in asked} <= {each["session"] for each in cloud.log("stop")}
    assert asked[0]["payload"]["prompt"] in {f"{number} + {number}" for number in range(8)}
    steps = [json.loads(line)["metrics"] for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [step["rollout/agent_remote/turns/mean"] for step in steps] == [2.0, 2.0]
    assert all(step["rollout/agent_remote/tokens/mean"] > 2.0 for step in steps)
    assert all(step["train/train_rollout_logprob_abs_diff_max"] < 1e-3 for step in steps)
