"""What agents cost, and what is trained of them: the bars of slime-agent-openai, each a module of `agent_bars`.

    .venv/bin/python benchmarks/agents.py                            what a turn costs the driver
    .venv/bin/python benchmarks/agents.py --stream --sessions 128
    .venv/bin/python benchmarks/agents.py --all                      every bar; 1 where a goal is missed
    .venv/bin/python benchmarks/agents.py --all --slime CHECKOUT     slime's own adapter beside ours (needs httpx)
    .venv/bin/python benchmarks/agents.py --verifiers .venv-verifiers/bin/python     verifiers' server beside ours

The last line is one JSON object.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_bars import alone, overhead, streams, trained


def every_bar(slime: Path | None, verifiers: Path | None) -> tuple[dict[str, Any], dict[str, bool]]:
    """Figures of all bars, and which goals are met."""
    found: dict[str, Any] = {}
    found["trained"], all_trained = trained.bar(slime)
    plain = found["turn"] = overhead.compared(overhead.Load(), verifiers)
    streamed = found["streamed"] = overhead.compared(replace(overhead.Load(), stream=True))
    many = found["many"] = overhead.many()
    engine = found["engine"] = asyncio.run(alone.measured())
    stream = found["stream"] = asyncio.run(streams.measured())
    ours: Any = plain["ours"]
    streamed_ours: Any = streamed["ours"]
    met = {
        "every generated token is trained on, in one sample": all_trained,
        "1.0 ms of the driver's CPU a turn": ours["cpu_ms_per_turn"] <= 1.0,
        "1.5 ms streamed": streamed_ours["cpu_ms_per_turn"] <= 1.5,
        "forest p50 0.5 ms": ours["forest_p50_ms"] <= 0.5,
        "forest p99 5 ms": ours["forest_p99_ms"] <= 5.0,
        "a quarter of the CPU of writing the history anew": float(str(plain["anew_over_ours"])) >= 4.0,
        "400 turns a CPU second with 1,000 sessions": many["turns_per_cpu_s"] >= 400,
        "1.0 ms a turn more than the engine alone": engine["more_cpu_ms_per_turn"] <= 1.0,
        "first delta p99 20 ms": stream["first_delta_p99_ms"] <= 20.0,
        "streamed text is the text": stream["different_texts"] == 0,
        "disconnect p99 50 ms": stream["disconnect_p99_ms"] <= 50.0,
    }
    return found, met


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every bar")
    parser.add_argument("--slime", type=Path, help="a checkout of slime, for the first bar")
    parser.add_argument("--verifiers", type=Path, help="a Python with verifiers (make verifiers), for the second bar")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3, help="of each side, by turns; the median counts")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds that the engine takes")
    parser.add_argument("--stream", action="store_true", help="answers are streamed")
    options = parser.parse_args()
    if not options.all:
        load = overhead.Load(options.sessions, options.turns, options.stream, options.delay, options.rounds)
        print(json.dumps(overhead.compared(load, options.verifiers)))
        return 0
    found, met = every_bar(options.slime, options.verifiers)
    for goal, is_met in met.items():
        print(f"{'met   ' if is_met else 'MISSED'}  {goal}")
    print(json.dumps({**found, "missed": [goal for goal, is_met in met.items() if not is_met]}))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
