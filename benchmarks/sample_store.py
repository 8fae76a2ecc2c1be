"""Keeping what a run generates, against slime's `save_debug_rollout_data` (`torch.save` of dicts): bytes and time.

    python benchmarks/sample_store.py
    python benchmarks/sample_store.py --slime path/to/slime        # a checkout of THUDM/slime; needs torch and httpx

Rollouts of 64 groups of 8 samples, 100 tokens of prompt and 900 of response: ids by Zipf's law from 150,000, a word for
each id as text, log-probs of which 7 in 10 are near 0. Every file gets a new name; processor seconds, the best of the
rounds. Also: reading back, and the memory of frozen samples, each measurement in a process of its own. The last line is
one JSON object.
"""

import argparse
import gc
import json
import logging
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from struct import pack, unpack

from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.telemetry import GeneratedGroups
from slime_view.samples.shard import Drawn, Header, Kind, Shard
from slime_view.samples.store import entries_of, write_shard

VOCABULARY = 150_000
GROUPS, SAMPLES = 64, 8
PROMPT, RESPONSE = 100, 900
TOKENS = GROUPS * SAMPLES * (PROMPT + RESPONSE)
RESIDENT = 100_000


class Maker:
    """Makes samples that look like a model's, always the same ones."""

    def __init__(self) -> None:
        """Draw the words."""
        self._random = random.Random(0)
        letters = "etaoinshrdlucmfwyp"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(1, 6))) for _ in range(VOCABULARY)]
        self._shares = list(accumulate(1 / rank**1.1 for rank in range(1, VOCABULARY + 1)))
        self._places = self._random.sample(range(VOCABULARY), VOCABULARY)

    def ids(self, count: int) -> list[int]:
        """Token ids, common ones anywhere in the vocabulary."""
        draw, total = self._random.random, self._shares[-1]
        return [self._places[bisect(self._shares, draw() * total)] for _ in range(count)]

    def text(self, ids: list[int]) -> str:
        """A word an id."""
        return " ".join(self._words[each] for each in ids)

    def log_probs(self, count: int) -> list[float]:
        """As float32 holds them."""
        means = (0.01 if self._random.random() < 0.7 else 1.5 for _ in range(count))
        exact = [math.log1p(-self._random.random()) * mean for mean in means]
        return list(unpack(f"{count}f", pack(f"{count}f", *exact)))

    def groups(self) -> list[Group]:
        """One rollout, not frozen."""
        made = []
        for number in range(GROUPS):
            prompt = self.ids(PROMPT)
            samples = [self._sample(number, index, prompt) for index in range(SAMPLES)]
            made.append(Group(GroupId("train", 0, number, number), samples))
        return made

    def _sample(self, number: int, index: int, prompt: list[int]) -> Sample:
        ids = self.ids(RESPONSE)
        sample = Sample(group_index=number, index=index, rollout_id=number * SAMPLES + index, source="train")
        sample.prompt, sample.tokens, sample.label = self.text(prompt), list(prompt), "42"
        sample.append_response_tokens(
            tokens=ids, log_probs=self.log_probs(RESPONSE), text=self.text(ids), weight_version="3"
        )
        sample.reward, sample.status = float(index % 2), Status.COMPLETED
        return sample


def main() -> None:
    """Measure and print."""
    options = _options()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options.rounds)))
        return
    names = ["store", "resident", *(["slime"] if options.slime else [])]
    results = {}
    for name in names:
        results[name] = found = _in_child(name, options)
        print(f"{name:>8}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()), flush=True)
    ratios = {}
    if "slime" in results:
        ours, theirs = results["store"], results["slime"]
        ratios = {key: theirs[key] / ours[key] for key in ("us_per_sample", "bytes_per_token")}
    print(json.dumps({"tokens_per_sample": PROMPT + RESPONSE, "results": results, "slime_to_ours": ratios}))


def measure_store(rounds: int) -> dict[str, float]:
    """Ours: writing frozen groups, reading them back."""
    groups = Maker().groups()
    for group in groups:
        group.freeze()
    generated = GeneratedGroups(groups, [], {})
    header = Header(Kind.ROLLOUT, 0, [Drawn(str(group.id), 1.0) for group in groups]).to_json()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"rollout_{number:06d}.parquet" for number in range(rounds)]
        written = _best([_bound(_write, path, number, header, generated) for number, path in enumerate(paths)])
        read = _best([Shard(paths[0]).groups] * rounds)
        assert Shard(paths[-1]).groups().kept == groups
        size = paths[0].stat().st_size
    count = GROUPS * SAMPLES
    return {
        "us_per_sample": 1e6 * written / count,
        "bytes_per_token": size / TOKENS,
        "us_per_sample_read": 1e6 * read / count,
    }


def _write(path: Path, number: int, header: str, generated: GeneratedGroups) -> None:
    write_shard(path, number, header, entries_of(generated))


def measure_slime(rounds: int) -> dict[str, float]:
    """Slime's own function, on samples of its own class."""
    from slime.observability.rollout_data_utils import (  # type: ignore[import-not-found]
        load_debug_rollout_data,
        save_debug_rollout_data,
    )
    from slime.utils.types import Sample as Theirs  # type: ignore[import-not-found]

    logging.disable(logging.INFO)
    samples = [Theirs.from_dict(each.to_dict()) for group in Maker().groups() for each in group.samples]
    with tempfile.TemporaryDirectory() as folder:
        template = f"{folder}/{{rollout_id}}.pt"
        written = _best(
            [_bound(save_debug_rollout_data, template, samples, rollout_id=n, evaluation=False) for n in range(rounds)]
        )
        read = _best([_bound(load_debug_rollout_data, template, rollout_id=0)] * rounds)
        size = Path(template.format(rollout_id=0)).stat().st_size
    count = GROUPS * SAMPLES
    return {
        "us_per_sample": 1e6 * written / count,
        "bytes_per_token": size / TOKENS,
        "us_per_sample_read": 1e6 * read / count,
    }


def measure_resident(rounds: int) -> dict[str, float]:
    """Memory of 10^5 frozen samples of 1,000 tokens each."""
    maker = Maker()
    ids, log_probs = maker.ids(50_000), maker.log_probs(50_000)
    kept: list[Sample] = []
    gc.collect()
    before = _resident_bytes()
    for number in range(RESIDENT):
        at = number * 37 % (len(ids) - PROMPT - RESPONSE)
        sample = Sample(group_index=number // SAMPLES, index=number % SAMPLES, rollout_id=number, label=str(number))
        sample.prompt, sample.tokens = maker.text(ids[at : at + 20]), ids[at : at + PROMPT]
        response = ids[at + PROMPT : at + PROMPT + RESPONSE]
        sample.append_response_tokens(
            tokens=response, log_probs=log_probs[at : at + RESPONSE], text=maker.text(response), weight_version="3"
        )
        sample.reward, sample.metadata = 1.0, {"row": number}
        sample.freeze()
        kept.append(sample)
    gc.collect()
    return {"kib_per_sample": (_resident_bytes() - before) / len(kept) / 1024}


CHILDREN: dict[str, Callable[[int], dict[str, float]]] = {
    "store": measure_store,
    "slime": measure_slime,
    "resident": measure_resident,
}


def _best(calls: list[Callable[[], object]]) -> float:
    """Least processor seconds; other programs only ever add."""
    times = []
    for call in calls:
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def _bound(function: Callable[..., object], *arguments: object, **keywords: object) -> Callable[[], object]:
    return lambda: function(*arguments, **keywords)


def _resident_bytes() -> int:
    """Memory of this process that is no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def _in_child(name: str, options: argparse.Namespace) -> dict[str, float]:
    path = os.pathsep.join(filter(None, [str(options.slime or ""), *sys.path]))
    command = [sys.executable, __file__, "--child", name, "--rounds", str(options.rounds)]
    result = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slime", type=Path, help="a checkout of slime, to be measured too")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
