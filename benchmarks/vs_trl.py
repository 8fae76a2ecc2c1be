"""The demo's reinforcement learning against TRL's GRPOTrainer, in one run: same model, prompts, group, lengths, reward.

    make bench                                  # or: python benchmarks/vs_trl.py --task word --steps 60

Both start from the demo's base model and take the same number of steps; each runs alone, in processes of its own,
TRL with its default threads. Step time is wall clock over the whole run, start-up left out on both sides; learning is
judged by one held-out evaluation, done by `slime eval` for both. The last line printed is one JSON object.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from slime_core.run.demo import SIZES

CLIPS = (0.2, 0.28)
GROUP = 8
MAX_RESPONSE = 48


def main() -> None:
    """Measure both and print the comparison."""
    options = _options()
    if options.peer:
        train_with_trl(options.task, options.seed, options.steps, options.base, options.prompts, options.out)
        return
    steps = options.steps or SIZES[options.task].num_rollout
    root: Path = options.root
    slime = [sys.executable, "-m", "slime_core"]
    ours = root / f"slime-{options.task}-{options.seed}"
    _clear(ours)
    subprocess.run([*slime, "demo", "--task", options.task, "--save", str(ours), "--steps", "0"], check=True)
    base = _newest(root / f"demo-base-{options.task}" / "checkpoints") / "hf"
    _clear(ours)
    demo = ["demo", "--task", options.task, "--seed", str(options.seed), "--save", str(ours), "--steps", str(steps)]
    our_memory = _measure([*slime, *demo, "--no-progress"])
    peer_out = root / f"trl-{options.task}-{options.seed}"
    _clear(peer_out)
    peer = [sys.executable, __file__, "--peer", "--task", options.task, "--seed", str(options.seed)]
    peer += ["--steps", str(steps), "--base", str(base), "--prompts", str(ours / "train.jsonl"), "--out", str(peer_out)]
    peer_memory = _measure(peer)
    our_rows = _training_rows(ours)
    peer_rows = json.loads((peer_out / "rows.json").read_text())
    result = {
        "benchmark": "vs_trl",
        "task": options.task,
        "seed": options.seed,
        "steps": steps,
        "slime_step_s": round(statistics.mean(row["perf/step_time"] for row in our_rows), 4),
        "trl_step_s": round(statistics.mean(row["step_s"] for row in peer_rows), 4),
        "slime_reward_last10": round(statistics.mean(row["rollout/raw_reward"] for row in our_rows[-10:]), 4),
        "trl_reward_last10": round(statistics.mean(row["reward"] for row in peer_rows[-10:]), 4),
        "slime_eval": _evaluate(slime, _newest(ours / "checkpoints") / "hf", ours, root / "eval-slime"),
        "trl_eval": _evaluate(slime, peer_out / "hf", ours, root / "eval-trl"),
        "slime_peak_mib": our_memory,
        "trl_peak_mib": peer_memory,
    }
    result["ratio"] = round(result["trl_step_s"] / result["slime_step_s"], 2)
    print(json.dumps(result))


def train_with_trl(task: str, seed: int, steps: int, base: Path, prompts: Path, out: Path) -> None:
    """The same training with TRL, its rows and its final model written to `out`."""
    import torch
    from datasets import Dataset
    from slime_reward_math import grade
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    size = SIZES[task]
    batch = size.rollout_batch_size * GROUP
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def render(question: str) -> str:
        message = [{"role": "user", "content": question}]
        return str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))

    data = Dataset.from_list([{"prompt": render(row["question"]), "answer": row["answer"]} for row in rows])

    def reward(completions: list[str], answer: list[str], **_: object) -> list[float]:
        pairs = zip(completions, answer, strict=True)
        return [float(grade(gold, text).correct) for text, gold in pairs]

    measured: list[dict[str, float]] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Wall clock of each step, from its beginning to its log."""

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.started = time.monotonic()

        def on_log(self, *_: object, logs: dict[str, float] | None = None, **__: object) -> None:
            if logs and "reward" in logs:
                measured.append({"reward": logs["reward"], "step_s": time.monotonic() - self.started})

    config = GRPOConfig(
        output_dir=str(out / "trl"),
        per_device_train_batch_size=batch,
        num_generations=GROUP,
        max_completion_length=MAX_RESPONSE,
        max_steps=steps,
        learning_rate=size.lr,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        max_grad_norm=1.0,
        temperature=1.0,
        top_k=0,
        beta=0.0,
        epsilon=CLIPS[0],
        epsilon_high=CLIPS[1],
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        seed=seed,
        disable_tqdm=True,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
    )
    trainer = GRPOTrainer(
        model=model,
        args=config,
        train_dataset=data,
        reward_funcs=reward,
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
    model.save_pretrained(out / "hf")
    tokenizer.save_pretrained(out / "hf")
    (out / "rows.json").write_text(json.dumps(measured))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=sorted(SIZES), default="word")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="default: the whole demo")
    parser.add_argument("--root", type=Path, default=Path("runs/bench"))
    parser.add_argument("--peer", action="store_true", help="run TRL's side only (used by this script)")
    for name in ("base", "prompts", "out"):
        parser.add_argument(f"--{name}", type=Path)
    return parser.parse_args()


def _measure(command: list[str]) -> int:
    """Run a command; returns the peak memory of all its processes in MiB, shared pages counted once."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, _memory_of_session(process.pid))
            time.sleep(0.5)

    watcher = threading.Thread(target=watch)
    watcher.start()
    if code := process.wait():
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}")
    watcher.join()
    return peak // 1024


def _memory_of_session(session: int) -> int:
    """Proportional set size in KiB of all processes of a session."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total


def _training_rows(run_dir: Path) -> list[dict[str, float]]:
    rows = [json.loads(line)["metrics"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "perf/step_time" in row]


def _evaluate(slime: list[str], model: Path, ours: Path, save: Path) -> float:
    _clear(save)
    flags = ["--hf-checkpoint", str(model), "--save", str(save), "--reward", "math", "--apply-chat-template"]
    flags += ["--eval-prompt-data", "heldout", str(ours / "eval.jsonl"), "--prompt-data", str(ours / "eval.jsonl")]
    flags += ["--input-key", "question", "--label-key", "answer", "--rollout-max-response-len", str(MAX_RESPONSE)]
    subprocess.run([*slime, "eval", *flags, "--no-progress"], check=True)
    return float(json.loads((save / "eval.json").read_text())["eval/heldout"])


def _newest(checkpoints: Path) -> Path:
    return max(checkpoints.glob("rollout_*"))


def _clear(folder: Path) -> None:
    subprocess.run(["rm", "-rf", str(folder)], check=True)


if __name__ == "__main__":
    main()
