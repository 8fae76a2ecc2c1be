"""The demo's reinforcement learning against TRL's GRPOTrainer: same model, prompts, group, lengths, reward, optimizer.

    make bench                                  # or: python benchmarks/vs_trl.py --task word --seeds 0
    make bench ARGS=--alive                     # every group has an advantage: none can be skipped
    make bench ARGS="--seeds 0 1 2 --threads default"       # is learning equal? the interval of the difference
    make bench ARGS="--model smollm2 --steps 3 --threads default"   # SmolLM2-135M; docs/train.md installs it
    .venv/bin/python benchmarks/vs_trl.py --model path/to/Qwen2.5-0.5B-Instruct --device cuda --vllm    # on a GPU
    .venv/bin/python benchmarks/vs_trl.py --model random-0.5b --device cuda --max-response-len 256      # without a hub

Both train the demo's base model for the same number of steps, one after the other, each in processes of its own;
TRL once with torch's own choice of threads and once with one, and its faster run counts.
`ratio` compares the median step, generating, scoring and training, start-up left out; a burst of load from other
programs, which costs TRL's spinning threads many times what it costs slime, moves a mean and not a median.
`ratio_whole` compares from the first step's begin to the last one's end, slime's evaluations and checkpoints included
(TRL makes none).
With --alive the reward tells all samples of a group apart by a thousandth, and advantages are not divided by the
group's standard deviation on either side, so that this teaches nothing and every group is trained on.
With --model smollm2, or a model directory, both train all its weights on short sums, four solved ones before each in
its chat template, with answers of up to 64 tokens; products of matrices have `float32_matmul_precision = "medium"` on
both sides. --device cuda has one engine worker and one rank share a GPU, both sides with `bf16`; --vllm has TRL
generate with vLLM beside it. Random models (trl_bars/random_models.py) learn nothing and imply --alive.
Generating (scoring included) and training are also reported apart, in microseconds a response token, slime's beside
what the device's matrix products alone would take: 2 operations a weight and token forward, 4 backward.
Learning is judged by the training reward of the last ten steps and by one held-out evaluation, `slime eval` for
both. `..._foreign_cpu` is the share of the machine that other programs used meanwhile: near zero, or measure again.
The last line printed is one JSON object.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from alive_reward import spread
from safetensors import safe_open
from trl_bars.limits import copy_bytes, matmul_flops
from trl_bars.random_models import SHAPES, base_model
from usage import Usage, measured

from slime_core.config import read_run_file
from slime_core.sample import Json
from slime_local.demo.pretrained import pretrained_values
from slime_local.demo.recipe import SIZES, write_run_file

SLIME = [sys.executable, "-m", "slime_core"]
LAST = 10
EVAL_SAMPLES = 4
THREADS = ("default", "1")
PHASES = ("rollout", "train")
ALIVE = ["--reward", f"{Path(__file__).with_name('alive_reward.py')}:alive", "--grpo-std-normalization", "false"]
TINY_MICRO_BATCH, MICRO_BATCH = 256, 32
"""Samples that TRL trains on at once; with the tiny model 256 are faster here than 512 and 128, and the same step."""
WHOLE_WEIGHTS: dict[str, Json] = {"lr": 2e-5, "lr_decay_style": "constant"}
"""What differs from the demo's settings of other models, besides LoRA and a warm-up, of which there is none."""
EVALUATING = ("eval_prompt_data", "eval_interval", "eval_temperature")
T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's quantile of a mean of so many."""


@dataclass(frozen=True, slots=True)
class Steps:
    """One side's training."""

    step_s: float
    """Median seconds of a step."""
    whole_s: float
    """Seconds from the first step's begin to the last one's end."""
    reward_last10: float
    """Mean training reward of the last ten steps."""
    generate_us: float
    """Microseconds a response token, generated and scored."""
    train_us: float
    """Microseconds a response token, trained on."""


def main() -> None:
    """Measure both and print the comparison."""
    options = _options()
    if options.peer:
        train_with_trl(read_run_file(options.peer), options)
        return
    results = [_compare(options, seed) for seed in options.seeds]
    print(json.dumps(results[0] if len(results) == 1 else _over_seeds(results)))


def _over_seeds(results: list[dict[str, Any]]) -> dict[str, object]:
    """Held-out accuracies of all seeds, and the interval that has the mean difference in 95 of 100 such series."""
    more = [each["slime_eval"] - each["trl_eval"] for each in results]
    half = T_975[len(more)] * statistics.stdev(more) / math.sqrt(len(more))
    middle = statistics.mean(more)
    return {
        "benchmark": "vs_trl",
        "seeds": results,
        "held_out": {side: [each[f"{side}_eval"] for each in results] for side in ("slime", "trl")},
        "difference": round(middle, 4),
        "interval": [round(middle - half, 4), round(middle + half, 4)],
    }


def _compare(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Both sides' training of one seed."""
    root, tiny, gpu = options.root, options.model == "tiny", options.device == "cuda"
    name = options.task if tiny else Path(options.model).name
    ours = _fresh(root / f"slime-{name}-{seed}")
    base, command, steps = (_of_the_demo if tiny else _of_a_model)(options, seed)
    our_usage = measured([*command, "--num-rollout", str(steps), "--save", str(ours), "--no-progress"], gpu=gpu)
    tried = [options.threads] if options.threads else THREADS
    peers = [_run_trl(ours, base, _fresh(root / f"trl-{name}-{seed}-{each}"), each, options) for each in tried]
    our_steps, (peer, peer_steps, peer_usage) = _our_steps(ours), min(peers, key=lambda each: each[1].step_s)
    accuracies = {
        side: {"eval": _evaluate(model, ours, _fresh(root / f"eval-{side}"))}
        for side, model in (("base", base), ("slime", _newest(ours)), ("trl", peer / "hf"))
        if options.model not in SHAPES
    }
    figures = {"slime": asdict(our_steps) | asdict(our_usage), "trl": asdict(peer_steps) | asdict(peer_usage)}
    return {
        "benchmark": "vs_trl",
        "task": name,
        "seed": seed,
        "steps": steps,
        "every_group_alive": options.alive,
        "ratio": round(peer_steps.step_s / our_steps.step_s, 2),
        "ratio_whole": round(peer_steps.whole_s / our_steps.whole_s, 2),
        "ratio_generate": round(peer_steps.generate_us / our_steps.generate_us, 2),
        "ratio_train": round(peer_steps.train_us / our_steps.train_us, 2),
        **_beside_the_limit(base, {"slime": our_steps, "trl": peer_steps}, options.device),
        **({"slime_publication": _publication(ours, base)} if gpu else {}),
        **{
            f"{side}_{key}": round(value, 4)
            for found in (figures, accuracies)
            for side, each in found.items()
            for key, value in each.items()
        },
        "trl_step_s_by_threads": {name: round(each[1].step_s, 4) for name, each in zip(tried, peers, strict=True)},
    }


def _of_the_demo(options: argparse.Namespace, seed: int) -> tuple[Path, list[str], int]:
    """The demo's base model, the command that trains it, and how many steps."""
    task, root = options.task, options.root
    demo = [*SLIME, "demo", "--task", task, "--seed", str(seed), "--no-progress"]
    # Makes the base model, or finds it, so that the run that is measured only trains.
    first = _fresh(root / f"base-{task}")
    subprocess.run([*demo, "--num-rollout", "1", "--save", str(first)], check=True)
    command = [*SLIME, "train", str(first / "run.toml"), *ALIVE] if options.alive else demo
    return _newest(root / f"demo-base-{task}"), command, options.steps or SIZES[task].num_rollout


def _of_a_model(options: argparse.Namespace, seed: int) -> tuple[Path, list[str], int]:
    """The same of another model, all of whose weights are trained."""
    steps = options.steps or 3
    base = base_model(options.model, options.root)
    values = pretrained_values(base, seed, options.root / f"rows-{seed}", steps) | WHOLE_WEIGHTS
    values |= {"rollout_max_response_len": options.max_response_len}
    for key in ("lora_rank", "lr_warmup_iters", *(EVALUATING if options.model in SHAPES else ())):
        del values[key]
    if options.device == "cuda":
        values["bf16"] = True
        values["engine"] = {"local": {"device": "cuda", "workers": 1, "gpus_per_worker": 0.5}}
        values["trainer"] = {"local": {"device": "cuda", "ranks": 1, "gpus_per_rank": 0.5}}
    run_file = write_run_file(options.root / f"rows-{seed}" / "run.toml", values)
    return base, [*SLIME, "train", str(run_file), *(ALIVE if options.alive else [])], steps


def _beside_the_limit(base: Path, sides: Mapping[str, Steps], device: str) -> dict[str, float]:
    """Share of the device's matrix products that each half of each side's step comes to."""
    flops, weights = matmul_flops(device), sum(_sizes(base))
    found = {"weights": weights, "matmul_gflops": round(flops / 1e9, 1)}
    for side, steps in sides.items():
        found[f"{side}_generate_of_limit"] = round(2e6 * weights / steps.generate_us / flops, 4)
        found[f"{side}_train_of_limit"] = round(6e6 * weights / steps.train_us / flops, 4)
    return found


def _publication(run_dir: Path, base: Path) -> dict[str, float]:
    """Seconds of handing the engine new weights, and of copying as many bytes from the GPU to memory and back."""
    rows = [json.loads(line)["metrics"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    times = [row["perf/update_weights_time"] for row in rows if "perf/update_weights_time" in row]
    weights = 4 * sum(_sizes(base))
    copied = weights / copy_bytes("cuda", "cpu") + weights / copy_bytes("cpu", "cuda")
    return {"gib": round(weights / 2**30, 3), "s": round(statistics.median(times), 4), "copies_s": round(copied, 4)}


def _sizes(base: Path) -> list[int]:
    """Numbers of each weight of a model directory."""
    with safe_open(base / "model.safetensors", "pt") as file:
        return [math.prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118  # no mapping


def _run_trl(ours: Path, base: Path, out: Path, threads: str, options: argparse.Namespace) -> tuple[Path, Steps, Usage]:
    """TRL's side of a run of ours, in processes of its own."""
    command = [sys.executable, __file__, "--peer", str(ours / "run.toml"), "--base", str(base), "--out", str(out)]
    command += ["--model", options.model, "--device", options.device]
    command += [f"--{each}" for each in ("alive", "vllm") if getattr(options, each)]
    usage = measured([*command, "--threads", threads], gpu=options.device == "cuda")
    return out, Steps(**json.loads((out / "steps.json").read_text())), usage


def train_with_trl(run: dict[str, Any], options: argparse.Namespace) -> None:
    """The training of a slime run file with TRL; figures and the final model are written to `out`."""
    base, out, alive = options.base, options.out, options.alive
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from slime_reward_math import grade

    if options.threads == "1":
        torch.set_num_threads(1)
    torch.set_float32_matmul_precision(str(run.get("float32_matmul_precision", "highest")))
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def render(asked: str | list[dict[str, str]]) -> str:
        messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    rows = [json.loads(line) for line in Path(str(run["prompt_data"])).read_text().splitlines()]
    data = Dataset.from_list([{"prompt": render(row[run["input_key"]]), "answer": row["answer"]} for row in rows])

    def reward(completions: list[str], answer: list[str], **_: object) -> list[float]:
        right = [grade(gold, text).correct for text, gold in zip(completions, answer, strict=True)]
        if not alive:
            return list(map(float, right))
        return [spread(each, place % int(run["n_samples_per_prompt"])) for place, each in enumerate(right)]

    begun: list[float] = []
    ended: list[float] = []
    rewards: list[float] = []
    lengths: list[float] = []
    generating: list[float] = []

    class Timed(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
        """Notes what generating and scoring take."""

        def _generate_and_score_completions(self, inputs: object) -> object:
            start = time.monotonic()
            made = super()._generate_and_score_completions(inputs)
            generating.append(time.monotonic() - start)
            return made

    class Clock(TrainerCallback):
        """Wall clock of each step, from its beginning to its log."""

        def on_step_begin(self, *_: object, **__: object) -> None:
            begun.append(time.monotonic())

        def on_log(self, *_: object, logs: dict[str, float] | None = None, **__: object) -> None:
            if logs and "reward" in logs:
                ended.append(time.monotonic())
                rewards.append(logs["reward"])
                lengths.append(logs["completions/mean_length"])

    config = GRPOConfig(**_trl_config(run, options))
    given = {"model": model, "args": config, "train_dataset": data, "reward_funcs": reward}
    Timed(**given, processing_class=tokenizer, callbacks=[Clock()]).train()
    model.save_pretrained(out / "hf")
    tokenizer.save_pretrained(out / "hf")
    step_s = statistics.median(end - begin for begin, end in zip(begun, ended, strict=True))
    spent = sum(end - begin for begin, end in zip(begun, ended, strict=True))
    tokens = sum(lengths) * int(run["n_samples_per_prompt"]) * int(run["rollout_batch_size"])
    made = sum(generating)
    mean_reward = statistics.mean(rewards[-LAST:])
    steps = Steps(step_s, ended[-1] - begun[0], mean_reward, 1e6 * made / tokens, 1e6 * (spent - made) / tokens)
    (out / "steps.json").write_text(json.dumps(asdict(steps)))


def _trl_config(run: dict[str, Any], options: argparse.Namespace) -> dict[str, object]:
    """TRL's settings for a slime run file; what is not named is TRL's default, which here is slime's too."""
    samples = int(run["n_samples_per_prompt"])
    clip = run["loss"]["policy_loss"]
    micro_batch = TINY_MICRO_BATCH if options.model == "tiny" else MICRO_BATCH
    return {
        "output_dir": str(options.out / "trl"),
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": int(run["rollout_batch_size"]) * samples // micro_batch,
        "num_generations": samples,
        "max_completion_length": run["rollout_max_response_len"],
        "max_steps": run["num_rollout"],
        "learning_rate": run["lr"],
        "lr_scheduler_type": "constant",
        "adam_beta2": 0.95,
        "max_grad_norm": 1.0,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "beta": 0.0,
        "loss_type": "dapo",
        "scale_rewards": "none" if options.alive else "group",
        "epsilon": clip["eps_clip"],
        "epsilon_high": clip["eps_clip_high"],
        "seed": run["seed"],
        "shuffle_dataset": False,
        "use_cpu": options.device == "cpu",
        "bf16": options.device == "cuda",
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        **({"use_vllm": True, "vllm_mode": "colocate"} if options.vllm else {}),
        "disable_tqdm": True,
    }


def _our_steps(run_dir: Path) -> Steps:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    rows = [line for line in lines if "perf/step_time" in line["metrics"]]
    spent = [row["metrics"]["perf/step_time"] for row in rows]
    rewards = [row["metrics"]["rollout/raw_reward"] for row in rows]
    whole = rows[-1]["time"] - rows[0]["time"] + spent[0]
    run = read_run_file(run_dir / "run.toml")
    samples = int(str(run["rollout_batch_size"])) * int(str(run["n_samples_per_prompt"]))
    tokens = samples * sum(row["metrics"]["rollout/response_len/mean"] for row in rows)
    generating, training = (1e6 * sum(row["metrics"][f"perf/{name}_time"] for row in rows) for name in PHASES)
    reward = statistics.mean(rewards[-LAST:])
    return Steps(statistics.median(spent), whole, reward, generating / tokens, training / tokens)


def _newest(run_dir: Path) -> Path:
    """The model of a run's newest checkpoint."""
    return max((run_dir / "checkpoints").glob("rollout_*")) / "hf"


def _evaluate(model: Path, run: Path, save: Path) -> float:
    """Held-out accuracy of a model, as the demo samples."""
    flags = ["--hf-checkpoint", str(model), "--save", str(save)]
    flags += ["--n-samples-per-eval-prompt", str(EVAL_SAMPLES), "--no-progress"]
    subprocess.run([*SLIME, "eval", str(run / "run.toml"), *flags], check=True)
    return round(float(json.loads((save / "eval.json").read_text())["eval/heldout"]), 4)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=sorted(SIZES), default="word")
    kinds = f"tiny, the demo's own; smollm2; {', '.join(SHAPES)}; or a directory in HF format"
    parser.add_argument("--model", default="tiny", help=kinds)
    parser.add_argument(
        "--max-response-len", type=int, default=64, help="tokens of an answer of other models than tiny"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--vllm", action="store_true", help="TRL generates with vLLM, on the same GPU")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, help="default: the whole demo")
    parser.add_argument("--alive", action="store_true", help="rewards that tell all samples of a group apart")
    parser.add_argument("--root", type=Path, default=Path("runs/bench"), help="where everything is written")
    parser.add_argument("--peer", type=Path, help="train this run file with TRL (what the script itself calls)")
    parser.add_argument("--threads", choices=THREADS, help="of TRL; default: both, and the faster one counts")
    for name in ("base", "out"):
        parser.add_argument(f"--{name}", type=Path, help="of --peer")
    options = parser.parse_args()
    options.alive |= options.model in SHAPES
    return options


if __name__ == "__main__":
    main()
