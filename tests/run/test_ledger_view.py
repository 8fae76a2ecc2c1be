"""The ledger read from outside: whatever the run is doing, and whatever became of its files."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime_core.errors import RunFolderError
from slime_core.run import GroupState, Ledger, list_checkpoints
from slime_core.sample import GroupId
from slime_view.ledger_view import LedgerView
from tests.checkpoints import write_checkpoint
from tests.conftest import NO_STATE

CHANGED = "the first 1444 bytes of ledger.jsonl have changed"


def group(number: int) -> GroupId:
    return GroupId("train.jsonl", 0, number, number)


class Run:
    """A run folder with a ledger; step n draws three groups, trains one, drops one and leaves one in the buffer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ledger = Ledger(root / "ledger.jsonl", max_uses=2)
        self._drawn = 0

    def step(self, rollout_id: int) -> None:
        first, second, third = (group(self._drawn + number) for number in range(3))
        self._drawn += 3
        self.ledger.record(GroupState.DRAWN, [first, second, third], rollout_id)
        self.ledger.record(GroupState.FINISHED, [first, second], rollout_id)
        self.ledger.drop({third: f"zero_std_{rollout_id % 2}"}, rollout_id)
        self.ledger.record(GroupState.BUFFERED, [first, second], rollout_id)
        for _ in range(2):
            self.ledger.record(GroupState.TRAINED, [first], rollout_id)
        self.ledger.reconcile(buffered=rollout_id + 1)

    def save(self, rollout_id: int) -> None:
        async def nothing(directory: Path) -> None: ...

        state = {**NO_STATE, "ledger": self.ledger.state_dict()}
        asyncio.run(write_checkpoint(self.root / "checkpoints", rollout_id, state, nothing, keep=9))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Four steps, saved after two; the fifth is going on."""
    run = Run(tmp_path)
    for rollout_id in range(4):
        run.step(rollout_id)
        if rollout_id == 1:
            run.save(2)
    run.ledger.record(GroupState.DRAWN, [group(100)], 4)
    run.ledger.reconcile(buffered=4, in_flight=1)
    yield run
    run.ledger.close()


def test_sums_are_of_the_whole_run_and_of_what_is_saved(run: Run) -> None:
    view = LedgerView.of(run.root)
    assert view.totals.accounts.counts() == {"drawn": 1, "finished": 0, "buffered": 4, "trained": 4, "dropped": 4}
    assert view.totals.saved == {"drawn": 0, "finished": 0, "buffered": 2, "trained": 2, "dropped": 2}
    assert (view.totals.moves_since, view.totals.accounts.max_uses) == (21, 2)
    assert view.totals.reasons == {"zero_std_0": 2, "zero_std_1": 2}
    assert view.totals.problems == []


def test_groups_are_listed_by_state_with_their_uses(run: Run) -> None:
    run.ledger.record(GroupState.TRAINED, [group(1), group(4)], 4)
    run.ledger.drop({group(4): "stale"}, 4)
    run.ledger.reconcile(buffered=3, in_flight=1)
    view = LedgerView.of(run.root)
    assert list(view.groups(GroupState.DRAWN)) == [(group(100), 0)]
    assert list(view.groups(GroupState.BUFFERED)) == [(group(1), 1), (group(7), 0), (group(10), 0)]
    assert list(view.groups(GroupState.TRAINED)) == [(group(number), 2) for number in (0, 3, 6, 9)]
    assert list(view.groups(GroupState.DROPPED)) == [(group(number), 0) for number in (2, 5, 8, 11)] + [(group(4), 1)]


def test_a_history_is_every_line_of_one_group_and_of_no_other(run: Run) -> None:
    view = LedgerView.of(run.root)
    moves = ["drawn", "finished", "buffered", "trained", "trained"]
    assert [line["state"] for line in view.history(str(group(0)))] == moves
    assert [line["state"] for line in view.history(str(group(1)))] == moves[:3]
    assert view.history("train.jsonl:e0:r1:d") == []


def test_a_line_that_a_kill_tore_is_not_read(run: Run) -> None:
    with (run.root / "ledger.jsonl").open("ab") as file:
        file.write(b'{"id": "train.jsonl:e0:r')
    view = LedgerView.of(run.root)
    assert view.totals.accounts.counts()["drawn"] == 1
    assert view.totals.problems == []
    assert view.history("train.jsonl:e0:r") == []


def test_a_checkpoint_that_does_not_fit_is_named_and_the_one_before_it_counts(run: Run) -> None:
    async def nothing(directory: Path) -> None: ...

    run.save(4)
    (list_checkpoints(run.root / "checkpoints")[-1] / "state.json").unlink()
    asyncio.run(write_checkpoint(run.root / "checkpoints", 9, NO_STATE, nothing, keep=9))
    view = LedgerView.of(run.root)
    assert view.checkpoint is not None
    assert view.checkpoint.rollout_id == 2
    without, damaged = view.totals.problems
    assert without == "rollout_000009 belongs to a run without a ledger"
    assert "rollout_000004 is damaged: state.json is missing" in damaged
    assert view.totals.accounts.counts()["trained"] == 4


def test_a_ledger_that_lost_its_end_or_was_changed_does_not_balance(run: Run) -> None:
    path = run.root / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:500])
    assert "and no line ends at that byte now" in LedgerView.of(run.root).totals.problems[0]
    path.write_bytes(whole.replace(b"zero_std_0", b"zero_std_9", 1))
    assert LedgerView.of(run.root).totals.problems == [f"rollout_000002 does not match this ledger: {CHANGED}"]
    path.write_bytes(whole + b"\0\0\0\n")
    with pytest.raises(RunFolderError, match=r"ledger.jsonl: the line that ends at byte \d+ is damaged"):
        _ = LedgerView.of(run.root).totals
