"""`slime migrate` reads launch scripts without running them, and reports the outcome of every flag."""

from pathlib import Path

import pytest

from slime_compat.migrate.migrate import migrate, report
from slime_compat.migrate.migration import Migration, Result
from slime_core.cli import run_cli
from slime_core.config import read_run_file
from slime_core.errors import ConfigError
from tests.tables import table

MODEL = """
NLAYERS="${MODEL_ARGS_NUM_LAYERS:-36}"
arr=()
for ((i=0; i<NLAYERS; i++)); do arr+=(1); done
printf -v MOE_LAYER_FREQ "[%s]" "$(IFS=', '; echo "${arr[*]}")"
MODEL_ARGS=(
   --swiglu
   --num-layers $NLAYERS
   --hidden-size 2560   # comments end lines
   --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
   --moe-layer-freq "$MOE_LAYER_FREQ"
)
"""
LAUNCH = """#!/bin/bash
pkill -9 sglang
touch "$(dirname "$0")/was-run"
set -ex
NUM_GPUS=${NUM_GPUS:-$(nvidia-smi -L | wc -l)}
if [ -z "$NUM_GPUS" ] || [ "$NUM_GPUS" -le 0 ]; then NUM_GPUS=8; fi
BATCH=16
SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${SCRIPT_DIR}/models/qwen3-4B.sh"

CKPT_ARGS=(
   --hf-checkpoint /data/Qwen3-4B
   #--hf-checkpoint /data/Qwen3-4B-FP8
   --ref-load /data/Qwen3-4B_torch_dist
   --load /data/Qwen3-4B_slime/
   --save /data/Qwen3-4B_slime/
)
ROLLOUT_ARGS=(
   --prompt-data /data/dapo.jsonl
   --input-key prompt --label-key label
   --apply-chat-template
   --rm-type deepscaler
   --num-rollout 3000
   --rollout-batch-size ${BATCH}
   --n-samples-per-prompt $((BATCH / 2))
   --global-batch-size 64
   --balance-data
)
GRPO_ARGS=(--advantage-estimator grpo --use-tis)
GRPO_ARGS+=(--eps-clip 0.2 --eps-clip-high 0.28)
EVAL_ARGS=(
   --eval-interval 20
   --eval-prompt-data aime /data/aime.jsonl
)
PERF_ARGS=(
   --tensor-model-parallel-size 2
   --sequence-parallel
   --max-tokens-per-gpu 9216
)
OPTIMIZER_ARGS=(
   --optimizer adam
   --lr 1e-6
   --lr-decay-style constant
   --adam-beta2 0.98
)
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 2
   --sglang-mem-fraction-static 0.7
   --sglang-cuda-graph-bs 1 2 $(seq 16 8 32)
)
RUNTIME_ENV_JSON=$(cat <<EOF_JSON
{"env_vars": {"PYTHONPATH": "/data/Megatron-LM/", "API_KEY": "verysecret", "GPUS": "${NUM_GPUS}"}}
EOF_JSON
)
ray job submit --address="http://127.0.0.1:8265" \\
   --runtime-env-json="${RUNTIME_ENV_JSON}" \\
   -- python3 train.py \\
   --actor-num-nodes 1 \\
   --actor-num-gpus-per-node ${NUM_GPUS} \\
   "${MODEL_ARGS[@]}" ${CKPT_ARGS[@]} ${ROLLOUT_ARGS[@]} ${GRPO_ARGS[@]} \\
   ${EVAL_ARGS[@]} ${PERF_ARGS[@]} ${OPTIMIZER_ARGS[@]} ${WANDB_ARGS[@]} \\
   ${SGLANG_ARGS[@]} | tee train.log
"""
REST = (
    "--hf-checkpoint /m --prompt-data /p.jsonl --num-rollout 3 --rollout-batch-size 8 --n-samples-per-prompt 4 "
    "--rm-type math"
)


def written(folder: Path, text: str, **files: str) -> Path:
    """A script and the model files that it sources."""
    (folder / "models").mkdir(exist_ok=True)
    for name, source in files.items():
        (folder / "models" / f"{name.replace('_', '-')}.sh").write_text(source, "utf-8")
    script = folder / "run.sh"
    script.write_text(text, "utf-8")
    return script


def of(folder: Path, text: str, **defined: str) -> Migration:
    """The migration of a script."""
    return migrate(written(folder, text), defined)


def left(migration: Migration) -> dict[str, str]:
    """Flags that were left out and matter, with the reason."""
    return {row.flag.split()[0]: row.here for row in migration.of(Result.LEFT_OUT)}


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    return written(tmp_path, LAUNCH, qwen3_4B=MODEL)


def test_slime_script_is_migrated_whole(launch: Path) -> None:
    migration = migrate(launch, {"NUM_GPUS": "8"})
    assert left(migration) == {}
    assert migration.is_whole
    values = migration.values
    assert values["num_steps_per_rollout"] == 2
    assert (values["rollout_batch_size"], values["n_samples_per_prompt"]) == (16, 8)
    assert values["actor_num_gpus_per_node"] == 8
    assert values["reward"] == {"use": "deepscaler"}
    assert values["correction"] == {"use": "tis"}
    assert values["eval_prompt_data"] == {"aime": "/data/aime.jsonl"}
    assert values["trainer"]["megatron"]["max_tokens_per_gpu"] == 9216  # type: ignore[index, call-overload]
    server = values["engine"]["sglang"]["server"]  # type: ignore[index, call-overload]
    assert server == {"mem_fraction_static": 0.7, "cuda_graph_bs_decode": [1, 2, 16, 24, 32]}


def test_migration_executes_nothing(launch: Path) -> None:
    migrate(launch, {})
    assert not (launch.parent / "was-run").exists()


def test_every_flag_is_accounted_for(launch: Path) -> None:
    flags = {word for word in LAUNCH.split() + MODEL.split() if word.startswith("--") and len(word) > 2}
    flags = {each.lstrip("(").rstrip(")").partition("=")[0] for each in flags} - {"--address"}
    assert flags <= {row.flag.split()[0] for row in migrate(launch, {"NUM_GPUS": "8"}).rows}


def test_differing_slime_defaults_are_written(tmp_path: Path) -> None:
    migration = of(tmp_path, f"python train.py {REST.replace('--n-samples-per-prompt 4', '')}")
    assert "n_samples_per_prompt = 1: advantage 'grpo' compares" in left(migration)["slime's"]
    values = migration.values
    assert (values["adam_beta2"], values["weight_decay"], values["lr_decay_style"]) == (0.999, 0.01, "linear")
    assert values["rollout_skip_special_tokens"] is False


def test_values_known_only_at_run_time_are_named_by_line(launch: Path) -> None:
    migration = migrate(launch, {})
    assert left(migration) == {
        "--actor-num-gpus-per-node": "line 5: `nvidia-smi -L | wc -l` is not run; set it by --define NUM_GPUS=VALUE"
    }
    assert not migration.is_whole


@table(
    "text, message",
    [
        ("LR=$(cat lr.txt)\npython train.py --lr $LR", "line 1: `cat lr.txt` is not run"),
        ("for LR in 1 2; do X=$LR; done\npython train.py --lr $X", "line 1: a loop sets it"),
        ("python train.py --lr $LR", "line 1: $LR is not set in the script; set it by --define LR=VALUE"),
        ('LR=1\neval "LR=2"\npython train.py --lr $LR', "line 2: eval may set it"),
        ("if grep -q a b; then LR=1; else LR=2; fi\npython train.py --lr $LR", "line 1: it depends on a condition"),
        ("read LR\npython train.py --lr $LR", "line 1: read sets it"),
        ("python train.py --lr $1", "line 1: $1 is an argument of the script"),
        ("N=0.5.sh\npython train.py --lr ${N%.sh}", "${N%.sh} is not supported"),
        ("python train.py --lr many", "expected a number, got 'many'"),
    ],
)
def test_unknown_value_names_its_cause(tmp_path: Path, text: str, message: str) -> None:
    assert message in left(of(tmp_path, text))["--lr"]


@table(
    "text, lr",
    [
        ("LR=1e-5\nexport RATE=${LR}\npython train.py --lr $RATE", 1e-5),
        ("python train.py --lr=${LR:-2e-5}", 2e-5),
        ("A=(--lr)\nA+=(3e-5)\npython train.py ${A[@]}", 3e-5),
        ('MODE=fast\nif [[ "$MODE" == f* ]]; then LR=1; else LR=2; fi\npython train.py --lr $LR', 1.0),
        ('[ -n "$UNSET" ] && LR=1 || LR=0.5\npython train.py --lr $LR', 0.5),
        ('case "$X" in a) LR=0.1;; *) LR=0.1;; esac\npython train.py --lr $LR', 0.1),
        ("A=(0.1 0.2)\nA[1]=0.3\npython train.py --lr ${A[1]}", 0.3),
        ("python train.py --lr 1 --lr 0.75", 0.75),
    ],
)
def test_shell_values_are_evaluated(tmp_path: Path, text: str, lr: float) -> None:
    assert of(tmp_path, f"{text} {REST}").values["lr"] == lr


def test_slime_functions_are_mapped(tmp_path: Path) -> None:
    flags = (
        "--custom-generate-function-path my.gen --dynamic-sampling-filter-path "
        "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std --use-tis "
        "--custom-tis-function-path slime.backends.megatron_utils.loss.icepop_function"
    )
    values = of(tmp_path, f"python3 train_async.py {flags} {REST.replace('--rm-type math', '')}").values
    assert values["generator"] == {"use": "generate", "generate": {"path": "my.gen"}}
    assert values["reward"] == {"use": "environment"}
    assert values["group_filter"] == {"use": "nonzero_std"}
    assert values["correction"] == {"use": "icepop"}
    assert values["rollout_policy"] == "async"


def test_group_reward_keeps_its_function(tmp_path: Path) -> None:
    migration = of(tmp_path, f"python train.py --group-rm --custom-rm-path my.rm --reward-key score {REST[:-15]}")
    assert migration.get("group_reward") == {"use": "group_rm", "group_rm": {"path": "my.rm", "reward_key": "score"}}
    assert "reward" not in migration.values


def test_sft_script_becomes_a_finetuning(tmp_path: Path) -> None:
    rest = REST.replace("--rm-type math", "--input-key messages --loss-type sft_loss")
    sft = "--rollout-function-path slime.rollout.sft_rollout.generate_rollout --disable-compute-advantages-and-returns"
    migration = of(tmp_path, f"python train.py {rest} {sft} --debug-train-only")
    assert migration.is_whole
    assert migration.values["loss_type"] == "sft_loss"
    assert migration.values["apply_chat_template"] is True
    assert "debug_train_only" not in migration.values


def test_evaluation_sets_are_read_from_their_file(tmp_path: Path) -> None:
    (tmp_path / "eval.yaml").write_text(
        "eval:\n  defaults: {top_p: 0.7}\n  datasets:\n"
        "  - {name: aime, path: /a.jsonl, rm_type: math, n_samples_per_eval_prompt: 16}\n"
        "  - {name: own, path: /o.jsonl, custom_rm_path: my.rm}\n",
        "utf-8",
    )
    migration = of(tmp_path, f"python train.py {REST} --eval-interval 5 --eval-config eval.yaml")
    sets = migration.values["eval_prompt_data"]
    assert sets["aime"] == {"path": "/a.jsonl", "top_p": 0.7, "n_samples_per_eval_prompt": 16, "reward": "math"}  # type: ignore[index, call-overload]
    assert "custom_rm_path of evaluation set 'own'" in left(migration)["--eval-config"]


EXPERTS = "--tensor-model-parallel-size 2 --expert-model-parallel-size 2 --actor-num-gpus-per-node 2"


@table(
    "flag, result, message",
    [
        ("--update-weights-interval 4", Result.KEPT, "update_weights_interval = 4"),
        ("--keep-old-actor", Result.NEEDLESS, "keep_old_actor has no effect here"),
        ("--save-hf /models/{rollout_id}", Result.KEPT, 'save_hf = "/models/{rollout_id}"'),
        (
            "--colocate --actor-num-gpus-per-node 4",
            Result.MINOR,
            "offload_train = false: trainer 'megatron' cannot release",
        ),
        ("--expert-tensor-parallel-size 1", Result.NEEDLESS, "this is the default"),
        (
            "--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1",
            Result.NEEDLESS,
            "experts are not distributed",
        ),
        (
            f"{EXPERTS} --expert-tensor-parallel-size 1",
            Result.KEPT,
            "trainer.megatron.expert_tensor_parallel_size = 1",
        ),
        (
            "--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 3 --actor-num-gpus-per-node 2",
            Result.MAPPED,
            "trainer.megatron.num_layers_in_last_pipeline_stage = 3",
        ),
        ("--rolout-seed 3", Result.LEFT_OUT, "slime has no such flag. Did you mean 'rollout_seed'?"),
        ("--use-dynamic-global-batch-size", Result.NEEDLESS, "until 0.2.4"),
        ("--critic-train-only", Result.LEFT_OUT, "until 0.2.4; num_critic_only_steps sets"),
        ("--hidden-dropout 0.1", Result.LEFT_OUT, "hidden_dropout of megatron-core's"),
        ("--sglang-mem-fraction-statik 1", Result.LEFT_OUT, "Did you mean 'mem_fraction_static'?"),
        ("--sglang-model-path m", Result.LEFT_OUT, "follows from hf_checkpoint"),
        ("--eval-interval 20", Result.NEEDLESS, "eval_interval has no effect here"),
        ("--global-batch-size 7", Result.LEFT_OUT, "not a multiple of 7"),
        ("--no-offload-train", Result.KEPT, "offload_train = false"),
        ("--router-policy round_robin", Result.MAPPED, 'engine.sglang.router.policy = "round_robin"'),
        ("--wandb-key $WANDB_KEY", Result.MINOR, "set WANDB_API_KEY in the environment"),
        ("--use-wandb --wandb-project sums", Result.KEPT, 'wandb_project = "sums"'),
        ("--eps-clip 0.1 0.2", Result.LEFT_OUT, "expected one value, got 2"),
        ("--use-kl-loss yes", Result.LEFT_OUT, "expected no value"),
        ("--load /elsewhere --save /here", Result.LEFT_OUT, "a run starts from hf_checkpoint"),
        ("--rollout-seed 1 --seed 2", Result.LEFT_OUT, "contradicts seed = "),
    ],
)
def test_flags_have_an_outcome_and_a_reason(tmp_path: Path, flag: str, result: Result, message: str) -> None:
    rows = of(tmp_path, f"python train.py {REST} {flag}").of(result)
    assert [row.here for row in rows if row.flag.split()[0] in flag and message in row.here], rows


def test_missing_backslash_is_suggested(tmp_path: Path) -> None:
    migration = of(tmp_path, f"python train.py \\\n  --lr 1\n  --num-rollout 3 {REST}")
    assert any("is a \\ missing before it?" in row.flag for row in migration.of(Result.LEFT_OUT))


def test_environment_is_reported_without_secrets(launch: Path) -> None:
    (message,) = [row.here for row in migrate(launch, {"NUM_GPUS": "8"}).rows if row.flag == "--runtime-env-json"]
    assert message.endswith("PYTHONPATH=/data/Megatron-LM/, API_KEY, GPUS=8")
    assert "verysecret" not in "\n".join(report(migrate(launch, {"NUM_GPUS": "8"})))


@table(
    "text, message",
    [
        ("echo hello", "starts no training: expected a command that runs train.py or train_async.py"),
        ("python train.py --lr 1\npython train.py --lr 2", "starts training 2 times, in lines 1, 2"),
        ("x=\0", "is not a shell script"),
    ],
)
def test_script_without_training_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of(tmp_path, text)


def test_command_writes_the_file_and_exits_by_completeness(
    launch: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.toml"
    assert run_cli(["migrate", str(launch), "--out", str(out), "-D", "NUM_GPUS=8"]) == 0
    assert read_run_file(out)["actor_num_gpus_per_node"] == 8
    assert "run file: " in capfd.readouterr().out
    assert run_cli(["migrate", str(launch), "--out", str(out)]) == 2
    assert "--force to overwrite it" in capfd.readouterr().err
    assert run_cli(["migrate", str(launch), "--out", str(out), "--force"]) == 1
    assert "line 5: `nvidia-smi" in out.read_text("utf-8")
    assert run_cli(["migrate", str(launch), "--out", str(out), "-D", "8"]) == 2
    assert run_cli(["migrate", str(tmp_path / "no.sh"), "--out", str(tmp_path / "new.toml")]) == 2
    assert "cannot read the script" in capfd.readouterr().err
