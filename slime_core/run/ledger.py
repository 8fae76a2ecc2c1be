"""The ledger: a file of every group's moves, append-only: nothing is lost or trained beyond its allowance.

On resume the file is truncated to the offset that the checkpoint recorded; what is before it must be as it was written.

Example:

    ledger = Ledger(folder.ledger)
    ledger.record(GroupState.DRAWN, [group.id], rollout_id=3)
    ledger.reconcile(buffered=0, in_flight=1)           # at the end of every step
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from slime_core.errors import CheckpointError, RunFolderError
from slime_core.nofollow import open_nofollow
from slime_core.run.accounts import Accounts, GroupState, LedgerError
from slime_core.run.saved import SavedAccounts, first_problem
from slime_core.sample import GroupId, Json
from slime_core.secrets import REDACTOR


class Ledger:
    """Accounts of one run; live groups are held by identity, ended ones are counted."""

    def __init__(self, path: Path, max_uses: int = 1) -> None:
        """Open the file for appending; each group may be trained on `max_uses` times.

        Raises:
            RunFolderError: it cannot be written.
        """
        self._path = path
        with self._writing():
            self._file = path.open("ab")
        self._accounts = Accounts(max_uses)
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
        uses = self._accounts.move(state, groups)
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
        with self._writing():
            self._file.write(written)
        self._digest.update(written)

    def drawn(self) -> set[GroupId]:
        """The groups that were drawn and have not finished."""
        return {group_id for group_id, state in self._accounts.live.items() if state is GroupState.DRAWN}

    def buffered(self) -> dict[GroupId, int]:
        """The groups that wait in the buffer, and how often each was trained on."""
        accounts = self._accounts
        held = (group_id for group_id, state in accounts.live.items() if state is GroupState.BUFFERED)
        return {group_id: accounts.uses.get(group_id, 0) for group_id in held}

    def fresh(self, batch: int, ratio: float) -> int:
        """Groups to generate so that, `batch` uses later, there are at most `ratio` uses a group; below 1 for none."""
        return self._accounts.fresh(batch, ratio)

    def counts(self) -> dict[str, int]:
        """Groups by state; one that waits for another use is buffered."""
        return self._accounts.counts()

    def reconcile(self, buffered: int, in_flight: int = 0, finished: int = 0) -> None:
        """See that buffer and scheduler hold what the accounts say, and let readers of the file see it too.

        Args:
            buffered: groups in the buffer.
            in_flight: groups that were drawn and have not finished, groups that went back to the source included.
            finished: groups that no rollout handed over yet.

        Raises:
            LedgerError: they differ.
            RunFolderError: the file cannot be written.
        """
        self._accounts.check(buffered, in_flight, finished)
        with self._writing():
            self._file.flush()

    def state_dict(self) -> dict[str, Json]:
        """Accounts, file position and a digest of all before it, every line of which is on disk.

        Raises:
            RunFolderError: the disk is full.
        """
        with self._writing():
            self._file.flush()
            os.fsync(self._file.fileno())
        return {
            "offset": self._file.tell(),
            "sha256": self._digest.hexdigest(),
            "max_uses": self._accounts.max_uses,
            **self._accounts.to_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go back to a commit point: later lines are cut off.

        Raises:
            CheckpointError: the file is shorter than the commit point, or was changed before it, or the state is none.
        """
        try:
            saved = SavedAccounts.model_validate(state)
        except ValueError as error:
            raise CheckpointError(f"no ledger can go on from such a state: {first_problem(error)}") from None
        digest = digest_before(self._path, saved.offset, saved.sha256)
        self._digest = digest
        with self._writing():
            self._file.truncate(saved.offset)
        self._file.seek(saved.offset)
        self._accounts = Accounts.from_dict(state, self._accounts.max_uses)

    def rewind(self) -> None:
        """Start over: nothing was recorded."""
        max_uses = self._accounts.max_uses
        nothing = {"max_uses": max_uses, **Accounts(max_uses).to_dict()}
        self.load_state_dict({"offset": 0, "sha256": hashlib.sha256().hexdigest(), **nothing})

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


def digest_before(path: Path, offset: int, expected: str) -> "hashlib._Hash":
    """SHA-256 of a ledger's lines before a commit point.

    Raises:
        CheckpointError: the file is shorter, or was changed.
        RunFolderError: the file cannot be read.
    """
    digest, size = digest_of(path, offset), path.stat().st_size
    if size < offset:
        raise CheckpointError(
            f"the ledger {path} has {size} bytes, and the checkpoint was made when it had {offset}: restore the file, "
            "or start a new run with another --save"
        )
    if digest.hexdigest() != expected:
        raise CheckpointError(
            f"the ledger {path} was changed: its first {offset} bytes are not those that the checkpoint was made of. "
            "Restore the file, or start a new run with another --save; `slime ledger --verify` says more"
        )
    return digest


def digest_of(path: Path, size: int) -> "hashlib._Hash":
    """SHA-256 of a file's first bytes, in which it can be gone on with.

    Raises:
        RunFolderError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open_nofollow(path) as file:
            while size and (part := file.read(min(size, 1 << 20))):
                digest.update(part)
                size -= len(part)
    except OSError as error:
        raise RunFolderError(f"cannot read the ledger {path}: {error.strerror}") from error
    return digest
