"""One rank of trainer megatron on a device: its steps against the CPU's, and their cost against transformers'.

Each subject is a process of its own, so that memory is its own, too.
"""

import json
import multiprocessing
import statistics
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from layout_runs import Case, by_local, train
from models_and_steps import TEMPERATURE, setup_of, write_model

from slime_core.roles import TrainBatch

WARM, TIMED = 2, 5
SIZES: Mapping[str, Mapping[str, object]] = {
    "half-billion": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 151_936,
        "max_position_embeddings": 4096,
    },
    "tiny": {},
}
SAMPLES: Mapping[str, tuple[int, int, int]] = {"half-billion": (64, 256, 768), "tiny": (8, 8, 24)}
"""Samples a step, tokens of a prompt, tokens of a response."""
SUBJECTS = ("megatron", "transformers")


def parity(folder: Path, device: str) -> dict[str, float]:
    """The largest distances of losses, norms (relative) and weights from a rank of the local trainer on the CPU."""
    folder.mkdir()
    model = write_model(folder / "model", "qwen3", tie_word_embeddings=True)
    case = Case("megatron", model, {"num_gpus": 1, "device": device})
    theirs, mine = by_local(folder, case), train(folder, [case], ranks=1)["megatron"]
    found = {
        "loss": max(abs(one - other) for one, other in zip(mine.losses, theirs.losses, strict=True)),
        "norm": max(abs(one / other - 1) for one, other in zip(mine.norms, theirs.norms, strict=True)),
        "weights": max(float((each - theirs.weights[name]).abs().max()) for name, each in mine.weights.items()),
    }
    print(", ".join(f"{name} differs by {far:.1e}" for name, far in found.items()))
    return found


def cost(folder: Path, device: str, size: str, peak_tflops: float | None) -> dict[str, dict[str, float]]:
    """Tokens and operations a second and the largest memory of a step of each subject."""
    folder.mkdir()
    model = write_model(folder / "model", "qwen3", tie_word_embeddings=True, **SIZES[size])
    weights = sum(path.stat().st_size for path in model.glob("*.safetensors")) / 4
    found: dict[str, dict[str, float]] = {}
    for subject in SUBJECTS:
        worker = multiprocessing.get_context("spawn").Process(target=_time, args=(folder, device, size, subject))
        worker.start()
        worker.join()
        told = json.loads((folder / f"{subject}.json").read_text("utf-8"))
        tflops = 6 * weights * told["tokens"] / told["s"] / 1e12
        found[subject] = {"ms": 1000 * told["s"], "tokens_per_s": told["tokens"] / told["s"], "tflops": tflops}
        found[subject] |= {"gib": told["gib"]} | ({"mfu": tflops / peak_tflops} if peak_tflops else {})
        print(f"{subject:13} " + ", ".join(f"{name} {value:.4g}" for name, value in found[subject].items()))
    return found


def _time(folder: Path, device: str, size: str, name: str) -> None:
    batches = [_batch(size, at) for at in range(WARM + TIMED)]
    step = (_by_megatron if name == "megatron" else _by_transformers)(folder, device, size)
    seconds = list[float]()
    for batch in batches:
        began = time.perf_counter()
        step(batch)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    count, prompt, response = SAMPLES[size]
    gib = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    said = {"s": statistics.median(seconds[WARM:]), "tokens": count * (prompt + response), "gib": gib}
    (folder / f"{name}.json").write_text(json.dumps(said), "utf-8")


def _by_megatron(folder: Path, device: str, size: str) -> Callable[[TrainBatch], object]:
    from slime_trainer_megatron.rank import MegatronRank

    settings = {"num_gpus": 1, "device": device, "max_tokens_per_gpu": 16384}
    return MegatronRank(0, 1, setup_of(folder / "model", folder, settings, bf16=True)).train_step


def _by_transformers(folder: Path, device: str, size: str) -> Callable[[TrainBatch], object]:
    """A policy gradient by autocast over weights in fp32, in micro-batches of as many tokens."""
    from transformers import AutoModelForCausalLM

    policy: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    policy = policy.to(device)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.01)
    count, prompt, response = SAMPLES[size]
    each = max(1, 16384 // (prompt + response))

    def step(batch: TrainBatch) -> None:
        texts = [
            [*batch.prompts_P[batch.prompt_index_S[at]], *batch.tokens_T[at * response : (at + 1) * response]]
            for at in range(count)
        ]
        rewards = torch.tensor(batch.rewards_S, dtype=torch.float32, device=device) - 0.5
        for first in range(0, count, each):
            tokens = torch.tensor(texts[first : first + each], device=device)
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = policy(tokens, use_cache=False).logits[:, prompt - 1 : -1]
            found = torch.log_softmax(logits.float() / TEMPERATURE, -1).gather(-1, tokens[:, prompt:, None])[..., 0]
            loss = -(found * rewards[first : first + each, None]).sum() / (count * response)
            loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _batch(size: str, at: int) -> TrainBatch:
    """A step of samples of one length, in groups of eight, with half of their rewards 1."""
    count, prompt, response = SAMPLES[size]
    draw, vocab = torch.Generator().manual_seed(at), int(str(SIZES[size].get("vocab_size", 97)))
    groups, trained = count // 8, count * response

    def tokens(number: int) -> list[int]:
        found: list[int] = torch.randint(3, vocab, (number,), generator=draw).tolist()
        return found

    return TrainBatch(
        prompts_P=tuple(tuple(tokens(prompt)) for _ in range(groups)),
        prompt_index_S=array("i", [sample // 8 for sample in range(count)]),
        group_index_S=array("i", [sample // 8 for sample in range(count)]),
        rollout_index_S=array("i", range(count)),
        response_lengths_S=array("i", [response] * count),
        rewards_S=array("d", [float(sample % 2) for sample in range(count)]),
        weights_S=array("d", [1.0] * count),
        tokens_T=array("i", tokens(trained)),
        loss_mask_T=array("b", [1] * trained),
        rollout_log_probs_T=array("f", [0.0] * trained),
        step_tokens=trained,
        step_samples=count,
        rollout_id=at,
        step=0,
    )
