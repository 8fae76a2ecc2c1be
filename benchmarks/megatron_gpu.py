"""Trainer megatron on a GPU: is it the same step, and what does it cost in bf16, against transformers and torch.

    .venv/bin/python benchmarks/megatron_gpu.py                             # one GPU
    .venv/bin/python benchmarks/megatron_gpu.py --device cpu --size tiny    # a rehearsal, without one

First four steps of GRPO in fp32, against a rank of the local trainer on the CPU; then a model of half a billion weights
in bf16, 64 samples a step: tokens and floating-point operations a second, and memory. The last line is one JSON object.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plugins" / "slime-trainer-megatron" / "tests"))


def main() -> None:
    """Measure, or say what is missing."""
    parser = argparse.ArgumentParser(description="trainer megatron on a GPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("half-billion", "tiny"), default="half-billion")
    parser.add_argument("--peak-tflops", type=float, help="of the device in bf16, for the share of it that is used")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            f"torch {torch.__version__} sees no GPU here; give --device cpu --size tiny to rehearse without one"
        )
    from megatron_bars.on_gpu import cost, parity

    with tempfile.TemporaryDirectory() as name:
        found = {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "torch": torch.__version__,
            "parity": parity(Path(name) / "parity", options.device),
            "cost": cost(Path(name) / "cost", options.device, options.size, options.peak_tflops),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
