"""A torch_dist checkpoint as a model directory, by slime's flags: `slime convert` by its own.

.venv/bin/python tools/convert_torch_dist_to_hf.py --input-dir runs/mine/checkpoints/rollout_000010 --output-dir out \
  --origin-hf-dir models/mine
"""

import argparse
import json
import sys
from pathlib import Path

from slime_core.cli import run_cli


def main() -> int:
    """Convert, and return the exit status."""
    parser = argparse.ArgumentParser(description="Megatron's torch_dist as a model directory")
    parser.add_argument("--input-dir", required=True, help="the checkpoint, of a run or of Megatron's")
    parser.add_argument("--output-dir", required=True, help="the model directory")
    parser.add_argument(
        "--origin-hf-dir", type=Path, help="its configuration and tokenizer; left out: what it says itself"
    )
    parser.add_argument("--vocab-size", type=int, help="tokens without padding; the configuration's, and no other")
    parser.add_argument("--max-shard-size", default="5GB", help="of a file of weights, about")
    given = parser.parse_args()
    flags = ["--max-shard-size", given.max_shard_size]
    if given.origin_hf_dir:
        path = given.origin_hf_dir / "config.json"
        said = json.loads(path.read_text("utf-8")).get("vocab_size") if path.is_file() else given.vocab_size
        if given.vocab_size not in (None, said):
            parser.error(
                f"--vocab-size {given.vocab_size}: {path} says {said}, by which padding is left out; leave it out"
            )
        flags += ["--origin-hf-dir", str(given.origin_hf_dir)]
    return run_cli(["convert", given.input_dir, given.output_dir, *flags])


if __name__ == "__main__":
    sys.exit(main())
