"""What slime-engine-sglang costs: its bars, each a module of `sglang_bars`.

    .venv/bin/python benchmarks/sglang_engine.py                        every bar; 1 where a goal is missed
    .venv/bin/python benchmarks/sglang_engine.py --slime CHECKOUT       slime's own client beside ours (needs httpx)
    .venv/bin/python benchmarks/sglang_engine.py --only client          one of them; the others need a server's Python

The last line is one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from sglang_bars import client, publication, server

Goals = dict[str, bool]
Found = dict[str, dict[str, float]]


def of_publication(options: argparse.Namespace) -> tuple[Found, Goals]:
    """A version of weights, to a real server."""
    found = {kind: publication.measure(kind, options.python) for kind in publication.MODELS}
    demo, large = found["demo"], found["smollm2"]
    return found, {
        "the demo's weights in 60 ms": demo["load_ms"] <= 60.0,
        "SmolLM2-135M's in 1.5 s": large["load_ms"] <= 1500.0,
        "no second copy in the driver": max(each["driver_rss_growth_mib"] for each in found.values()) <= 50.0,
    }


def of_server(options: argparse.Namespace) -> tuple[Found, Goals]:
    """Tokens a second of a real server. 97 % is a goal of GPUs."""
    return {"tiny": server.measure(options.python, options.rounds)}, {}


def of_client(options: argparse.Namespace) -> tuple[Found, Goals]:
    """What a request costs."""
    return client.bar(options.rounds, options.slime)


BARS: dict[str, Callable[[argparse.Namespace], tuple[Found, Goals]]] = {
    "client": of_client,
    "publication": of_publication,
    "server": of_server,
}


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slime", type=Path, help="a checkout of slime")
    parser.add_argument("--rounds", type=int, default=5, help="of each client, by turns; the median counts")
    parser.add_argument("--only", choices=sorted(BARS), help="one of the bars")
    parser.add_argument("--python", type=Path, default=Path(".venv-sglang/bin/python"), help="Python that has SGLang")
    options = parser.parse_args()
    measured, met = {}, Goals()
    for name in [options.only] if options.only else BARS:
        measured[name], goals = BARS[name](options)
        met |= goals
        print(json.dumps({name: measured[name]}), file=sys.stderr, flush=True)
    print(json.dumps({**measured, "met": met}))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
