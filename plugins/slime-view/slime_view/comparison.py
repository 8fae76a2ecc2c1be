"""Comparison: differences between two runs in settings, plugins, metrics, weights, and rewards of the same prompts.

Example:

    found = Comparison.of(Path("runs/first"), Path("runs/second"))
    found.settings["lr"]            # (1e-06, 2e-06)
    found.same_until                # 3: the first rollout whose metrics differ; None where none does
    found.weights                   # {0: True, 5: False}: in the checkpoints that both have
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import cast

from slime_core.config import read_run_file
from slime_core.errors import CheckpointError
from slime_core.outputs import nofollow
from slime_core.run import list_checkpoints
from slime_core.run.checkpoint import MODEL, read_manifest
from slime_core.sample import Json
from slime_core.telemetry import MetricsLog, MetricsRow, strip_timing
from slime_view.ledger_view import LedgerView
from slime_view.samples.shard import Shard, list_shards

WINDOW = 10
"""Number of last common rollouts whose mean is compared."""
IGNORED_KEYS = frozenset({"save"})
"""Keys that are not compared: they differ in every run."""

Pair = tuple[Json, Json]
"""A value of the first run and one of the second; None where a run has none."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Rewards of one prompt in both runs."""

    group: str
    """Its identity, the same in both."""
    rollout_id: int
    """The rollout that generated it."""
    rewards: tuple[float, float]
    """Mean reward of its samples."""

    @property
    def gain(self) -> float:
        """Reward of the second run minus reward of the first."""
        return self.rewards[1] - self.rewards[0]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences between two runs."""

    settings: Mapping[str, Pair]
    """Keys of the run file that differ, by their path."""
    plugins: Mapping[str, Pair]
    """Plugins whose versions differ."""
    rollouts: tuple[int, int]
    """How many rollouts each has reported."""
    same_until: int | None
    """The first rollout whose metrics differ, except timings; None if all common ones are equal."""
    metrics: Mapping[str, tuple[float, float]]
    """Means of common metrics over the last common rollouts; for an evaluation the last value."""
    prompts: Sequence[Prompt]
    """Prompts of these rollouts that both runs have, largest difference first."""
    weights: Mapping[int, bool]
    """Whether the models' files are equal byte for byte, by rollout of each common checkpoint."""

    @classmethod
    def of(cls, first: Path, second: Path) -> "Comparison":
        """Read both runs.

        Raises:
            RunFolderError: one is not a run folder, or a file of it cannot be read.
        """
        runs = (first, second)
        one, other = (dict(_leaves(read_run_file(nofollow(run / "run.toml")))) for run in runs)
        ours, theirs = (_versions(run) for run in runs)
        rows = [MetricsLog.read(run / "metrics.jsonl") for run in runs]
        a, b = ({row.rollout_id: row for row in each if "rollout/step" in row.metrics} for each in rows)
        shared = sorted(a.keys() & b.keys())
        differing = (number for number in shared if strip_timing(a[number]) != strip_timing(b[number]))
        window = shared[-WINDOW:]
        metrics = _means([a[number] for number in window], [b[number] for number in window])
        return cls(
            settings={key: pair for key, pair in _pairs(one, other) if key not in IGNORED_KEYS},
            plugins=dict(_pairs(ours, theirs)),
            rollouts=(len(a), len(b)),
            same_until=next(differing, None),
            metrics={**metrics, **_evaluations(*rows)},
            prompts=_prompts(first, second, window),
            weights=_weights(first, second),
        )

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON, with pairs of the first run's and the second run's value."""
        return {
            "schema_version": 1,
            "settings": {key: list(pair) for key, pair in self.settings.items()},
            "plugins": {key: list(pair) for key, pair in self.plugins.items()},
            "rollouts": list(self.rollouts),
            "same_until": self.same_until,
            "metrics": {name: list(pair) for name, pair in self.metrics.items()},
            "weights": [{"rollout_id": number, "same": is_same} for number, is_same in self.weights.items()],
            "prompts": [
                {"group": each.group, "rollout_id": each.rollout_id, "rewards": list(each.rewards)}
                for each in self.prompts
            ],
        }

    def shown(self, prompts: int = 100) -> dict[str, Json]:
        """JSON for a page, with the prompts that differ most and the number of prompts."""
        found = self.to_dict()
        return {**found, "prompts": cast(list[Json], found["prompts"])[:prompts], "of_prompts": len(self.prompts)}


def _leaves(values: Mapping[str, Json], before: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _pairs(one: Mapping[str, Json], other: Mapping[str, Json]) -> Iterator[tuple[str, Pair]]:
    for key in dict.fromkeys([*one, *other]):
        if one.get(key) != other.get(key):
            yield key, (one.get(key), other.get(key))


def _versions(run: Path) -> dict[str, Json]:
    checkpoint = LedgerView.of(run).checkpoint
    locked = checkpoint.state().plugins if checkpoint else {}
    return {plugin: entry["version"] for plugin, entry in locked.items() if isinstance(entry, dict)}


def _means(one: Sequence[MetricsRow], other: Sequence[MetricsRow]) -> dict[str, tuple[float, float]]:
    def mean(rows: Sequence[MetricsRow], name: str) -> float:
        return fmean(row.metrics[name] for row in rows if name in row.metrics)

    names = {name for row in one for name in row.metrics} & {name for row in other for name in row.metrics}
    return {name: (mean(one, name), mean(other, name)) for name in sorted(names - {"rollout/step"})}


def _evaluations(one: Sequence[MetricsRow], other: Sequence[MetricsRow]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    theirs = {(row.rollout_id, name): value for row in other for name, value in row.metrics.items()}
    for row in one:
        for name, value in row.metrics.items():
            if name.startswith("eval/") and (row.rollout_id, name) in theirs:
                found[name] = (value, theirs[row.rollout_id, name])
    return found


def _weights(first: Path, second: Path) -> dict[int, bool]:
    """Compare the manifests' digests, without reading weights."""
    one, other = (_digests(run) for run in (first, second))
    shared = (number for number in sorted(one.keys() & other.keys()) if one[number].keys() == other[number].keys())
    return {number: one[number] == other[number] for number in shared}


def _digests(run: Path) -> dict[int, dict[str, str]]:
    found = {}
    for path in list_checkpoints(run / "checkpoints"):
        with suppress(CheckpointError):  # a resume reports a damaged one
            files = read_manifest(path).files
            if digests := {
                name: file.sha256
                for name, file in files.items()
                if name.startswith(f"{MODEL}/") and name.endswith(".safetensors")
            }:
                found[int(path.stem.removeprefix("rollout_"))] = digests
    return found


def _prompts(first: Path, second: Path, rollouts: Sequence[int]) -> list[Prompt]:
    one, other = (_rewards(run, rollouts) for run in (first, second))
    found = [Prompt(*key, (one[key], other[key])) for key in one.keys() & other.keys()]
    return sorted(found, key=lambda each: (-abs(each.gain), each.rollout_id, each.group))


def _rewards(run: Path, rollouts: Sequence[int]) -> dict[tuple[str, int], float]:
    rewards: dict[tuple[str, int], list[float]] = {}
    for shard in map(Shard, list_shards(run / "samples")):
        if shard.rollout_id in rollouts:
            for row in shard.rows():
                if row.group is not None and isinstance(row.reward, float | int):
                    rewards.setdefault((row.group, shard.rollout_id), []).append(row.reward)
    return {key: fmean(values) for key, values in rewards.items()}
