"""A checkpoint of Megatron's as a model directory, by the flags of slime's tool for torchrun.

torchrun --nproc-per-node 2 tools/convert_to_hf.py --load RUN/checkpoints/rollout_000010 --output-dir out
"""

import argparse
import os
import sys

from slime_core.cli import run_cli


def main() -> int:
    """Convert, and return the exit status; one process does it: under torchrun, the first."""
    parser = argparse.ArgumentParser(description="a checkpoint of Megatron's as a model directory")
    parser.add_argument("--load", required=True, help="the checkpoint, of a run or of Megatron's")
    parser.add_argument("--output-dir", required=True, help="the model directory")
    parser.add_argument("--hf-checkpoint", help="its configuration and tokenizer; left out: what training began with")
    given = parser.parse_args()
    if os.environ.get("RANK", "0") != "0":
        return 0
    origin = ["--origin-hf-dir", given.hf_checkpoint] if given.hf_checkpoint else []
    return run_cli(["convert", given.load, given.output_dir, *origin])


if __name__ == "__main__":
    sys.exit(main())
