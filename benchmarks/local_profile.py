"""Where slime-local's time goes: decoding by one worker and training by one rank, by kinds of kernels, beside limits.

    .venv/bin/python benchmarks/local_profile.py --model smollm2            # docs/train.md installs it
    .venv/bin/python benchmarks/local_profile.py --model random-0.5b --device cuda --bf16

Eight answers to each of eight prompts are decoded to their budget, then scored, and a gradient is computed of them,
by one thread on a CPU. The first round warms up; the second is timed, the third profiled. Limits are measured in the
same run: products of large matrices, and reading memory. Decoding has to do 2 operations a weight and token, of prompts
without the output head, and to read each weight once a step; training three times the operations. The last line is one
JSON object.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from trl_bars.limits import matmul_flops, read_bytes
from trl_bars.random_models import SHAPES, base_model

from slime_core.roles import GenerateRequest, SamplingParams
from slime_local.batch import DecodeResult, StopConditions
from slime_local.decode import Decoder
from slime_local.device import use_device
from slime_local.model import GroupTokens, LocalModel, load_model

KINDS = {
    "products with weights": ("aten::mm", "aten::addmm", "aten::addmm_", "aten::linear"),
    "attention": ("aten::bmm", "aten::baddbmm", "aten::_softmax", "aten::_softmax_backward_data"),
    "the vocabulary's softmax": ("aten::_log_softmax", "aten::exp", "aten::cumsum", "aten::searchsorted"),
    "copies and gathers": ("aten::copy_", "aten::index_select", "aten::index", "aten::cat", "aten::index_add_"),
}
"""Kernels by what they are for; all others are element by element, or the program between them."""


def main() -> None:
    """Measure and print."""
    options = _options()
    base = base_model(options.model, Path("runs/bench"))
    use_device(options.device, 0)
    torch.set_float32_matmul_precision(options.precision)
    model = load_model(base, bf16=options.bf16)
    sampling = SamplingParams(options.tokens, ignore_eos=True)
    requests = {
        8 * prompt + each: GenerateRequest(range(5 + prompt, 105 + prompt), sampling, 8 * prompt + each)
        for prompt in range(8)
        for each in range(8)
    }
    decoder, answers = Decoder(model, StopConditions()), dict[int, DecodeResult]()

    def decode() -> None:
        decoder.admit(requests)
        while decoder.busy:
            answers.update(decoder.step())

    gradient = torch.zeros(model.numel)

    def train() -> None:
        groups = [
            GroupTokens(requests[8 * prompt].prompt, [answers[8 * prompt + each].tokens for each in range(8)])
            for prompt in range(8)
        ]
        model.log_probs(groups, grad=gradient).log_probs_T.sum().backward()  # type: ignore[no-untyped-call]

    made, head = len(requests) * options.tokens, model.vocab_size * model.hidden_size
    is_tied = not any(slot.name == "lm_head.weight" for slot in model.layout)
    forward = 2 * ((model.numel - head * (2 - is_tied)) * (made + 8 * 100) + head * made)
    flops, bandwidth = matmul_flops(options.device), read_bytes(options.device)
    reading = {"products_s": forward / flops, "reading_s": 4 * model.numel * options.tokens / bandwidth}
    found = {}
    for name, work, limits in (("decode", decode, reading), ("train", train, {"products_s": 3 * forward / flops})):
        phase = _measured(work, options.device)
        of_limit = max(limits.values()) / phase["s"]
        found[name] = {**phase, **limits, "us_a_token": 1e6 * phase["s"] / made, "of_limit": of_limit}
    for name, phase in found.items():
        print(f"{name:8}" + ", ".join(f"{key} {value:.3g}" for key, value in phase.items()))
    print(json.dumps({"benchmark": "local_profile", "model": options.model, **_of(model, flops, bandwidth), **found}))


def _of(model: LocalModel, flops: float, bandwidth: float) -> dict[str, float]:
    return {"weights": model.numel, "matmul_gflops": round(flops / 1e9, 1), "read_gb_s": round(bandwidth / 1e9, 1)}


def _measured(work: Callable[[], None], device: str) -> dict[str, float]:
    """Seconds of the second call, and the shares of the third that kinds of kernels have."""
    times = []
    for _ in range(2):
        began = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    kinds = {name: kind for kind, names in KINDS.items() for name in names}
    shares = defaultdict[str, float](float)
    began = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]) as seen:
        work()
    whole = time.perf_counter() - began
    for event in seen.key_averages():
        spent = event.self_cpu_time_total if device == "cpu" else event.self_device_time_total
        shares[kinds.get(event.key, "element by element")] += spent / 1e6
    shares["between kernels"] = max(0.0, whole - sum(shares.values()))
    return {"s": times[-1]} | {name: round(spent / whole, 3) for name, spent in sorted(shares.items(), key=_most_first)}


def _most_first(share: tuple[str, float]) -> float:
    return -share[1]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", required=True, help=f"smollm2; {', '.join(SHAPES)}; or a directory in HF format")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--precision", default="medium", help="float32_matmul_precision")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    return parser.parse_args()


if __name__ == "__main__":
    main()
