"""LedgerView: the accounts of a run, read from its folder while it goes on, after it ended and after a crash.

What happened since the newest checkpoint is counted anew; it holds the sums of all before it, and a digest of the lines
that they are of. Only `check` and what lists ended groups look at each of those.

Example:

    view = LedgerView.of(Path("runs/first"))
    view.accounts.counts()                  # {"drawn": 0, "finished": 0, "buffered": 12, "trained": 960, …}
    view.history("train.jsonl:e0:r17:d17")
"""

import json
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from slime_core.errors import CheckpointError, RunFolderError
from slime_core.outputs import open_nofollow
from slime_core.run import Checkpoint, GroupState, LedgerError, list_checkpoints, verify
from slime_core.run.ledger import Accounts, SavedAccounts, digest_of
from slime_core.sample import GroupId, Json
from slime_core.telemetry.metrics import end_of_last_line

Line = Mapping[str, Json]
LIVE = frozenset({GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED})


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What a ledger says, as far as its lines are complete."""

    path: Path
    """The file."""
    checkpoint: Checkpoint | None
    """The newest checkpoint that belongs to this file; a resume continues from it."""
    saved: Accounts
    """The accounts that it holds."""
    offset: int
    """Bytes of the file that it covers."""
    accounts: Accounts
    """The accounts by the end of the file."""
    lines: int
    """Moves since the checkpoint, which a resume makes again."""
    problems: list[str] = field(default_factory=list)
    """Why the accounts do not balance."""

    @classmethod
    def of(cls, run: Path) -> "LedgerView":
        """Read the ledger of a run folder.

        Raises:
            RunFolderError: it has none.
        """
        path, problems = run / "ledger.jsonl", list[str]()
        _opened(path).close()
        checkpoint, ledger = _newest(run / "checkpoints", path, problems)
        offset, max_uses = (ledger.offset, ledger.max_uses) if ledger else (0, _most_uses(path))
        if checkpoint and ledger and digest_of(path, offset).hexdigest() != ledger.sha256:
            problems.append(
                f"{checkpoint.path.name} was made of other lines: the first {offset} bytes of {path.name} were changed"
            )
        saved, accounts = (Accounts.restore(ledger, max_uses) if ledger else Accounts(max_uses) for _ in range(2))
        made = 0
        for line in read_ledger(path, offset):
            made += 1
            _apply(line, accounts, problems)
        return cls(path, checkpoint, saved, offset, accounts, made, problems)

    def check(self) -> list[str]:
        """Make every move of the file again and compare the sums with the checkpoint's; returns all that is wrong."""
        again, problems = Accounts(self.accounts.max_uses), list[str]()
        for line in read_ledger(self.path, 0, self.offset):
            _apply(line, again, problems)
        if self.checkpoint and (differing := _differing(again.to_dict(), self.saved.to_dict())):
            problems.append(f"{self.checkpoint.path.name} and the lines before it differ in {', '.join(differing)}")
        return [*problems, *self.problems]

    def groups(self, state: GroupState) -> Iterator[tuple[GroupId, int]]:
        """The groups that are in a state, each with its uses so far; ended ones are read from the whole file."""
        if state in LIVE:
            held = ((group_id, self.accounts.uses.get(group_id, 0)) for group_id, now in self.accounts.live.items())
            yield from (each for each in held if self.accounts.live[each[0]] is state)
            return
        uses: dict[GroupId, int] = {}
        for line in read_ledger(self.path):
            if line["state"] == GroupState.TRAINED.value:
                group_id, use = GroupId.parse(str(line["id"])), cast(int, line["use"])
                uses[group_id] = use
                if use == self.accounts.max_uses:
                    del uses[group_id]
                    if state is GroupState.TRAINED:
                        yield group_id, use
            elif line["state"] == GroupState.DROPPED.value:
                group_id = GroupId.parse(str(line["id"]))
                used = uses.pop(group_id, 0)
                if state is GroupState.DROPPED:
                    yield group_id, used

    def history(self, group_id: str) -> list[Line]:
        """Every move of one group, in order; none if the ledger does not know it."""
        wanted = f'{{"id": {json.dumps(group_id)}, '.encode()
        found = list[Line]()
        with _opened(self.path) as file:
            if not (size := file.seek(0, 2)):
                return []
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as text:
                place = text.find(wanted)
                while place >= 0:
                    end = text.find(b"\n", place)
                    if end >= 0 and (place == 0 or text[place - 1] == ord("\n")):
                        found.append(_read(text[place:end], self.path, end + 1))
                    place = text.find(wanted, place + 1)
        return found


def read_ledger(path: Path, start: int = 0, end: int | None = None) -> Iterator[Line]:
    """The complete lines between two offsets.

    Raises:
        RunFolderError: there is no ledger, or a complete line is not one of a ledger.
    """
    with _opened(path) as file:
        file.seek(start)
        for text in file:
            start += len(text)
            if not text.endswith(b"\n") or (end is not None and start > end):
                return
            yield _read(text, path, start)


def _read(text: bytes, path: Path, end: int) -> Line:
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


def _opened(path: Path) -> BinaryIO:
    try:
        return open_nofollow(path)
    except OSError as error:
        raise RunFolderError(f"cannot read the ledger {path}: {error.strerror}") from None


def _newest(root: Path, path: Path, problems: list[str]) -> tuple[Checkpoint | None, SavedAccounts | None]:
    passed_over = list[str]()
    for candidate in reversed(list_checkpoints(root)):
        try:
            checkpoint = verify(candidate, contents=False)
            ledger = checkpoint.state().ledger
        except CheckpointError as error:
            passed_over.append(str(error))
            continue
        if ledger is None:
            passed_over.append(f"{candidate.name} is of a run without a ledger")
            continue
        if end_of_last_line(path, offset := ledger.offset) == offset:
            problems += passed_over
            return checkpoint, ledger
        passed_over.append(f"{candidate.name} was made when the ledger had {offset} bytes, and no line ends there now")
    problems += passed_over
    return None, None


def _most_uses(path: Path) -> int:
    return max((cast(int, line.get("use", 1)) for line in read_ledger(path)), default=1)


def _apply(line: Line, accounts: Accounts, problems: list[str]) -> None:
    try:
        accounts.move(GroupState(line["state"]), {GroupId.parse(str(line["id"])): str(line.get("reason", ""))})
    except LedgerError as error:
        problems.append(str(error))


def _differing(found: Mapping[str, Json], expected: Mapping[str, Json]) -> list[str]:
    return [name for name in expected if _without_zeros(found[name]) != _without_zeros(expected[name])]


def _without_zeros(sums: Json) -> Json:
    return {name: value for name, value in sums.items() if value} if isinstance(sums, dict) else sums
