"""GroupHistory: the history of one group of samples, collected from all files of a run folder.

Example:

    history = GroupHistory.of(Path("runs/first"), "train.jsonl:e0:r17:d17")
    [move.state for move in history.moves]         # drawn, finished, buffered, trained
    history.samples[0].reward
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.config import read_run_file
from slime_core.errors import ConfigError
from slime_core.outputs import nofollow
from slime_core.rollout.calls import seed_of_call
from slime_core.run import GroupState
from slime_core.sample import GroupId, Json, Sample
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_view.ledger_view import LedgerView
from slime_view.samples.columns import Entry
from slime_view.samples.shard import Drawn, Shard, list_shards
from slime_view.spans import SampleSpan, SpanLog


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the group's state."""

    state: GroupState
    """The new state."""
    rollout_id: int
    """The rollout in which it happened."""
    use: int | None
    """For a use in training: its number, from 1."""
    reason: str
    """Why it was dropped; empty otherwise."""
    weight: float
    """For a use in training: the buffer's importance weight, else 1."""
    row: MetricsRow | None
    """The rollout's metrics; None if they are not written yet, or a resume removed them."""

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON, with the optimizer step and time from the rollout's metrics."""
        return {
            "state": self.state.value,
            "rollout_id": self.rollout_id,
            "use": self.use,
            "weight": self.weight if self.state is GroupState.TRAINED else None,
            "reason": self.reason or None,
            "step": self.row.step if self.row else None,
            "time": self.row.time if self.row else None,
        }


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """One group, from its draw to its end."""

    group: GroupId
    """Its identity."""
    moves: Sequence[Move]
    """Its state changes, in order."""
    members: Sequence[Entry]
    """Its samples; none until the rollout that finished it ends, and none if its file was deleted."""
    drop_reason: str | None
    """Why it was dropped, from its file; None if it was kept."""
    seed: int
    """The run's seed."""
    choices: Mapping[str, Json]
    """The run file's choices, by role."""
    plugins: Mapping[str, str]
    """The plugin of each choice, `reward/math` -> `slime-reward-math 0.1.0`; empty before the first checkpoint."""
    spans: Sequence[tuple[float, SampleSpan]]
    """Times in flight of its samples: each span, with the seconds since 1970 that it counts from."""

    @classmethod
    def of(cls, run: Path, name: str) -> "GroupHistory":
        """Look a group up.

        Raises:
            ConfigError: the run has no group of that name.
            RunFolderError: it is not a run folder, or a file of it cannot be read.
        """
        view = LedgerView.of(run)
        lines = view.history(name)
        if not lines:
            raise ConfigError(
                f"{view.path} has no group {name!r}: groups are named source:eEPOCH:rROW:dDRAW, as in `slime samples "
                f"{run}` or `slime ledger {run} --state trained`"
            )
        shards = {shard.rollout_id: shard for shard in map(Shard, list_shards(run / "samples"))}
        rows = {row.rollout_id: row for row in MetricsLog.read(run / "metrics.jsonl") if _is_of_a_rollout(row)}
        moves = [_move(name, line, shards, rows) for line in lines]
        members, reason = _members(name, moves, shards)
        values = read_run_file(nofollow(run / "run.toml"))
        locked = view.checkpoint.state().plugins if view.checkpoint else {}
        group = GroupId.parse(name)
        spans = SpanLog.read_group(run / "spans.jsonl", name)
        return cls(group, moves, members, reason, _seed(values), _choices(values), _offered(locked), spans)

    def seed_of(self, sample: Sample) -> int:
        """The seed of the sample's first engine call."""
        return seed_of_call(self.seed, self.group, sample.index or 0, 0)


def _is_of_a_rollout(row: MetricsRow) -> bool:
    return "rollout/step" in row.metrics


def _move(name: str, line: Mapping[str, Json], shards: Mapping[int, Shard], rows: Mapping[int, MetricsRow]) -> Move:
    state, rollout_id = GroupState(line["state"]), int(str(line["rollout_id"]))
    weight = 1.0
    if state is GroupState.TRAINED and rollout_id in shards:
        drawn: Sequence[Drawn] = shards[rollout_id].drawn
        weight = next((each.weight for each in drawn if each.group == name), 1.0)
    use = int(str(line["use"])) if "use" in line else None
    return Move(state, rollout_id, use, str(line.get("reason", "")), weight, rows.get(rollout_id))


def _members(name: str, moves: Sequence[Move], shards: Mapping[int, Shard]) -> tuple[list[Entry], str | None]:
    ends = (GroupState.FINISHED, GroupState.BUFFERED, GroupState.DROPPED)
    for rollout_id in dict.fromkeys(move.rollout_id for move in moves if move.state in ends):
        entries = shards[rollout_id].entries() if rollout_id in shards else ()
        if found := [each for each in entries if each.group == name]:
            return found, found[0].drop_reason
    return [], None


def _seed(values: Mapping[str, Json]) -> int:
    seed = values.get("seed", 0)
    return seed if isinstance(seed, int) else 0


def _choices(values: Mapping[str, Json]) -> dict[str, Json]:
    return {role: table["use"] for role, table in values.items() if isinstance(table, dict) and "use" in table}


def _offered(locked: Mapping[str, Json]) -> dict[str, str]:
    found: dict[str, str] = {}
    for plugin, entry in locked.items():
        if isinstance(entry, dict) and isinstance(choices := entry.get("choices"), list):
            found.update({str(choice): f"{plugin} {entry.get('version', '')}".rstrip() for choice in choices})
    return found
