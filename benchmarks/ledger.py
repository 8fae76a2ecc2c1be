"""The ledger with 10^3 to 10^6 groups, against sqlite3 with the same moves: record, reconcile, save, load, query.

    python benchmarks/ledger.py

Every group is drawn, finished, buffered and then trained, or dropped (one of eight), 256 groups a step, so that 1,024
are live; each step is reconciled and ends in memory of the operating system, and a checkpoint is taken at every
hundredth. sqlite3 is the standard library's, one row a group, an index on the state, one transaction a step, its log
written ahead and not synced, as the ledger's lines are not: the kindest comparison for it. Processor seconds count, and
the best of three rounds. The last line is one JSON object.
"""

import argparse
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from slime_core.run import GroupState, Ledger
from slime_core.sample import GroupId
from slime_view.ledger_view import LedgerView

BATCH = 256
KEPT = BATCH - BATCH // 8
LAG = 4
"""Steps from a draw to its training."""
SAVE_STEPS = 100
SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 3
QUERIES = 20


class Book(Protocol):
    """What is measured."""

    def move(self, state: GroupState, groups: Sequence[GroupId], step: int) -> None:
        """Move groups to a state."""
        ...

    def reconcile(self, buffered: int) -> None:
        """End a step: the moves are with the operating system, and the sums are right."""
        ...

    def save(self) -> None:
        """Take a checkpoint: everything is on disk."""
        ...

    def load(self) -> None:
        """Open it again at its newest checkpoint."""
        ...

    def count(self) -> int:
        """How many groups were trained, asked from outside."""
        ...

    def history(self, group: GroupId) -> int:
        """How many moves a group made, asked from outside."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Ours:
    """The ledger; a checkpoint is its state beside it."""

    def __init__(self, root: Path) -> None:
        """Open an empty one."""
        self._root = root
        self._ledger = Ledger(root / "ledger.jsonl")
        self._saved = root / "state.json"

    def move(self, state: GroupState, groups: Sequence[GroupId], step: int) -> None:
        """One call."""
        if state is GroupState.DROPPED:
            self._ledger.drop(dict.fromkeys(groups, "zero_std_0.0"), step)
        else:
            self._ledger.record(state, groups, step)

    def reconcile(self, buffered: int) -> None:
        """One call."""
        self._ledger.reconcile(buffered)

    def save(self) -> None:
        """Its state as JSON."""
        self._saved.write_text(json.dumps(self._ledger.state_dict()))

    def load(self) -> None:
        """As a resume does."""
        self._ledger.close()
        self._ledger = Ledger(self._root / "ledger.jsonl")
        self._ledger.load_state_dict(json.loads(self._saved.read_text()))

    def _view(self) -> LedgerView:
        """What `slime ledger` reads, but for finding the checkpoint."""
        return LedgerView(self._root / "ledger.jsonl", None, None, [])

    def count(self) -> int:
        """Every move is made again."""
        return self._view().totals.accounts.counts()["trained"]

    def history(self, group: GroupId) -> int:
        """From the file."""
        return len(self._view().history(str(group)))

    def close(self) -> None:
        """Close the file."""
        self._ledger.close()


class Sqlite:
    """A table of groups and one of moves."""

    def __init__(self, root: Path) -> None:
        """Open an empty one."""
        self._path = root / "ledger.sqlite"
        self._open()
        self._base.execute("create table groups (id text primary key, state text, uses integer) without rowid")
        self._base.execute("create index of_state on groups (state)")
        self._base.execute("create table moves (id text, state text, rollout_id integer, reason text)")
        self._base.execute("create index of_group on moves (id)")
        self._base.execute("begin")

    def _open(self) -> None:
        self._base = sqlite3.connect(self._path, isolation_level=None)
        self._base.execute("pragma journal_mode=wal")
        self._base.execute("pragma synchronous=off")

    def move(self, state: GroupState, groups: Sequence[GroupId], step: int) -> None:
        """Two statements for many rows; the state before is checked by the first."""
        names = [(str(group),) for group in groups]
        if state is GroupState.DRAWN:
            self._base.executemany(f"insert into groups values (?, '{state.value}', 0)", names)
        else:
            before = {"finished": "drawn", "buffered": "finished", "trained": "buffered", "dropped": "drawn"}
            changed = self._base.executemany(
                f"update groups set state = '{state.value}', uses = uses + {int(state is GroupState.TRAINED)} "
                f"where id = ? and state = '{before[state.value]}'",
                names,
            )
            assert changed.rowcount == len(names)
        reason = "zero_std_0.0" if state is GroupState.DROPPED else None
        rows = [(name, state.value, step, reason) for (name,) in names]
        self._base.executemany("insert into moves values (?, ?, ?, ?)", rows)

    def reconcile(self, buffered: int) -> None:
        """Count what is live, by the index, and commit."""
        query = "select count(*) from groups where state = ?"
        assert self._base.execute(query, ("buffered",)).fetchone()[0] == buffered
        assert self._base.execute(query, ("drawn",)).fetchone()[0] == 0
        assert self._base.execute(query, ("finished",)).fetchone()[0] == 0
        self._base.execute("commit")
        self._base.execute("begin")

    def save(self) -> None:
        """Write the log into the database, and sync it."""
        self._base.execute("commit")
        self._base.execute("pragma wal_checkpoint(full)")
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        self._base.execute("begin")

    def load(self) -> None:
        """Open it, and see who is live."""
        self.close()
        self._open()
        self._base.execute("begin")
        self._base.execute("select id, uses from groups where state = 'buffered'").fetchall()

    def count(self) -> int:
        """By the index, in a connection of its own."""
        with sqlite3.connect(self._path) as base:
            found: int = base.execute("select count(*) from groups where state = 'trained'").fetchone()[0]
        base.close()
        return found

    def history(self, group: GroupId) -> int:
        """By the index."""
        with sqlite3.connect(self._path) as base:
            found = base.execute("select * from moves where id = ?", (str(group),)).fetchall()
        base.close()
        return len(found)

    def close(self) -> None:
        """Commit and close."""
        self._base.execute("commit")
        self._base.close()


BOOKS: dict[str, Callable[[Path], Book]] = {"ours": Ours, "sqlite": Sqlite}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="groups")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="times that each is measured")
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, float]]] = {name: {} for name in BOOKS}
    for size in options.sizes:
        for name, make in BOOKS.items():
            rounds = [measure(make, size) for _ in range(options.rounds)]
            best = results[name][str(size)] = {key: min(each[key] for each in rounds) for key in rounds[0]}
            shown = ", ".join(f"{key} {value:.4g}" for key, value in best.items())
            print(f"{name:>6} {size:>9,} groups: {shown}", flush=True)
    print(json.dumps({"batch": BATCH, "live": LAG * BATCH, "results": results, **_ratios(results)}))


def measure(make: Callable[[Path], Book], size: int) -> dict[str, float]:
    """One book of so many groups."""
    with tempfile.TemporaryDirectory() as folder:
        book = make(Path(folder))
        steps = -(-size // BATCH)
        ends = steps + LAG  # the last ones train what is left
        spent = {"record": 0.0, "reconcile": 0.0, "save": 0.0}
        for step in range(ends):
            _timed(spent, "record", lambda step=step: _step(book, step, steps))  # type: ignore[misc]
            held = KEPT * len(range(max(0, step - LAG + 1), min(step + 1, steps)))
            _timed(spent, "reconcile", lambda held=held: book.reconcile(held))  # type: ignore[misc]
            if step % SAVE_STEPS == SAVE_STEPS - 1 or step == ends - 1:
                _timed(spent, "save", book.save)
        saves = -(-ends // SAVE_STEPS)
        spent |= {"load": 0.0, "count": 0.0, "history": 0.0}
        _timed(spent, "load", book.load)
        group = _groups(steps // 2)[0]
        _timed(spent, "count", book.count)
        for _ in range(QUERIES):
            _timed(spent, "history", lambda: book.history(group))
        book.close()
    return {
        "us_per_group": 1e6 * (spent["record"] + spent["reconcile"]) / (steps * BATCH),
        "us_to_reconcile": 1e6 * spent["reconcile"] / ends,
        "ms_to_save": 1e3 * spent["save"] / saves,
        "ms_to_load": 1e3 * spent["load"],
        "ms_to_count": 1e3 * spent["count"],
        "ms_of_a_history": 1e3 * spent["history"] / QUERIES,
    }


def _timed(spent: dict[str, float], what: str, call: Callable[[], object]) -> None:
    started = time.process_time()  # other programs do not count
    call()
    spent[what] += time.process_time() - started


def _step(book: Book, step: int, steps: int) -> None:
    """Draw, drop an eighth, buffer the rest, and train what was drawn some steps ago."""
    if step < steps:
        drawn = _groups(step)
        book.move(GroupState.DRAWN, drawn, step)
        book.move(GroupState.FINISHED, drawn[:KEPT], step)
        book.move(GroupState.DROPPED, drawn[KEPT:], step)
        book.move(GroupState.BUFFERED, drawn[:KEPT], step)
    if step >= LAG:
        book.move(GroupState.TRAINED, _groups(step - LAG)[:KEPT], step)


def _groups(step: int) -> list[GroupId]:
    first = step * BATCH
    return [
        GroupId("train.jsonl", number // 100_000, number % 100_000, number) for number in range(first, first + BATCH)
    ]


def _ratios(results: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    smallest, largest = (str(pick(map(int, results["ours"]))) for pick in (min, max))
    ours, theirs = results["ours"], results["sqlite"]
    ratios = {"largest_to_smallest": ours[largest]["us_per_group"] / ours[smallest]["us_per_group"]}
    for key in ours[largest]:
        ratios[f"sqlite_to_ours_{key}"] = theirs[largest][key] / ours[largest][key]
    return ratios


if __name__ == "__main__":
    main()
