"""The ledger: every group's identity and state, append-only, so that nothing is lost and nothing is trained twice.

    drawn -> finished -> buffered -> trained | dropped(reason)

A transition that skips a state or repeats one is an error: it means that the loop lost count. On resume the file is
truncated to the offset that the checkpoint recorded.
"""

import enum
import json
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
    """Used in an optimizer step."""
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

    def __init__(self, path: Path) -> None:
        """Open the file for appending.

        Raises:
            RunFolderError: it cannot be written.
        """
        self._path = path
        with self._writing():
            self._file = path.open("ab")
        self._live: dict[GroupId, GroupState] = {}
        self._ended: Counter[str] = Counter()

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
            if state in (GroupState.TRAINED, GroupState.DROPPED):
                del self._live[group_id]
                self._ended[state.value] += 1
            else:
                self._live[group_id] = state
            line: dict[str, Json] = {"id": str(group_id), "state": state.value, "rollout_id": rollout_id}
            if reason is not None:
                line["reason"] = REDACTOR.redact(reason)
            lines.append(json.dumps(line) + "\n")
        with self._writing():
            self._file.write("".join(lines).encode())

    def is_drawn(self, group_id: GroupId) -> bool:
        """Whether the group is being generated."""
        return self._live.get(group_id) is GroupState.DRAWN

    def buffered(self) -> list[GroupId]:
        """The groups that wait in the buffer."""
        return [group_id for group_id, state in self._live.items() if state is GroupState.BUFFERED]

    def counts(self) -> dict[str, int]:
        """Groups by state."""
        live = Counter(state.value for state in self._live.values())
        return {state.value: live[state.value] + self._ended[state.value] for state in GroupState}

    def reconcile(self, buffered: int) -> None:
        """See that the buffer holds what the accounts say, and that nothing is half-done at a commit point.

        Raises:
            LedgerError: they differ.
        """
        counts = self.counts()
        if counts["drawn"] or counts["finished"] or counts["buffered"] != buffered:
            raise LedgerError(f"the buffer holds {buffered} groups, and the ledger says {counts}")

    def state_dict(self) -> dict[str, Json]:
        """Accounts and file position; every line before it is on disk.

        Raises:
            RunFolderError: the disk is full.
        """
        with self._writing():
            self._file.flush()
            os.fsync(self._file.fileno())
        live: dict[str, Json] = {str(group_id): state.value for group_id, state in self._live.items()}
        return {"offset": self._file.tell(), "live": live, "ended": dict(self._ended)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go back to a commit point: later lines are cut off.

        Raises:
            LedgerError: the file is shorter than the commit point.
        """
        offset, live, ended = state["offset"], state["live"], state["ended"]
        assert isinstance(offset, int)
        assert isinstance(live, dict)
        assert isinstance(ended, dict)
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
        self._ended = Counter({name: int(str(count)) for name, count in ended.items()})

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
