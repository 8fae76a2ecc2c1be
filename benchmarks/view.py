"""`slime view` of 10^4 and 10^6 samples: how soon a page is there, and what it holds; curves, beside others'.

    python benchmarks/view.py                       # 1.6 GB in a temporary folder
    python benchmarks/view.py --samples 10000
    python benchmarks/view.py --samples --trackio .venv-trackers/bin/python        # the curves alone; `make trackers`

Rollouts of 1,024 samples of 200 tokens, as the sample store writes them, and 1,000 rollouts of 60 metrics. The server
is `slime view` as a process; a page of 50 samples is asked for over HTTP, seven times, and the median counts. Then
Chromium, where that and the plugin's extra `browser` are there, opens the curves, and the pages of TensorBoard and,
where an environment has it, Trackio of the same scalars: seconds until a chart is there, the median of five, each
without a cache. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.telemetry import GeneratedGroups, MetricsLog, MetricsRow
from slime_trackers.tensorboard_tracker import TensorBoardTracker
from slime_view.samples.shard import Header, Kind
from slime_view.samples.store import entries_of, write_shard

ROLLOUT, GROUP, TOKENS = 1024, 8, 200
METRICS, ROLLOUTS = 60, 1000
TIMES, OPENED = 7, 5
TOKEN = "benchmark"
TRACKIO_WRITES = """
import json, sys, trackio
trackio.init(project="view", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)
for line in open(sys.argv[1]):
    row = json.loads(line)
    trackio.log(row["metrics"], step=row["rollout_id"])
trackio.finish()
"""
TRACKIO_SHOWS = """
import sys, trackio
trackio.show("view", open_browser=False, block_thread=True, host="127.0.0.1", server_port=int(sys.argv[1]))
"""
NEEDLE = "a-word-of-the-first-rollout-alone"
QUERIES = {
    "newest": {},
    "status": {"status": "truncated"},
    "reward range": {"reward_min": "0.4", "reward_max": "0.6"},
    "rollouts and reason": {"rollout_min": "3", "rollout_max": "7", "reason": "any"},
    "longest": {"sort": "longest"},
    "lowest reward, of one status": {"sort": "worst", "status": "completed"},
}
SEARCHES = {"a frequent word": {"text": "THE"}, "a word of the oldest file": {"text": NEEDLE}}
LIMIT_S, SEARCH_LIMIT_S, LIMIT_MIB = 0.3, 2.0, 300.0


def main() -> int:
    """Measure, print a line for each figure, and all of it as JSON."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--samples", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--trackio", type=Path, help="a Python that has it")
    options = parser.parse_args()
    found: dict[str, object] = {
        "tokens": TOKENS,
        "limits": {"filter_s": LIMIT_S, "search_s": SEARCH_LIMIT_S, "mib": LIMIT_MIB},
    }
    with tempfile.TemporaryDirectory() as root:
        for size in options.samples:
            folder = Path(root, f"of-{size}")
            found[f"samples_{size}"] = measure(folder, write_run(folder, size))
            shutil.rmtree(folder)
        found["curves"] = opened(Path(root, "curves"), options.trackio)
    print(json.dumps(found))
    return 0


def write_run(folder: Path, samples: int) -> int:
    """A run folder of so many samples at least; every rollout has the same, but the first one a word of its own."""
    (folder / "samples").mkdir(parents=True)
    (folder / "run.toml").write_text('hf_checkpoint = "none"\n')
    draw = random.Random(0)
    words = ["the", "of", *("".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 7))) for _ in range(2000))]
    shapes = [_groups(draw, words, ""), _groups(draw, words, NEEDLE)]
    rollouts = samples // ROLLOUT + 1
    for number in range(rollouts):
        kept, dropped = shapes[number == 0][::2], shapes[number == 0][1::2]
        made = GeneratedGroups(kept, dropped, {group.id: "zero_std_0.0" for group in dropped})
        header = Header(Kind.ROLLOUT, number)
        write_shard(folder / "samples" / header.name, number, header.to_json(), entries_of(made))
    return rollouts * ROLLOUT


def _groups(draw: random.Random, words: list[str], needle: str) -> list[Group]:
    made = []
    for row in range(ROLLOUT // GROUP):
        samples = [_sample(draw, words, needle) for _ in range(GROUP)]
        made.append(Group(GroupId("train", 0, row, row), samples))
        made[-1].freeze()
    return made


def _sample(draw: random.Random, words: list[str], needle: str) -> Sample:
    text = " ".join(draw.choices(words, k=TOKENS))
    sample = Sample(prompt=" ".join(draw.choices(words, k=40)), response=f"{needle} {text}", label="42", source="train")
    sample.response_length = draw.randint(TOKENS // 2, TOKENS)
    sample.tokens = [draw.randrange(150_000) for _ in range(40 + sample.response_length)]
    sample.rollout_log_probs = [-draw.random() for _ in range(sample.response_length)]
    sample.reward = draw.random()
    sample.status = draw.choices([Status.COMPLETED, Status.TRUNCATED], [9, 1])[0]
    sample.weight_versions = ["0"]
    return sample


def measure(folder: Path, written: int) -> dict[str, object]:
    """Seconds of each query, and what the server holds."""
    began = time.perf_counter()
    with serving([sys.executable, "-m", "slime_core", "view", str(folder), "--port", "0"]) as (address, process):
        while ask(address, "runs", {})[1][0]["samples"] < written:
            time.sleep(0.05)
        read_s = time.perf_counter() - began
        seconds = {name: _median(address, query) for name, query in (QUERIES | SEARCHES).items()}
        status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
        mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(f"{written:,} samples: started and read in {read_s:.1f} s, {mib:.0f} MiB at most")
    for name, value in seconds.items():
        limit = SEARCH_LIMIT_S if name in SEARCHES else LIMIT_S
        print(f"  {name}: {value * 1000:.0f} ms, limit {limit * 1000:.0f} ms{'' if value <= limit else ', MISSED'}")
    return {
        "read_s": round(read_s, 2),
        "mib": round(mib),
        "seconds": {name: round(each, 4) for name, each in seconds.items()},
    }


def _median(address: str, query: dict[str, str]) -> float:
    return statistics.median(ask(address, "samples", query)[0] for _ in range(TIMES))


def ask(address: str, path: str, query: dict[str, str]) -> tuple[float, Any]:
    """Seconds of an answer, and what it says."""
    asked = Request(f"{address}/api/{path}?{urlencode(query)}", headers={"authorization": f"Bearer {TOKEN}"})
    began = time.perf_counter()
    with urlopen(asked) as answer:
        text = answer.read()
    return time.perf_counter() - began, json.loads(text)


@contextmanager
def serving(command: list[str]) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`slime view` as a process, and its address."""
    environment = os.environ | {"SLIME_VIEW_TOKEN": TOKEN}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().partition("/?")[0], process
        finally:
            process.terminate()


def opened(folder: Path, trackio: Path | None) -> dict[str, object]:
    """Seconds until a browser shows a chart: `slime view`, TensorBoard, and Trackio by a Python that has it."""
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if browser is None or find_spec("playwright") is None:
        print("no Chromium, or no Playwright, here: the curves are not opened")
        return {}
    folder.mkdir()
    (folder / "run.toml").write_text('hf_checkpoint = "none"\n')
    _write_scalars(folder)
    with serving([sys.executable, "-m", "slime_core", "view", str(folder), "--port", "0"]) as (address, _):
        while ask(address, "runs", {})[1][0]["rows"] < ROLLOUTS:
            time.sleep(0.05)
        seconds = {"slime_view": _open(browser, f"{address}/?token={TOKEN}", ".plot canvas")}
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder / "tensorboard"), "--port", "6123"]
    with _started(command, {}):
        _wait_for("http://127.0.0.1:6123/data/plugin/scalars/tags", b"metric")
        seconds["tensorboard"] = _open(browser, "http://127.0.0.1:6123/#timeseries", "scalar-card line-chart")
    if trackio is not None:
        home = {"TRACKIO_DIR": str(folder / "trackio")}
        subprocess.run(
            [trackio, "-c", TRACKIO_WRITES, folder / "metrics.jsonl"],
            env=os.environ | home,
            check=True,
            stdout=sys.stderr,
        )
        with _started([str(trackio), "-c", TRACKIO_SHOWS, "6124"], home):
            _wait_for("http://127.0.0.1:6124/", b"Trackio")
            seconds["trackio"] = _open(browser, "http://127.0.0.1:6124/?project=view", ".plot-chart-wrap canvas")
    print(f"{ROLLOUTS} rollouts of {METRICS} metrics, seconds until a chart: {seconds}")
    return {f"{name}_s": round(each, 3) for name, each in seconds.items()}


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=os.environ | environment) as process:
        try:
            yield
        finally:
            process.terminate()


def _write_scalars(folder: Path) -> None:
    draw, tracker = random.Random(0), TensorBoardTracker(folder)

    async def write() -> None:
        with MetricsLog(folder / "metrics.jsonl") as log:
            for number in range(ROLLOUTS):
                values = {f"rollout/reward/metric_{each}": draw.random() for each in range(METRICS)}
                log.append(MetricsRow(number, number + 1, time.time(), values))
                await tracker.log(number, values)
        await tracker.close()

    asyncio.run(write())


def _wait_for(address: str, text: bytes) -> None:
    for _ in range(600):
        try:
            with urlopen(address) as answer:
                if text in answer.read():
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{address} does not say {text!r}")


def _open(browser: str, address: str, chart: str) -> float:
    from playwright.sync_api import sync_playwright

    seconds = []
    with sync_playwright() as started:
        launched = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(OPENED):
            context = launched.new_context()
            page, began = context.new_page(), time.perf_counter()
            page.goto(address)
            page.wait_for_selector(chart, timeout=60_000)
            seconds.append(time.perf_counter() - began)
            context.close()
        launched.close()
    return statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())
