"""megatron-core behind the role, against the local trainer and plain torch: steps, publication, conversion, a profile.

    .venv/bin/python benchmarks/megatron_trainer.py
    .venv/bin/python benchmarks/megatron_trainer.py steps --rounds 5
    .venv/bin/python benchmarks/megatron_trainer.py convert --gib 2

`make layouts` holds the losses, norms and weights of every layout to the local trainer's; this measures what they cost.
The last line is one JSON object.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plugins" / "slime-trainer-megatron" / "tests"))


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description="what trainer megatron costs")
    parser.add_argument("parts", nargs="*", default=["steps", "publish", "convert", "profile"])
    parser.add_argument("--rounds", type=int, default=3, help="of steps, by turns")
    parser.add_argument("--gib", type=float, default=2.0, help="of the model that is converted")
    options = parser.parse_args()
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "steps" in options.parts:
            from megatron_bars.timed_steps import compare

            found["steps"] = compare(folder / "steps", options.rounds)
        if "publish" in options.parts:
            from megatron_bars.published import publication

            found["publish"] = publication(folder / "publish")
        if "convert" in options.parts:
            from megatron_bars.converted import conversion

            found["convert"] = conversion(folder / "convert", options.gib)
        if "profile" in options.parts:
            from megatron_bars.profiled import profiles

            found["profile"] = profiles(folder / "profile")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
