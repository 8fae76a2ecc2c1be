"""Errors that `slime plan` reports for a run with this trainer, before a process starts, with exit code 2."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from slime_core.cli import run_cli
from slime_testing import write_tiny_model
from tests.tables import table

CUDA = ["--trainer.megatron.device", "cuda"]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    model = write_tiny_model(tmp_path / "model")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "t3 t4", "label": "t5"}\n', "utf-8")
    keys: Mapping[str, object] = {
        "hf_checkpoint": str(model),
        "save": str(tmp_path / "run"),
        "prompt_data": str(tmp_path / "prompts.jsonl"),
        "input_key": "prompt",
        "label_key": "label",
        "num_rollout": 1,
        "rollout_max_response_len": 8,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    path = tmp_path / "run.toml"
    path.write_text("\n".join([*lines, '[reward]\nuse = "math"\n', '[trainer]\nuse = "megatron"\n']), "utf-8")
    return path


def test_ranks_and_layout_are_flags(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--actor-num-gpus-per-node", "4", "--tensor-model-parallel-size", "2", "--sequence-parallel"]
    assert run_cli(["plan", str(run_file), *flags]) == 0
    shown = capsys.readouterr().out
    assert "megatron" in shown
    assert "tensor_model_parallel_size" in shown


@table(
    "flags, message",
    [
        (["--freeze-params-name-list", "embed_tokens"], "freeze_params_name_list: no weight of the model"),
        (["--actor-num-gpus-per-node", "3", "--tensor-model-parallel-size", "2"], "give 2 or 4 ranks"),
        (["--actor-num-gpus-per-node", "4", "--tensor-model-parallel-size", "4"], "num_key_value_heads = 2"),
        (["--tensor-model-paralel-size", "2"], "tensor-model-parallel-size"),
        (["--trainer.megatron.tensor_model_paralel_size", "2"], "Did you mean 'tensor_model_parallel_size'?"),
        (["--optimizer-cpu-offload", "--bf16"], "needs use_distributed_optimizer = true:"),
        (["--optimizer-cpu-offload", "--use-distributed-optimizer"], "needs use_distributed_optimizer = false:"),
        (
            [*CUDA, "--actor-num-nodes", "2", "--actor-num-gpus-per-node", "1", "--tensor-model-parallel-size", "2"],
            "give a tensor_model_parallel_size of 1, or actor_num_gpus_per_node = 2",
        ),
        (
            ["--model-type", "qwen3-4B"],
            "model_type = 'qwen3-4B' does not fit the model of hf_checkpoint: num_hidden_layers 36",
        ),
        (["--model-type", "qwen3-4b"], "Did you mean 'qwen3-4B'?"),
        (
            ["--advantage-estimator", "ppo", "--trainer.megatron.critic.tensor_model_parallel_size", "2"],
            "the critic has the policy's layout",
        ),
    ],
)
def test_invalid_flags_are_refused_in_the_plan(
    run_file: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["plan", str(run_file), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@table(
    "flags, key",
    [
        (["--use-kl-loss", "--kl-loss-coef", "0.1", "--ref-load"], "ref_load"),
        (["--use-opd", "--opd-teacher-load"], "opd_teacher_load"),
    ],
)
def test_companion_models_must_fit_the_layout(
    run_file: Path, flags: list[str], key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_tiny_model(run_file.parent / key)
    assert run_cli(["plan", str(run_file), *flags, str(other)]) == 0
    capsys.readouterr()
    path = other / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "num_key_value_heads": 3}), "utf-8")
    assert run_cli(["plan", str(run_file), *flags, str(other), "--tensor-model-parallel-size", "2"]) == 2
    assert f"{key} = {other}: [trainer.megatron] tensor_model_parallel_size = 2" in capsys.readouterr().err


def trainer_needs(run_file: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> Mapping[str, object]:
    """The trainer's needs in `slime plan --json`."""
    assert run_cli(["plan", str(run_file), "--json", *flags]) == 0
    (group,) = (each for each in json.loads(capsys.readouterr().out)["groups"] if each["group"] == "trainer")
    return dict(group)


def test_on_gpus_each_rank_needs_one(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--actor-num-gpus-per-node", "2", "--tensor-model-parallel-size", "2"]
    assert trainer_needs(run_file, capsys, *flags)["gpus"] == 0.0
    found = trainer_needs(run_file, capsys, *flags, *CUDA)
    assert (found["workers"], found["gpus"]) == (2, 2.0)
    assert trainer_needs(run_file, capsys, "--actor-num-nodes", "2", *flags, *CUDA)["gpus"] == 4.0


def test_model_type_is_compared_with_the_config(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_file.parent / "model" / "config.json"
    sizes = {"num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8}
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **sizes}), "utf-8")
    assert run_cli(["plan", str(run_file), "--model-type", "qwen3-4B"]) == 0
    assert "qwen3-4B" in capsys.readouterr().out
