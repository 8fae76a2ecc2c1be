"""Drawing prompts from 10^3 to 10^6 rows, against slime's own `RolloutDataSource`: time a group, epochs, memory.

    python benchmarks/data_draw.py
    python benchmarks/data_draw.py --slime path/to/slime        # a checkout of THUDM/slime; needs ray and transformers

Both read the same file with the same tokenizer, shuffled, without a chat template, and draw batches of groups of
eight pending samples; each pair of source and size has a process of its own. Processor seconds count, and the best of
ten rounds, for other programs only ever add. The last line is one JSON object.
"""

import argparse
import json
import logging
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Protocol

from slime_core.data import HfTokenizer, prompt_source
from slime_core.roles import DataSourceSetup, PromptFile

SAMPLES = 8
BATCH = 64
ROUNDS = 10
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SEED = 42


class Drawer(Protocol):
    """What is measured."""

    def draw(self, count: int) -> int:
        """Draw groups; returns how many came."""
        ...

    def go_to(self, offset: int) -> None:
        """Go to a row of epoch 0."""
        ...


class Ours:
    """The data source `prompts`."""

    def __init__(self, path: Path, model: Path) -> None:
        """Read the file."""
        file = PromptFile(path, "rows", label_key="label")
        self._source = prompt_source(
            DataSourceSetup(
                make=_make,
                seed=SEED,
                prompts=[file],
                tokenizer=HfTokenizer.load(model),
                n_samples_per_prompt=SAMPLES,
                shuffle=True,
            )
        )

    def draw(self, count: int) -> int:
        """By its coroutine, which never waits; starting an event loop for each draw would cost more than a group."""
        try:
            self._source.draw(count).send(None)
        except StopIteration as done:
            return len(done.value)
        raise AssertionError("it waited")

    def go_to(self, offset: int) -> None:
        """By its state."""
        state = self._source.state_dict()
        state["streams"] = {"rows": {"epoch": 0, "offset": offset}}
        self._source.load_state_dict(state)


class Slime:
    """slime's class, from its checkout."""

    def __init__(self, path: Path, model: Path) -> None:
        """Read the file."""
        from slime.rollout.data_source import RolloutDataSource  # type: ignore[import-not-found]

        logging.disable(logging.WARNING)
        self._source = RolloutDataSource(
            SimpleNamespace(
                rollout_global_dataset=True,
                prompt_data=str(path),
                hf_checkpoint=str(model),
                dump_details=None,
                rollout_max_prompt_len=None,
                input_key="input",
                multimodal_keys=None,
                label_key="label",
                metadata_key="metadata",
                tool_key=None,
                apply_chat_template=False,
                apply_chat_template_kwargs=None,
                rollout_seed=SEED,
                rollout_shuffle=True,
                n_samples_per_prompt=SAMPLES,
            )
        )

    def draw(self, count: int) -> int:
        """One call."""
        return len(self._source.get_samples(count))

    def go_to(self, offset: int) -> None:
        """By its counter."""
        self._source.sample_offset = offset


SOURCES: dict[str, Callable[[Path, Path], Drawer]] = {"ours": Ours, "slime": Slime}


def main() -> None:
    """Measure and print."""
    options = _options()
    if options.child:
        kind, size, folder = options.child
        print(json.dumps(measure(kind, int(size), Path(folder), options.groups)))
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder))
        for size in options.sizes:
            write_rows(Path(folder) / f"{size}.jsonl", size)
            for kind in ("ours", "slime") if options.slime else ("ours",):
                found = results.setdefault(kind, {})[str(size)] = _in_child(kind, size, folder, options)
                shown = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
                print(f"{kind:>6} {size:>9,} rows: {shown}", flush=True)
    print(json.dumps({"samples_per_group": SAMPLES, "batch": BATCH, "results": results, **_ratios(results)}))


def measure(kind: str, size: int, folder: Path, groups: int) -> dict[str, float]:
    """One source over one file."""
    before, started = _resident_mib(), time.process_time()
    source = SOURCES[kind](folder / f"{size}.jsonl", folder)
    loaded, resident = time.process_time() - started, _resident_mib()
    batches = max(1, groups // BATCH // ROUNDS)
    times = [sum(_timed(source, BATCH) for _ in range(batches)) / batches for _ in range(ROUNDS)]
    crossings = []
    for _ in range(3):
        source.go_to(size - BATCH // 2)
        crossings.append(_timed(source, BATCH))
    return {
        "us_per_group": 1e6 * min(times) / BATCH,
        "us_per_group_median": 1e6 * median(times) / BATCH,
        "ms_of_a_batch_across_an_epoch": 1e3 * min(crossings),
        "s_to_load": loaded,
        "mib_of_the_rows": resident - before,
    }


def _timed(source: Drawer, count: int) -> float:
    started = time.process_time()  # other programs do not count
    drawn = source.draw(count)
    passed = time.process_time() - started
    assert drawn == count, f"{drawn} groups of {count}"
    return passed


def _in_child(kind: str, size: int, folder: str, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", kind, str(size), folder, "--groups", str(options.groups)]
    path = ":".join(filter(None, [str(options.slime or ""), *sys.path]))
    result = subprocess.run(
        command, env={"PYTHONPATH": path, "PATH": ""}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def _ratios(results: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    key = "us_per_group"
    smallest, largest = (pick(map(int, results["ours"])) for pick in (min, max))
    ratios = {"largest_to_smallest": results["ours"][str(largest)][key] / results["ours"][str(smallest)][key]}
    if "slime" in results:
        ratios["slime_to_ours_at_largest"] = results["slime"][str(largest)][key] / results["ours"][str(largest)][key]
    return ratios


def _resident_mib() -> float:
    """Memory of this process that is no file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_rows(path: Path, size: int) -> None:
    """Word problems of some 300 characters, a label and metadata."""
    draw = random.Random(0)
    words = [f"word{number}" for number in range(1000)]
    with path.open("w") as file:
        for number in range(size):
            text = f"Problem {number}: {' '.join(draw.choices(words, k=40))}?"
            metadata = {"level": draw.randint(1, 5), "subject": draw.choice(words), "rm_type": "math"}
            print(json.dumps({"input": text, "label": str(number), "metadata": metadata}), file=file)


def write_model(folder: Path) -> None:
    """A tokenizer that both can load."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(_bytes())}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(["<end>"])
    backend.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2"}))


def _bytes() -> Iterable[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError("a data source builds nothing else")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slime", type=Path, help="checkout of THUDM/slime")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="rows")
    parser.add_argument("--groups", type=int, default=20_000, help="groups drawn at each size")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
