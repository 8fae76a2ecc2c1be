"""The ledger: every group's identity, state and uses, append-only: nothing is lost or trained beyond its allowance.

    drawn -> finished -> buffered -> trained(use) | dropped(reason)

A transition that skips a state or repeats one is an error: it means that the loop lost count. On resume the file is
truncated to the offset that the checkpoint recorded.
"""

import enum
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from slime_core.errors import RunFolderError, SlimeError
from slime_core.sample import GroupId, Json
from slime_core.secrets import REDACTOR


class GroupState(enum.Enum):
    """Where a group stands."""

    DRAWN = "drawn"
    """Its prompt left the data source; it is being generated."""
    FINISHED = "finished"
    """Generated, scored and kept by the filter."""
    BUFFERED = "buffered"
    """Waiting in the buffer."""
    TRAINED = "trained"
    """Used in an optimizer step; buffered still, until it was used as often as it may be."""
    DROPPED = "dropped"
    """Will never be trained; the line says why."""


_BEFORE: dict[GroupState, frozenset[GroupState | None]] = {
    GroupState.DRAWN: frozenset({None}),
    GroupState.FINISHED: frozenset({GroupState.DRAWN}),
    GroupState.BUFFERED: frozenset({GroupState.FINISHED}),
    GroupState.TRAINED: frozenset({GroupState.BUFFERED}),
    GroupState.DROPPED: frozenset({GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED}),
}


class LedgerError(SlimeError):
    """The accounts do not balance."""


class Ledger:
    """Accounts of one run; live groups are held by identity, ended ones are counted."""

    def __init__(self, path: Path, max_uses: int = 1) -> None:
        """Open the file for appending; each group may be trained on `max_uses` times.

        Raises:
            RunFolderError: it cannot be written.
        """
        self._path = path
        self._max_uses = max_uses
        with self._writing():
            self._file = path.open("ab")
        self._live: dict[GroupId, GroupState] = {}
        self._ended: Counter[str] = Counter()
        self._uses: dict[GroupId, int] = {}
        self._recorded: Counter[str] = Counter()

    def record(self, state: GroupState, ids: Iterable[GroupId], rollout_id: int) -> None:
        """Move groups to a state.

        Raises:
            LedgerError: a group cannot move there from where it is, or is named twice; nothing is recorded.
            RunFolderError: the file cannot be written.
        """
        self._move(state, [(group_id, None) for group_id in ids], rollout_id)

    def drop(self, reasons: Mapping[GroupId, str], rollout_id: int) -> None:
        """Move groups to DROPPED, each with its reason; errors as in `record`."""
        self._move(GroupState.DROPPED, list(reasons.items()), rollout_id)

    def _move(self, state: GroupState, groups: list[tuple[GroupId, str | None]], rollout_id: int) -> None:
        named = Counter(group_id for group_id, _ in groups)
        for group_id, times in named.items():
            now = self._live.get(group_id)
            if now not in _BEFORE[state]:
                was = now.value if now else "unknown"
                raise LedgerError(f"group {group_id} cannot become {state.value}: it is {was}")
            if times > 1:
                raise LedgerError(f"group {group_id} cannot become {state.value} {times} times at once")
        lines = []
        for group_id, reason in groups:
            line: dict[str, Json] = {"id": str(group_id), "state": state.value, "rollout_id": rollout_id}
            if state is GroupState.TRAINED:
                line["use"] = self._uses[group_id] = self._uses.get(group_id, 0) + 1
            if reason is not None:
                line["reason"] = REDACTOR.redact(reason)
            if state is GroupState.DROPPED or self._uses.get(group_id) == self._max_uses:
                del self._live[group_id]
                self._uses.pop(group_id, None)
                self._ended[state.value] += 1
            elif state is not GroupState.TRAINED:
                self._live[group_id] = state
            lines.append(json.dumps(line) + "\n")
        self._recorded[state.value] += len(lines)
        with self._writing():
            self._file.write("".join(lines).encode())

    def is_drawn(self, group_id: GroupId) -> bool:
        """Whether the group is being generated."""
        return self._live.get(group_id) is GroupState.DRAWN

    def buffered(self) -> dict[GroupId, int]:
        """The groups that wait in the buffer, and how often each was trained on."""
        held = (group_id for group_id, state in self._live.items() if state is GroupState.BUFFERED)
        return {group_id: self._uses.get(group_id, 0) for group_id in held}

    def fresh(self, batch: int, ratio: float) -> int:
        """Groups to generate so that, `batch` uses later, there are at most `ratio` uses a group; below 1 for none."""
        uses, entered = self._recorded["trained"], self._recorded["buffered"]
        return math.ceil((uses + batch) / ratio) - entered

    def counts(self) -> dict[str, int]:
        """Groups by state; one that waits for another use is buffered."""
        live = Counter(state.value for state in self._live.values())
        return {state.value: live[state.value] + self._ended[state.value] for state in GroupState}

    def reconcile(self, buffered: int, in_flight: int = 0, finished: int = 0) -> None:
        """See that buffer and scheduler hold what the accounts say, and that nothing is half-done at a commit point.

        Raises:
            LedgerError: they differ.
        """
        counts = self.counts()
        if (counts["drawn"], counts["finished"], counts["buffered"]) != (in_flight, finished, buffered):
            raise LedgerError(
                f"{in_flight} groups are in flight, {finished} are finished and the buffer holds {buffered}, "
                f"and the ledger says {counts}"
            )

    def state_dict(self) -> dict[str, Json]:
        """Accounts and file position; every line before it is on disk.

        Raises:
            RunFolderError: the disk is full.
        """
        with self._writing():
            self._file.flush()
            os.fsync(self._file.fileno())
        live: dict[str, Json] = {str(group_id): state.value for group_id, state in self._live.items()}
        return {
            "offset": self._file.tell(),
            "live": live,
            "uses": {str(group_id): uses for group_id, uses in self._uses.items()},
            "ended": dict(self._ended),
            "recorded": dict(self._recorded),
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go back to a commit point: later lines are cut off.

        Raises:
            LedgerError: the file is shorter than the commit point.
        """
        offset, live, uses = state["offset"], state["live"], state["uses"]
        assert isinstance(offset, int)
        assert isinstance(live, dict)
        assert isinstance(uses, dict)
        size = self._file.seek(0, 2)
        if size < offset:
            raise LedgerError(
                f"the ledger {self._path} has {size} bytes, and the checkpoint was made when it had {offset}: "
                "restore the file, or start a new run with another --save"
            )
        with self._writing():
            self._file.truncate(offset)
        self._file.seek(offset)
        self._live = {GroupId.parse(group_id): GroupState(value) for group_id, value in live.items()}
        self._uses = {GroupId.parse(group_id): int(str(count)) for group_id, count in uses.items()}
        self._ended, self._recorded = _counter(state["ended"]), _counter(state["recorded"])

    def rewind(self) -> None:
        """Start over: nothing was recorded."""
        empty: dict[str, Json] = {"offset": 0, "live": {}, "uses": {}, "ended": {}, "recorded": {}}
        self.load_state_dict(empty)

    def close(self) -> None:
        """Close the file; what no checkpoint covers may stay unwritten."""
        with suppress(OSError):
            self._file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunFolderError(f"cannot write the ledger {self._path}: {error.strerror}") from error


def _counter(counts: Json) -> Counter[str]:
    assert isinstance(counts, dict)
    return Counter({name: int(str(count)) for name, count in counts.items()})
