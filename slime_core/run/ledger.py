"""The ledger: an append-only file of every group's state changes, to prove that no group is lost or overused.

A group is drawn, finished, buffered, then trained up to `max_uses` times. It can be dropped before its last use.
Any other order is an error.

A resume truncates the file to the checkpoint's offset and applies its lines again: the file is the only record.
`LedgeredSource` records each draw of a data source.

Example:

    ledger = Ledger(folder.ledger)
    ledger.record(GroupState.DRAWN, [group.id], rollout_id=3)
    ledger.reconcile(buffered=0, in_flight=1)           # at the end of every step
"""

import enum
import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, BinaryIO, cast

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import check_drawn, plugin_errors
from slime_core.errors import CheckpointError, RunFolderError, SlimeError
from slime_core.outputs import open_nofollow
from slime_core.roles import DataSource, DescribesData
from slime_core.sample import Group, GroupId, Json
from slime_core.secrets import REDACTOR
from slime_core.telemetry.metrics import LineLog

Line = Mapping[str, Json]
"""A line of the ledger: `id`, `state`, `rollout_id`; `use` for a trained group, `reason` for a dropped one."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal."""


class GroupState(enum.Enum):
    """State of a group."""

    DRAWN = "drawn"
    """Its prompt was drawn from the data source, and its samples are being generated."""
    FINISHED = "finished"
    """It was generated, scored and kept by the filter."""
    BUFFERED = "buffered"
    """It waits in the buffer."""
    TRAINED = "trained"
    """It was used in an optimizer step; it stays in the buffer until it has no uses left."""
    DROPPED = "dropped"
    """It will never be trained on; the line has the reason."""


class LedgerPosition(BaseModel):
    """The ledger's lines up to a checkpoint, which a resume applies again."""

    model_config = ConfigDict(frozen=True, strict=True)

    offset: NonNegativeInt
    """Size in bytes of these lines."""
    sha256: Sha256
    """Digest of these lines."""
    max_uses: PositiveInt
    """Most uses of a group."""


# Accounts: state and uses of every live group, and counts of ended ones; the sum of the ledger's lines.

_BEFORE: dict[GroupState, frozenset[GroupState | None]] = {
    GroupState.DRAWN: frozenset({None}),
    GroupState.FINISHED: frozenset({GroupState.DRAWN}),
    GroupState.BUFFERED: frozenset({GroupState.FINISHED}),
    GroupState.TRAINED: frozenset({GroupState.BUFFERED}),
    GroupState.DROPPED: frozenset({GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED}),
}


class LedgerError(SlimeError):
    """Raised when the accounts do not balance."""


class Accounts:
    """State and uses of all groups of one run."""

    def __init__(self, max_uses: int) -> None:
        """Start without groups; each may be trained on `max_uses` times."""
        self.max_uses = max_uses
        self.live: dict[GroupId, GroupState] = {}
        """State of each group that has not ended."""
        self.uses: dict[GroupId, int] = {}
        """How often each live group was trained on, if ever."""
        self.recorded: Counter[str] = Counter()
        """State changes, by the new state's value."""
        self.ended: Counter[GroupState] = Counter()
        """Ended groups, by their last state."""

    def apply(self, line: Line) -> int:
        """Apply a line of the ledger; returns the group's uses so far, errors as in `move`."""
        [uses] = self.move(GroupState(line["state"]), [GroupId.parse(str(line["id"]))])
        return uses

    def move(self, state: GroupState, groups: Collection[GroupId]) -> Sequence[int]:
        """Move groups to a state; returns each group's uses so far.

        Raises:
            LedgerError: a group cannot move there from its state; nothing is moved.
        """
        before = _BEFORE[state]
        for group_id in groups:
            if (now := self.live.get(group_id)) not in before:
                was = now.value if now else "unknown"
                raise LedgerError(f"group {group_id} cannot become {state.value}: it is {was}")
        self.recorded[state.value] += len(groups)
        if state is GroupState.DROPPED:
            return [self._end(group_id, state) for group_id in groups]
        if state is GroupState.TRAINED:
            return [self._use(group_id) for group_id in groups]
        self.live.update(dict.fromkeys(groups, state))
        return [0] * len(groups)

    def _use(self, group_id: GroupId) -> int:
        uses = self.uses[group_id] = self.uses.get(group_id, 0) + 1
        if uses == self.max_uses:
            self._end(group_id, GroupState.TRAINED)
        return uses

    def _end(self, group_id: GroupId, state: GroupState) -> int:
        del self.live[group_id]
        self.ended[state] += 1
        return self.uses.pop(group_id, 0)

    def groups_needed(self, batch: int, ratio: float) -> int:
        """Return the number of groups to add so that `batch` more uses keep the average within `ratio`.

        0 or less means none.
        """
        uses, entered = self.recorded["trained"], self.recorded["buffered"]
        return math.ceil((uses + batch) / ratio) - entered

    def counts(self) -> dict[str, int]:
        """Return the number of groups by state; a group that waits for another use is buffered."""
        found = self.ended + Counter(self.live.values())
        return {state.value: found[state] for state in GroupState}


class Ledger:
    """The file of a run's state changes and its accounts. Ended groups are only counted."""

    def __init__(self, path: Path, max_uses: int = 1) -> None:
        """Open the file for appending; each group may be trained on `max_uses` times.

        Raises:
            RunFolderError: it cannot be written.
        """
        self._log = LineLog(path)
        self.accounts = Accounts(max_uses)
        self._digest = hashlib.sha256()

    def record(self, state: GroupState, ids: Iterable[GroupId], rollout_id: int) -> None:
        """Move groups to a state, and append their lines.

        Raises:
            LedgerError: a group cannot move there from its state, or is named twice; nothing is recorded.
            RunFolderError: the file cannot be written.
        """
        listed = list(ids)
        if len(set(listed)) < len(listed):
            group_id, times = Counter(listed).most_common(1)[0]
            raise LedgerError(f"group {group_id} cannot become {state.value} {times} times at once")
        uses = self.accounts.move(state, listed)
        details = [{"use": use} if state is GroupState.TRAINED else {} for use in uses]
        self._write(state, zip(listed, details, strict=True), rollout_id)

    def drop(self, reasons: Mapping[GroupId, str], rollout_id: int) -> None:
        """Move groups to DROPPED, each with its reason; errors as in `record`."""
        self.accounts.move(GroupState.DROPPED, reasons.keys())
        details = ((group_id, {"reason": REDACTOR.redact(reason)}) for group_id, reason in reasons.items())
        self._write(GroupState.DROPPED, details, rollout_id)

    def _write(self, state: GroupState, groups: Iterable[tuple[GroupId, Line]], rollout_id: int) -> None:
        moved = {"state": state.value, "rollout_id": rollout_id}
        lines = "".join(json.dumps({"id": str(group_id), **moved, **more}) + "\n" for group_id, more in groups).encode()
        self._log.write(lines)
        self._digest.update(lines)

    def drawn(self) -> set[GroupId]:
        """Return the groups that were drawn and have not finished."""
        return {group_id for group_id, state in self.accounts.live.items() if state is GroupState.DRAWN}

    def buffered(self) -> dict[GroupId, int]:
        """Return the groups in the buffer, and how often each was trained on."""
        live, uses = self.accounts.live.items(), self.accounts.uses
        return {group_id: uses.get(group_id, 0) for group_id, state in live if state is GroupState.BUFFERED}

    def reconcile(self, buffered: int, in_flight: int = 0, finished: int = 0) -> None:
        """Check three counts: `buffered`; `in_flight`, including groups returned to the source; `finished`.

        Raises:
            LedgerError: the numbers differ, or groups came or went without a state change.
        """
        counts, drawn = self.accounts.counts(), self.accounts.recorded["drawn"]
        if (counts["drawn"], counts["finished"], counts["buffered"]) != (in_flight, finished, buffered):
            raise LedgerError(
                f"{in_flight} groups are in flight, {finished} are finished and the buffer holds {buffered}, "
                f"and the ledger says {counts}"
            )
        if drawn != sum(counts.values()):
            raise LedgerError(f"{drawn} groups were drawn, and the ledger says {counts}")

    def state_dict(self) -> dict[str, Json]:
        """Return a `LedgerPosition`: the file's length, digest and allowed uses. All lines are on disk first.

        Raises:
            RunFolderError: the disk is full.
        """
        offset, sha256 = self._log.position(), self._digest.hexdigest()
        return {"offset": offset, "sha256": sha256, "max_uses": self.accounts.max_uses}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go back to a `LedgerPosition`: reads its lines again and cuts off later ones.

        Raises:
            CheckpointError: the file is shorter than the position or was changed before it, or `max_uses` differs.
        """
        position, max_uses = LedgerPosition.model_validate(state), self.accounts.max_uses
        if position.max_uses != max_uses:
            raise CheckpointError(
                f"this buffer hands out a group {max_uses} times at most, and the run was begun with "
                f"{position.max_uses}: a resume cannot change it. Put the buffer's settings back, or start a new run "
                "with another --save"
            )
        self._digest = check_lines(self._log.path, position)
        self.accounts = Accounts(max_uses)
        for line in read_ledger(self._log.path, position.offset):
            self.accounts.apply(line)
        self._log.truncate(position.offset)

    def rewind(self) -> None:
        """Start over with an empty ledger."""
        self._log.truncate(0)
        self.accounts, self._digest = Accounts(self.accounts.max_uses), hashlib.sha256()

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def check_lines(path: Path, position: LedgerPosition) -> "hashlib._Hash":
    """Check that a ledger begins with the lines of a checkpoint; returns their SHA-256.

    Raises:
        CheckpointError: the file is shorter or was changed.
        RunFolderError: the file cannot be read.
    """
    LineLog.check(path, position.offset)
    digest = digest_of(path, position.offset)
    if digest.hexdigest() != position.sha256:
        raise CheckpointError(
            f"the ledger {path} was changed: its first {position.offset} bytes do not match the "
            "checkpoint. Restore the file, or start a new run with another --save; `slime ledger` says more"
        )
    return digest


def digest_of(path: Path, size: int) -> "hashlib._Hash":
    """Return the SHA-256 of a file's first bytes; more bytes can be added.

    Raises:
        RunFolderError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with open_ledger(path) as file:
        while size and (part := file.read(min(size, 1 << 20))):
            digest.update(part)
            size -= len(part)
    return digest


def read_ledger(path: Path, end: int | None = None) -> Iterator[Line]:
    """Yield the complete lines of a ledger that begin before an offset.

    Raises:
        RunFolderError: there is no ledger, or a complete line is not valid.
    """
    place = 0
    with open_ledger(path) as file:
        for text in file:
            if not text.endswith(b"\n") or (end is not None and place >= end):
                return
            place += len(text)
            yield parse_line(text, path, place)


def parse_line(text: bytes, path: Path, end: int) -> Line:
    """Parse a line of a ledger; `end` is the offset after it.

    Raises:
        RunFolderError: the line is not valid.
    """
    try:
        line = json.loads(text)
        GroupId.parse(line["id"])
        if GroupState(line["state"]) is GroupState.TRAINED and (not isinstance(line["use"], int) or line["use"] < 1):
            raise ValueError(f"use {line['use']!r}, expected a number from 1")
        int(str(line["rollout_id"]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise RunFolderError(f"{path}: the line that ends at byte {end} is damaged: {problem}") from None
    return cast(Line, line)


def open_ledger(path: Path) -> BinaryIO:
    """Open a ledger for reading.

    Raises:
        RunFolderError: it cannot be read.
    """
    try:
        return open_nofollow(path)
    except OSError as error:
        raise RunFolderError(f"cannot read the ledger {path}: {error.strerror}") from None


class LedgeredSource:
    """A data source whose draws are checked and recorded. A returned group is not recorded again when it is redrawn."""

    # It tracks returned groups itself: the scheduler no longer has them, and a source may not report them.

    def __init__(self, use: BuiltChoice[DataSource], ledger: Ledger) -> None:
        self._source, self._plugin, self._ledger = use.part, use.plugin, ledger
        self._returned: set[GroupId] = set()
        self.rollout_id = 0
        """Rollout that new draws are recorded with."""

    @property
    def returned(self) -> int:
        """Number of drawn groups that were returned and not redrawn yet."""
        return len(self._returned)

    def _naming(self, method: str) -> AbstractContextManager[None]:
        return plugin_errors(f"data source ({method})", self._plugin)

    async def draw(self, count: int) -> list[Group]:
        """Draw groups, and record the ones drawn for the first time.

        Raises:
            ContractError: the draw breaks the contract.
            PluginError: the source raised.
        """
        with self._naming("draw"):
            answer = await self._source.draw(count)
        groups = check_drawn(answer, plugin=self._plugin, count=count)
        new = [group.id for group in groups if group.id not in self._returned]
        self._ledger.record(GroupState.DRAWN, new, self.rollout_id)
        self._returned.difference_update(group.id for group in groups)
        return groups

    def add(self, groups: Sequence[Group]) -> None:
        """Return unfinished groups to the source."""
        with self._naming("add"):
            self._source.add(groups)
        self._returned.update(group.id for group in groups)

    def state_dict(self) -> dict[str, Json]:
        with self._naming("state_dict"):
            return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the source; call `hold` once the ledger is restored, too."""
        with self._naming("load_state_dict"):
            self._source.load_state_dict(state)

    def hold(self, drawn: Iterable[GroupId]) -> None:
        """Treat all drawn groups as returned; after a resume none is in flight."""
        self._returned = set(drawn)

    def data_metrics(self) -> Mapping[str, float]:
        with self._naming("data_metrics"):
            return self._source.data_metrics() if isinstance(self._source, DescribesData) else {}

    def data_notes(self) -> Sequence[str]:
        with self._naming("data_notes"):
            return self._source.data_notes() if isinstance(self._source, DescribesData) else ()

    def __len__(self) -> int:
        return len(self._source)
