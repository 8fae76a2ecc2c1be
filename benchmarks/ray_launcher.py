"""What Ray costs: calls of a group against bare actors and the local launcher, whole runs, and one driver of many GPUs.

Needs plugins/slime-launcher-ray, and plugins/slime-local and slime-reward-math for runs. Prints medians of what took
turns, so that other load hits all alike, and the seconds of starts and ends. The last line is one JSON object.

    .venv/bin/python benchmarks/ray_launcher.py
    .venv/bin/python benchmarks/ray_launcher.py calls --rounds 200
    .venv/bin/python benchmarks/ray_launcher.py runs --runs 3
    .venv/bin/python benchmarks/ray_launcher.py slime --slime path/to/slime     # a checkout of THUDM/slime; needs httpx
    .venv/bin/python benchmarks/ray_launcher.py driver                          # the table of docs/ray.md
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description="what the launcher ray costs")
    parser.add_argument("parts", nargs="*", default=["calls", "runs"], help="calls, runs, slime, driver")
    parser.add_argument("--slime", type=Path, help="a checkout of slime, for the part of that name")
    parser.add_argument("--rounds", type=int, default=200, help="of calls, by turns")
    parser.add_argument("--runs", type=int, default=2, help="under each launcher, by turns")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    if "calls" in options.parts:
        from ray_bars.calls import calls

        found["calls"] = asyncio.run(calls(options.rounds))
    if "runs" in options.parts:
        from ray_bars.runs import runs

        with tempfile.TemporaryDirectory() as name:
            found["runs"] = runs(Path(name), options.runs)
    if "slime" in options.parts:
        if options.slime is None:
            parser.error("the part slime needs --slime path/to/slime")
        from ray_bars.slimes import beside_slime

        found["slime"] = beside_slime(options.rounds, options.slime)
    if "driver" in options.parts:
        from ray_bars.driver import driver

        found["driver"] = driver()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
