"""LedgerView: the accounts of a run, read from its folder during the run, after its end or after a crash.

Example:

    view = LedgerView.of(Path("runs/first"))
    view.totals.accounts.counts()           # {"drawn": 0, "finished": 0, "buffered": 12, "trained": 960, …}
    view.history("train.jsonl:e0:r17:d17")
"""

import json
import mmap
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from slime_core.errors import CheckpointError, RunFolderError
from slime_core.run import Checkpoint, GroupState, LedgerError, list_checkpoints, verify
from slime_core.run.ledger import (
    Accounts,
    LedgerPosition,
    Line,
    digest_of,
    open_ledger,
    parse_line,
    read_ledger,
)
from slime_core.run.resume import RESUMES
from slime_core.sample import GroupId, parse_count, parse_number
from slime_core.telemetry.metrics import end_of_last_line, read_lines

LIVE = frozenset({GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED})


@dataclass(slots=True)
class Totals:
    """Totals over all moves of a ledger."""

    accounts: Accounts
    """The accounts at the end of the file."""
    problems: list[str]
    """Why the accounts do not balance."""
    saved: dict[str, int]
    """Groups by state at the checkpoint."""
    moves_since: int = 0
    """Moves since the checkpoint, which a resume repeats."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Dropped groups by reason."""


@dataclass(frozen=True)
class LedgerView:
    """The complete lines of a ledger, with its newest checkpoint."""

    path: Path
    """The file."""
    checkpoint: Checkpoint | None
    """The newest checkpoint that belongs to this file; a resume continues from it."""
    ledger: LedgerPosition | None
    """The checkpoint's state of the ledger."""
    passed_over: list[str]
    """Why newer checkpoints are not used."""

    @classmethod
    def of(cls, run: Path) -> "LedgerView":
        """Open the ledger of a run folder.

        Raises:
            RunFolderError: the folder has no ledger.
        """
        path = run / "ledger.jsonl"
        open_ledger(path).close()
        return cls(path, *_newest(run / "checkpoints", path))

    @property
    def offset(self) -> int:
        """Bytes of the file that the checkpoint covers."""
        return self.ledger.offset if self.ledger else 0

    @cached_property
    def totals(self) -> Totals:
        """Totals from replaying every move of the file.

        Raises:
            RunFolderError: a line is damaged.
        """
        accounts, offset, read = Accounts(self._max_uses), self.offset, 0
        found = Totals(accounts, [*self.passed_over], accounts.counts())
        if self.checkpoint and self.ledger and digest_of(self.path, offset).hexdigest() != self.ledger.sha256:
            changed = f"the first {offset} bytes of {self.path.name} have changed"
            found.problems.append(f"{self.checkpoint.path.name} does not match this ledger: {changed}")
        before = sum(1 for _ in read_ledger(self.path, offset)) if offset else 0
        for read, line in enumerate(read_ledger(self.path), start=1):
            try:
                found.accounts.apply(line)
            except LedgerError as error:
                found.problems.append(str(error))
            if line["state"] == GroupState.DROPPED.value:
                found.reasons[str(line.get("reason", ""))] += 1
            if read == before:
                found.saved = found.accounts.counts()
        found.moves_since = read - before
        return found

    @property
    def _max_uses(self) -> int:
        if self.ledger:
            return self.ledger.max_uses
        return max((cast(int, line.get("use", 1)) for line in read_ledger(self.path)), default=1)

    def groups(self, state: GroupState) -> Iterator[tuple[GroupId, int]]:
        """The groups in a state, each with its uses so far."""
        if state in LIVE:
            live, uses = self.totals.accounts.live, self.totals.accounts.uses
            yield from ((group_id, uses.get(group_id, 0)) for group_id, now in live.items() if now is state)
            return
        accounts = Accounts(self._max_uses)
        for line in read_ledger(self.path):
            with suppress(LedgerError):
                used, group_id = accounts.apply(line), GroupId.parse(str(line["id"]))
                if line["state"] == state.value and group_id not in accounts.live:
                    yield group_id, used

    def history(self, group_id: str) -> list[Line]:
        """Every move of one group, in order; empty if the ledger has no such group."""
        wanted = f'{{"id": {json.dumps(group_id)}, '.encode()
        found = list[Line]()
        with open_ledger(self.path) as file:
            if not (size := file.seek(0, 2)):
                return []
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as text:
                place = text.find(wanted)
                while place >= 0:
                    end = text.find(b"\n", place)
                    if end >= 0 and (place == 0 or text[place - 1] == ord("\n")):
                        found.append(parse_line(text[place:end], self.path, end + 1))
                    place = text.find(wanted, place + 1)
        return found


@dataclass(frozen=True, slots=True)
class Resume:
    """One continuation of a run."""

    rollout_id: int
    """Rollouts in the checkpoint: the number of the first repeated one."""
    time: float
    """Seconds since 1970, UTC."""


def read_resumes(run: Path) -> list[Resume]:
    """Every continuation, oldest first; empty for a run that was never resumed. A torn last line is left out.

    Raises:
        RunFolderError: a complete line is malformed.
    """
    path, found = run / RESUMES, []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            value = json.loads(line)
            found.append(Resume(parse_count(value["rollout_id"]), parse_number(value["time"])))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunFolderError(f"{path}, line {number} is not the record of a resume: {error}") from None
    return found


def _newest(root: Path, path: Path) -> tuple[Checkpoint | None, LedgerPosition | None, list[str]]:
    passed_over = list[str]()
    for candidate in reversed(list_checkpoints(root)):
        try:
            checkpoint = verify(candidate, contents=False)
            ledger = checkpoint.state().ledger
        except CheckpointError as error:
            passed_over.append(str(error))
            continue
        if ledger is None:
            passed_over.append(f"{candidate.name} belongs to a run without a ledger")
            continue
        if end_of_last_line(path, offset := ledger.offset) == offset:
            return checkpoint, ledger, passed_over
        passed_over.append(
            f"{candidate.name} was saved when the ledger had {offset} bytes, and no line ends at that byte now"
        )
    return None, None, passed_over
