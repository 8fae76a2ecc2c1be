"""A model directory of Hugging Face's as Megatron's torch_dist, by slime's flags: `slime convert` by its own.

.venv/bin/python tools/convert_hf_to_torch_dist.py --hf-checkpoint models/mine --save mine_torch_dist
"""

import argparse
import os
import sys

from slime_core.cli import run_cli


def main() -> int:
    """Convert, and return the exit status; one process does it: under torchrun, the first."""
    parser = argparse.ArgumentParser(description="a model directory as Megatron's torch_dist")
    parser.add_argument("--hf-checkpoint", required=True, help="the model directory")
    parser.add_argument("--save", required=True, help="folder of the checkpoint")
    given = parser.parse_args()
    if os.environ.get("RANK", "0") != "0":
        return 0
    return run_cli(["convert", given.hf_checkpoint, given.save])


if __name__ == "__main__":
    sys.exit(main())
