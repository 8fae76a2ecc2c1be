"""What slime-engine-sglang costs: its bars, each a module of `sglang_bars`.

    .venv/bin/python benchmarks/sglang_engine.py                        every bar; 1 where a goal is missed
    .venv/bin/python benchmarks/sglang_engine.py --slime CHECKOUT       slime's own client beside ours (needs httpx)

The last line is one JSON object.
"""

import argparse
import json
import sys
from pathlib import Path

from sglang_bars import client


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slime", type=Path, help="a checkout of slime")
    parser.add_argument("--rounds", type=int, default=5, help="of each client, by turns; the median counts")
    options = parser.parse_args()
    found, met = client.bar(options.rounds, options.slime)
    print(json.dumps({"client": found, "met": met}))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
