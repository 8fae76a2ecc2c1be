"""SlimeRunner passes the tests of agentcore-rl-toolkit's class, and does not have its faults.

test_runner.py covers the other tests of the toolkit.
"""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_compat.runner.fields import RunnerFields, run_file_keys
from slime_compat.runner.runner import SlimeRunner
from slime_core.config import Installed
from slime_core.errors import ConfigError
from tests.tables import table

ARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/my_agent-a1B2c3D4e5"
Small = Callable[..., SlimeRunner]
DEFAULTS: dict[str, object] = {
    "num_gpus": 8, "tp_size": 2, "rollout_gpus_per_engine": 2, "slime_dir": "~/slime",
    "megatron_dir": "~/Megatron-LM", "cuda_home": None, "model_id": "default", "acr_timeout": 900,
    "acr_tps_limit": 25, "max_concurrent": 100, "max_pool_connections": 100, "gateway_port": 9090,
    "reward_postprocessing": "grpo", "sglang_tool_call_parser": "qwen", "sglang_reasoning_parser": None,
    "sglang_data_parallel_size": 1, "cumulative_token_mode": False, "renderer_family": "auto",
    "gateway_log_level": "warning", "rollout_batch_size": 32, "n_samples_per_prompt": 8,
    "rollout_max_response_len": 1024, "rollout_temperature": 1.0, "lr": 1e-6, "eps_clip": 0.2, "eps_clip_high": 0.28,
    "weight_decay": 0.1, "adam_beta2": 0.98, "sglang_mem_fraction_static": 0.7, "sglang_context_length": None,
    "max_tokens_per_gpu": 9216, "wandb_project": None, "wandb_group": None, "extra_flags": [],
}  # fmt: skip
"""The toolkit's defaults."""


def made(**fields: object) -> SlimeRunner:
    given = {
        "exp_id": "first",
        "agent_runtime_arn": ARN,
        "s3_bucket": "results",
        "model_dir": "models/m",
        "data_path": "rows.jsonl",
        "model_type": "qwen3-4B",
    }
    return SlimeRunner(**{**given, **fields})  # type: ignore[arg-type]


def test_environment_has_cuda_and_wandb_follows_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("WANDB_API_KEY", "verysecret")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert made(cuda_home="/cuda").dry_run().environment == {
        "CUDA_HOME": "/cuda",
        "PATH": "/cuda/bin:/bin",
        "LD_LIBRARY_PATH": "/cuda/lib64",
    }
    assert made().dry_run().environment == {}
    assert "wandb" not in made().dry_run().run_file
    assert 'use = "wandb"' in made(wandb_project="p", wandb_group="g").dry_run().run_file


@table("suffix", [".yaml", ".yml"])
def test_yaml_round_trips(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"runner{suffix}"
    runner = made(lr=1e-5, num_gpus=4, eval_prompt_data={"held out": "eval.jsonl"}, extra_flags=["--bf16"])
    path.write_text(runner.to_yaml(), "utf-8")
    assert SlimeRunner.from_yaml(path) == runner


def test_extra_flags_come_last_unchanged() -> None:
    flags = ["--lr", "1e-5", "--eval-interval", "5", "--custom 'odd' $HOME flag"]
    command = made(extra_flags=flags).dry_run().command
    assert command == (sys.executable, "-m", "slime_core", "train", "runs/first.toml", *flags)


def test_names_and_defaults_equal_the_toolkit() -> None:
    found = {name: RunnerFields.model_fields[name].default for name in DEFAULTS}
    assert found == DEFAULTS


def test_toolkit_defaults_are_accepted_by_the_plugins() -> None:
    for name in ("slime_agent_openai", "slime_engine_sglang", "slime_trainer_megatron", "boto3"):
        pytest.importorskip(name)
    runner = made(gateway_host="0.0.0.0", gateway_public_url="http://10.0.0.5:9090")
    Installed().check(run_file_keys(runner, 10))


def test_fields_page_is_current() -> None:
    root = Path(__file__).resolve().parents[3]
    page = runpy.run_path(str(root / "tools" / "runner_fields.py"))["page"]()
    assert page == (root / "docs" / "reference" / "runner-fields.md").read_text("utf-8"), (
        "tools/runner_fields.py --write writes it"
    )


# Invalid arguments; wrong types and unknown names are in test_runner.py.


def test_environment_values_are_saved_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_BUCKET", "results-of-mine")
    monkeypatch.setenv("MY_KEY", "verysecret")
    path = tmp_path / "runner.yaml"
    path.write_text(
        f"exp_id: a\nmodel_dir: m\ndata_path: d\nlr: 1e-5\nagent_runtime_arn: {ARN}\ns3_bucket: $env:MY_BUCKET\n"
        "extra_flags: [--reward.judge.key, $env:MY_KEY]\n",
        "utf-8",
    )
    runner = SlimeRunner.from_yaml(path)
    assert (runner.lr, runner.s3_bucket) == (1e-5, "results-of-mine")
    planned = runner.dry_run()
    assert 's3_bucket = "$env:MY_BUCKET"' in planned.run_file
    assert planned.command[-2:] == ("--reward.judge.key", "$env:MY_KEY")
    for shown in (str(planned), str(runner), runner.to_yaml()):
        assert "verysecret" not in shown
        assert "results-of-mine" not in shown
    path.write_text(runner.to_yaml(), "utf-8")
    assert SlimeRunner.from_yaml(path) == runner


# Faults of the toolkit's runs; here each of them works or is refused.


def test_zero_kl_coefficient_computes_no_kl() -> None:
    assert "use_kl_loss" not in run_file_keys(made(), 1)
    found = run_file_keys(made(kl_loss_coef=0.01), 1)
    assert (found["use_kl_loss"], found["kl_loss_type"], found["kl_loss_coef"]) == (True, "low_var_kl", 0.01)


@table(
    "flags, message",
    [
        (["--megatron-to-hf-mode", "bridge"], "--megatron-to-hf-mode"),
        (["--use-dynamic-global-batch-size"], "--use-dynamic-global-batch-size"),
        (["--learning-rate", "1e-5"], "Did you mean '--lr'?"),
    ],
)
def test_removed_extra_flags_are_refused(small: Small, flags: list[str], message: str) -> None:
    runner = small(extra_flags=flags)
    with pytest.raises(ConfigError, match="slime train ended with exit code 2") as raised:
        runner.train()
    assert message in str(raised.value)
    assert not runner.folder.exists()
