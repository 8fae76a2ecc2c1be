"""SlimeRunner checks its fields on creation, shows a dry run, and refuses to overwrite other files."""

from pathlib import Path

import pytest

import slime_core
from slime_compat.runner.fields import run_file_keys
from slime_compat.runner.runner import SlimeRunner
from slime_core.errors import ConfigError, SlimeError
from slime_core.sample import Json
from tests.tables import table

LEAST: dict[str, Json] = {"exp_id": "first", "model_dir": "models/m", "data_path": "rows.jsonl"}
AGENT: dict[str, Json] = {
    "agent_runtime_arn": "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/my_agent-a1B2c3D4e5",
    "s3_bucket": "results",
}


def made(**fields: object) -> SlimeRunner:
    return SlimeRunner(**{**LEAST, **fields})  # type: ignore[arg-type]


def keys(**fields: object) -> dict[str, Json]:
    return run_file_keys(made(**fields), 3)


def test_ray_address_selects_the_ray_launcher() -> None:
    assert keys(ray_address="head:6379")["launcher"] == {"use": "ray", "ray": {"address": "head:6379"}}


def test_evaluation_and_saving_are_fields_too() -> None:
    found = keys(eval_prompt_data={"heldout": "eval.jsonl"}, eval_interval=5, save_interval=10)
    assert (found["eval_prompt_data"], found["eval_interval"], found["save_interval"]) == (
        {"heldout": "eval.jsonl"},
        5,
        10,
    )


def test_slime_runner_is_exported_by_the_core() -> None:
    assert slime_core.SlimeRunner is SlimeRunner


@table(
    "fields, message",
    [
        ({"num_gpus": "eight"}, "num_gpus = 'eight': input should be a valid integer"),
        ({"num_gpu": 8}, "there is no field 'num_gpu'. Did you mean 'num_gpus'?"),
        ({"lr": -1}, "lr = -1: input should be greater than 0"),
        ({"reward_postprocessing": "none"}, "reward_postprocessing = 'none': input should be 'grpo' or 'identity'"),
        ({"num_gpus": True}, "num_gpus = True: input should be a number"),
        ({"exp_id": "../up"}, "exp_id = '../up'"),
        ({"s3_bucket": "s3://results"}, "give only the bucket's name"),
        ({"exp_id": None}, "exp_id = None"),
        ({"ray_address": "ray://head:10001"}, "expected HOST:PORT of a head, such as head:6379, or auto"),
        ({"agent_runtime_arn": AGENT["agent_runtime_arn"]}, "give agent_runtime_arn and s3_bucket, or neither"),
        ({"wandb_group": "g"}, "wandb_group needs wandb_project"),
        (
            {"extra_flags": ["--save=elsewhere"]},
            "--save cannot be in extra_flags: run_dir and exp_id set the run folder",
        ),
    ],
)
def test_invalid_fields_are_refused_at_construction(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        made(**fields)
    assert message in str(raised.value)


def test_missing_fields_are_listed_together() -> None:
    with pytest.raises(ConfigError, match="exp_id is required; model_dir is required; data_path is required"):
        SlimeRunner()


def test_toolkit_fields_become_keys() -> None:
    found = keys(num_gpus=4, tp_size=2, rollout_batch_size=16, lr=2e-6, max_tokens_per_gpu=4096, adam_beta2=0.9)
    assert (found["num_rollout"], found["rollout_batch_size"], found["lr"], found["adam_beta2"]) == (3, 16, 2e-6, 0.9)
    assert (found["actor_num_gpus_per_node"], found["rollout_num_gpus_per_engine"], found["colocate"]) == (4, 2, True)
    assert found["trainer"] == {
        "use": "megatron",
        "megatron": {"tensor_model_parallel_size": 2, "max_tokens_per_gpu": 4096, "sequence_parallel": True},
    }
    assert (found["eps_clip"], found["eps_clip_high"], found["weight_decay"]) == (0.2, 0.28, 0.1)
    assert found["save"] == "runs/first"
    sglang = {"mem_fraction_static": 0.7, "context_length": 8192, "dp_size": 4}
    asked = keys(sglang_context_length=8192, sglang_data_parallel_size=4)
    assert asked["engine"] == {"use": "sglang", "sglang": {"server": sglang}}
    assert found["engine"] == {"use": "sglang", "sglang": {"server": {"mem_fraction_static": 0.7}}}


def test_agent_fields_configure_agent_remote() -> None:
    found = keys(**AGENT, acr_timeout=60, acr_tps_limit=5, max_concurrent=7, gateway_port=0, model_id="policy")
    assert found["reward"] == {"use": "environment"}
    assert found["generator"] == {
        "use": "agent_remote",
        "agent_remote": {
            **AGENT,
            "exp_id": "first",
            "model_id": "policy",
            "seconds": 60.0,
            "tps_limit": 5.0,
            "max_concurrent": 7,
            "max_pool_connections": 100,
            "host": "127.0.0.1",
            "port": 0,
        },
    }
    assert keys(reward_postprocessing="identity")["rewards_normalization"] is False


def test_no_gpus_means_local_plugins() -> None:
    assert not {"trainer", "engine", "colocate"} & keys(num_gpus=0).keys()


def test_dry_run_starts_nothing_and_lists_unused_fields(tmp_path: Path) -> None:
    planned = made(run_dir=tmp_path / "runs", renderer_family="qwen", num_gpus=8).dry_run(5)
    assert "num_rollout = 5" in planned.run_file
    assert planned.notes == ("renderer_family: the model's chat template renders prompts",)
    assert list(tmp_path.iterdir()) == []


@table(
    "text, message",
    [
        ("", "is empty: it needs exp_id, model_dir and data_path"),
        ("exp_id: a\nexp_id: b\n", 'line 2: found duplicate key "exp_id"'),
        ("exp_id: a\nmodel_dir: m\ndata_path: d\nnum_gpu: 2\n", "Did you mean 'num_gpus'?"),
        ("exp_id: a\nmodel_dir: m\ndata_path: d\ns3_bucket: $env:NOT_SET_ANYWHERE\n", "NOT_SET_ANYWHERE"),
        ("k: &a [1, *a]", "its aliases expand to over"),
        (
            "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 99)),
            "its aliases expand to over",
        ),
        ("k: " + "[" * 500 + "]" * 500, "is nested too deeply"),
    ],
)
def test_invalid_yaml_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "runner.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as raised:
        SlimeRunner.from_yaml(path)
    assert message in str(raised.value)
    assert "runner.yaml" in str(raised.value)


@table(
    "fields, message",
    [
        (AGENT, 'a runtime in AWS cannot reach 127.0.0.1: set gateway_host="0.0.0.0" and gateway_public_url='),
        ({"model_type": "qwen3-4b"}, "has no 'qwen3-4b'. Did you mean 'qwen3-4B'?"),
        ({"reward": "maths"}, "Did you mean 'math'?"),
    ],
)
def test_unusable_run_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SlimeError) as raised:
        made(**{"reward": "math", "num_gpus": 0, **fields}).train()
    assert message in str(raised.value)
    assert [path.name for path in tmp_path.iterdir() if path.name == "was-run" or path.suffix == ".log"] == []


@table("count", [0, True, "3"])
def test_rollout_count_must_be_a_positive_integer(count: object) -> None:
    with pytest.raises(ConfigError, match="num_rollout = "):
        made().train(count)  # type: ignore[arg-type]
