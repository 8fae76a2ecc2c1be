"""The ledger: an append-only file of every group's state changes, which proves that no group is lost or overused.

A group is drawn, finished, buffered, then trained or dropped; a change that skips or repeats a state is an error. The
schemas of a checkpoint's manifest.json and state.json are here too.

On resume the file is truncated to the checkpoint's offset, and its moves are made again: the file is the only record.
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
from datetime import date
from pathlib import Path
from typing import Annotated, BinaryIO, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from slime_core.catalog.catalog import Used
from slime_core.catalog.checks import blaming, check_drawn
from slime_core.errors import CheckpointError, RunFolderError, SlimeError
from slime_core.outputs import open_nofollow
from slime_core.roles import DataSource, DescribesData
from slime_core.sample import Group, GroupId, Json
from slime_core.secrets import REDACTOR
from slime_core.telemetry.metrics import LineLog

# What a checkpoint's own two files hold, as a schema: a value of another shape is damage, like a byte that changed.

SCHEMA_VERSION = 1


class GroupState(enum.Enum):
    """Where a group stands."""

    DRAWN = "drawn"
    """Its prompt left the data source; it is being generated."""
    FINISHED = "finished"
    """Generated, scored and kept by the filter."""
    BUFFERED = "buffered"
    """Waiting in the buffer."""
    TRAINED = "trained"
    """Used in an optimizer step; still buffered until it was used as often as it may be."""
    DROPPED = "dropped"
    """Will never be trained; the line has the reason."""


Line = Mapping[str, Json]
"""A line of the ledger: `id`, `state`, `rollout_id`; `use` of a trained group, `reason` of a dropped one."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""In hexadecimal."""


def first_problem(error: ValueError) -> str:
    """The first validation error, in a line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class SavedFile(_Saved):
    """Size in bytes and checksum of a file as it was written."""

    bytes: NonNegativeInt
    sha256: Sha256


class Manifest(_Saved):
    """manifest.json: every other file of a checkpoint, by its path there."""

    schema_version: int
    """Of both files."""
    rollout_id: NonNegativeInt
    """Rollouts that the checkpoint contains."""
    files: dict[str, SavedFile]


class SavedLedger(_Saved):
    """The lines of the ledger that a checkpoint was made of; a resume makes their moves again."""

    offset: NonNegativeInt
    """Bytes of the ledger's file."""
    sha256: Sha256
    """Of those bytes."""
    max_uses: PositiveInt
    """Uses that a group was allowed."""


class SavedState(_Saved):
    """state.json; buffer, data source and scheduler check their own parts, and a loop may add others."""

    model_config = ConfigDict(extra="allow")

    step: NonNegativeInt
    """Optimizer steps done."""
    metrics_position: NonNegativeInt
    """Bytes of metrics.jsonl."""
    plugins: dict[str, JsonValue]
    """Versions, by what they were chosen for."""
    config: dict[str, JsonValue]
    """Keys of the run."""
    day: date | None = None
    """The date that chat templates write: of the run's first start."""
    data_source: dict[str, JsonValue] | None = None
    """Of a run that generates, as the next three."""
    scheduler: dict[str, JsonValue] | None = None
    """Work that was in flight."""
    buffer: dict[str, JsonValue] | None = None
    """Groups that wait."""
    train_steps: NonNegativeInt | None = None
    """Optimizer steps of the whole run, which the learning rate's decay follows; None: unknown."""
    ledger: SavedLedger | None = None
    """Where its lines end."""


# Accounts: the state and uses of every live group, and how many ended how; what the ledger's lines add up to.

_BEFORE: dict[GroupState, frozenset[GroupState | None]] = {
    GroupState.DRAWN: frozenset({None}),
    GroupState.FINISHED: frozenset({GroupState.DRAWN}),
    GroupState.BUFFERED: frozenset({GroupState.FINISHED}),
    GroupState.TRAINED: frozenset({GroupState.BUFFERED}),
    GroupState.DROPPED: frozenset({GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED}),
}


class LedgerError(SlimeError):
    """The accounts do not balance."""


class Accounts:
    """All groups of one run."""

    def __init__(self, max_uses: int) -> None:
        """Start without any; each may be trained on `max_uses` times."""
        self.max_uses = max_uses
        self.live: dict[GroupId, GroupState] = {}
        """Groups that have not ended."""
        self.uses: dict[GroupId, int] = {}
        """How often a live group was trained on; none that never was."""
        self.recorded: Counter[str] = Counter()
        """Moves to each state, by its value."""
        self.ended: Counter[GroupState] = Counter()
        """Ended groups by their last state."""

    def apply(self, line: Line) -> int:
        """Make the move of a ledger's line; returns the group's uses so far, errors as in `move`."""
        [uses] = self.move(GroupState(line["state"]), [GroupId.parse(str(line["id"]))])
        return uses

    def move(self, state: GroupState, groups: Collection[GroupId]) -> Sequence[int]:
        """Move groups to a state; returns the uses of each so far.

        Raises:
            LedgerError: a group cannot move there from where it is; nothing is moved.
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

    def fresh(self, batch: int, ratio: float) -> int:
        """Groups to generate so that, `batch` uses later, there are at most `ratio` uses a group; below 1 for none."""
        uses, entered = self.recorded["trained"], self.recorded["buffered"]
        return math.ceil((uses + batch) / ratio) - entered

    def counts(self) -> dict[str, int]:
        """Groups by state; one that waits for another use is buffered."""
        found = self.ended + Counter(self.live.values())
        return {state.value: found[state] for state in GroupState}


class Ledger:
    """Accounts of one run and their file; live groups are held by identity, ended ones are counted."""

    def __init__(self, path: Path, max_uses: int = 1) -> None:
        """Open the file for appending; each group may be trained on `max_uses` times.

        Raises:
            RunFolderError: it cannot be written.
        """
        self._log = LineLog(path)
        self.accounts = Accounts(max_uses)
        self._digest = hashlib.sha256()

    def record(self, state: GroupState, ids: Iterable[GroupId], rollout_id: int) -> None:
        """Move groups to a state.

        Raises:
            LedgerError: a group cannot move there from where it is, or is named twice; nothing is recorded.
            RunFolderError: the file cannot be written.
        """
        listed = list(ids)
        groups = dict.fromkeys(listed, "")
        if len(groups) < len(listed):
            group_id, times = Counter(listed).most_common(1)[0]
            raise LedgerError(f"group {group_id} cannot become {state.value} {times} times at once")
        self._move(state, groups, rollout_id)

    def drop(self, reasons: Mapping[GroupId, str], rollout_id: int) -> None:
        """Move groups to DROPPED, each with its reason; errors as in `record`."""
        redacted = {group_id: REDACTOR.redact(reason) for group_id, reason in reasons.items()}
        self._move(GroupState.DROPPED, redacted, rollout_id)

    def _move(self, state: GroupState, groups: Mapping[GroupId, str], rollout_id: int) -> None:
        uses = self.accounts.move(state, groups.keys())
        about = f'"state": "{state.value}", "rollout_id": {rollout_id}'
        if state is GroupState.TRAINED:
            ends = [f', "use": {use}' for use in uses]
        elif state is GroupState.DROPPED:
            ends = [f', "reason": {json.dumps(reason)}' for reason in groups.values()]
        else:
            ends = [""] * len(groups)
        names = (json.dumps(str(group_id)) for group_id in groups)
        lines = [f'{{"id": {name}, {about}{end}}}\n' for name, end in zip(names, ends, strict=True)]
        written = "".join(lines).encode()
        self._log.write(written)
        self._digest.update(written)

    def drawn(self) -> set[GroupId]:
        """The groups that were drawn and have not finished."""
        return {group_id for group_id, state in self.accounts.live.items() if state is GroupState.DRAWN}

    def buffered(self) -> dict[GroupId, int]:
        """The groups that wait in the buffer, and how often each was trained on."""
        live, uses = self.accounts.live.items(), self.accounts.uses
        return {group_id: uses.get(group_id, 0) for group_id, state in live if state is GroupState.BUFFERED}

    def reconcile(self, buffered: int, in_flight: int = 0, finished: int = 0) -> None:
        """See that buffer and scheduler hold what the accounts say.

        Args:
            buffered: groups in the buffer.
            in_flight: groups that were drawn and have not finished, groups that went back to the source included.
            finished: groups that no rollout handed over yet.

        Raises:
            LedgerError: they differ, or groups came or went without a move.
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
        """`SavedLedger`: the file's length, a digest and the uses allowed; every line is on disk then.

        Raises:
            RunFolderError: the disk is full.
        """
        offset, sha256 = self._log.position(), self._digest.hexdigest()
        return {"offset": offset, "sha256": sha256, "max_uses": self.accounts.max_uses}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go back to a commit point, a `SavedLedger`: its lines are read again, and later ones are cut off.

        Raises:
            CheckpointError: the file is shorter than the commit point, or was changed before it; or a group was allowed
                another number of uses.
        """
        saved, max_uses = SavedLedger.model_validate(state), self.accounts.max_uses
        if saved.max_uses != max_uses:
            raise CheckpointError(
                f"this buffer hands out a group {max_uses} times at most, and the run was begun with {saved.max_uses}: "
                "a resume cannot change it. Put the buffer's settings back, or start a new run with another --save"
            )
        self._digest = digest_before(self._log.path, saved.offset, saved.sha256)
        self.accounts = Accounts(max_uses)
        for line in read_ledger(self._log.path, saved.offset):
            self.accounts.apply(line)
        self._log.truncate(saved.offset)

    def rewind(self) -> None:
        """Start over: nothing was recorded."""
        nothing = hashlib.sha256().hexdigest()
        self.load_state_dict({"offset": 0, "sha256": nothing, "max_uses": self.accounts.max_uses})

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def digest_before(path: Path, offset: int, expected: str) -> "hashlib._Hash":
    """SHA-256 of a ledger's lines before a commit point.

    Raises:
        CheckpointError: the file is shorter, or was changed.
        RunFolderError: the file cannot be read.
    """
    LineLog.check(path, offset)
    digest = digest_of(path, offset)
    if digest.hexdigest() != expected:
        raise CheckpointError(
            f"the ledger {path} was changed: its first {offset} bytes are not those that the checkpoint was made of. "
            "Restore the file, or start a new run with another --save; `slime ledger` says more"
        )
    return digest


def digest_of(path: Path, size: int) -> "hashlib._Hash":
    """SHA-256 of a file's first bytes, which can be updated further.

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
    """The complete lines of a ledger, those that begin before an offset.

    Raises:
        RunFolderError: there is no ledger, or a complete line is not one of a ledger.
    """
    place = 0
    with open_ledger(path) as file:
        for text in file:
            if not text.endswith(b"\n") or (end is not None and place >= end):
                return
            place += len(text)
            yield parse_line(text, path, place)


def parse_line(text: bytes, path: Path, end: int) -> Line:
    """A line of a ledger, which ends at an offset.

    Raises:
        RunFolderError: it is not one.
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
    """The file for reading.

    Raises:
        RunFolderError: it cannot be read.
    """
    try:
        return open_nofollow(path)
    except OSError as error:
        raise RunFolderError(f"cannot read the ledger {path}: {error.strerror}") from None


class LedgeredSource:
    """A data source whose draws are checked and recorded; a returned group that is drawn again is recorded once."""

    # It keeps which groups came back: the scheduler no longer has them, and a source may not say.

    def __init__(self, use: Used[DataSource], ledger: Ledger) -> None:
        self._source, self._plugin, self._ledger = use.part, use.plugin, ledger
        self._returned: set[GroupId] = set()
        self.rollout_id = 0
        """Recorded with each draw."""

    @property
    def returned(self) -> int:
        """Drawn groups that came back and wait to be drawn again."""
        return len(self._returned)

    async def draw(self, count: int) -> list[Group]:
        """Draw, and record what was drawn for the first time.

        Raises:
            ContractError: what it drew breaks the contract.
            PluginError: it raised.
        """
        with blaming("data source (draw)", self._plugin):
            answer = await self._source.draw(count)
        groups = check_drawn(answer, plugin=self._plugin, count=count)
        new = [group.id for group in groups if group.id not in self._returned]
        self._ledger.record(GroupState.DRAWN, new, self.rollout_id)
        self._returned.difference_update(group.id for group in groups)
        return groups

    def add(self, groups: Sequence[Group]) -> None:
        """Give unfinished groups back."""
        with blaming("data source (add)", self._plugin):
            self._source.add(groups)
        self._returned.update(group.id for group in groups)

    def state_dict(self) -> dict[str, Json]:
        with blaming("data source (state_dict)", self._plugin):
            return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the source; call `hold` after it."""
        with blaming("data source (load_state_dict)", self._plugin):
            self._source.load_state_dict(state)

    def hold(self, drawn: Iterable[GroupId]) -> None:
        """After a resume: take all drawn groups as returned, since none is in flight."""
        self._returned = set(drawn)

    def data_metrics(self) -> Mapping[str, float]:
        with blaming("data source (data_metrics)", self._plugin):
            return self._source.data_metrics() if isinstance(self._source, DescribesData) else {}

    def data_notes(self) -> Sequence[str]:
        with blaming("data source (data_notes)", self._plugin):
            return self._source.data_notes() if isinstance(self._source, DescribesData) else ()

    def __len__(self) -> int:
        return len(self._source)
