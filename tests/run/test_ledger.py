import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from slime_core.errors import CheckpointError
from slime_core.run import GroupState, Ledger, LedgerError
from slime_core.sample import GroupId, Json
from tests.tables import table

D, F, B, T, X = GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED, GroupState.TRAINED, GroupState.DROPPED
PATHS = {D: (D,), F: (D, F), B: (D, F, B), T: (D, F, B, T), X: (D, X)}
# An ended group is forgotten, so that memory does not grow with the run; its identity is never drawn again.
ALLOWED = {(None, D), (D, F), (F, B), (B, T), (D, X), (F, X), (B, X), (T, D), (X, D)}


def group(number: int) -> GroupId:
    return GroupId("train.jsonl", 0, number, number)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@table("before, after", [(before, after) for before in (None, *GroupState) for after in GroupState])
def test_only_the_allowed_moves_are_possible(tmp_path: Path, before: GroupState | None, after: GroupState) -> None:
    ledger = Ledger(tmp_path / f"{before}-{after}.jsonl")
    for state in PATHS[before] if before else ():
        ledger.record(state, [group(0)], 0)
    if (before, after) in ALLOWED:
        ledger.record(after, [group(0)], 0)
    else:
        with pytest.raises(LedgerError, match=f"train.jsonl:e0:r0:d0 cannot become {after.value}: it is "):
            ledger.record(after, [group(0)], 0)
    ledger.close()


def test_a_refused_move_moves_none_of_its_groups(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.record(D, [group(0)], 0)
    with pytest.raises(LedgerError, match="d1 cannot become finished: it is unknown"):
        ledger.record(F, [group(0), group(1)], 0)
    with pytest.raises(LedgerError, match="cannot become finished 2 times"):
        ledger.record(F, [group(0), group(0)], 0)
    assert ledger.drawn() == {group(0)}
    ledger.close()
    assert len(lines(path)) == 1


def held(ledger: Ledger, *numbers: int) -> None:
    for state in PATHS[B]:
        ledger.record(state, [group(number) for number in numbers], 0)


def test_a_group_is_trained_as_often_as_it_may_be_also_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, max_uses=2)
    held(ledger, 0, 1)
    ledger.record(T, [group(0)], 1)
    assert ledger.buffered() == {group(0): 1, group(1): 0}
    state = json.loads(json.dumps(ledger.state_dict()))
    ledger.close()
    ledger = Ledger(path, max_uses=2)
    ledger.load_state_dict(state)
    assert (ledger.buffered(), ledger.accounts.groups_needed(4, ratio=2.0)) == ({group(0): 1, group(1): 0}, 1)
    ledger.record(T, [group(0)], 2)
    with pytest.raises(LedgerError, match="d0 cannot become trained: it is unknown"):
        ledger.record(T, [group(0)], 3)
    ledger.record(T, [group(1)], 3)
    ledger.drop({group(1): "stale"}, 4)
    assert ledger.accounts.counts() == {"drawn": 0, "finished": 0, "buffered": 0, "trained": 1, "dropped": 1}
    uses = [(line["id"], line["use"]) for line in lines(path) if line["state"] == "trained"]
    assert uses == [(str(group(0)), 1), (str(group(0)), 2), (str(group(1)), 1)]
    ledger.rewind()
    assert (sum(ledger.accounts.counts().values()), ledger.accounts.groups_needed(4, ratio=2.0)) == (0, 2)
    ledger.close()


@table("ratio, expected", [(1.0, [4, 4, 4, 4]), (2.0, [4, 0, 2, 2]), (1.5, [4, 2, 2, 3])])
def test_what_is_generated_keeps_the_ratio_of_uses(tmp_path: Path, ratio: float, expected: list[int]) -> None:
    ledger, made = Ledger(tmp_path / f"{ratio}.jsonl", max_uses=9), list[int]()
    for _ in expected:
        made.append(max(4 - len(ledger.buffered()), ledger.accounts.groups_needed(4, ratio), 0))
        held(ledger, *range(sum(made[:-1]), sum(made)))
        ledger.record(T, list(ledger.buffered())[:4], 0)
    assert made == expected
    ledger.close()


@table("buffered, in_flight, finished", [(2, 1, 1), (3, 1, 1), (2, 2, 1), (2, 1, 2), (1, 1, 1), (0, 0, 0)])
def test_all_parts_hold_what_the_accounts_say(tmp_path: Path, buffered: int, in_flight: int, finished: int) -> None:
    ledger = Ledger(tmp_path / f"{buffered}{in_flight}{finished}.jsonl")
    held(ledger, 0, 1)
    ledger.record(D, [group(2), group(3)], 0)
    ledger.record(F, [group(3)], 0)
    if (buffered, in_flight, finished) == (2, 1, 1):
        ledger.reconcile(buffered, in_flight, finished)
    else:
        says = f"{in_flight} groups are in flight, {finished} are finished and the buffer holds {buffered}, and the led"
        with pytest.raises(LedgerError, match=says):
            ledger.reconcile(buffered, in_flight, finished)
    ledger.close()


def test_a_group_that_came_or_went_without_a_move_is_missed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    held(ledger, 0, 1)
    ledger.accounts.live.popitem()
    with pytest.raises(LedgerError, match="2 groups were drawn, and the ledger says"):
        ledger.reconcile(buffered=1)
    ledger.close()


def of_two_groups(path: Path) -> dict[str, Json]:
    """The state of a ledger of two trained groups."""
    with closing(Ledger(path)) as ledger:
        held(ledger, 0, 1)
        ledger.record(T, [group(0), group(1)], 0)
        return ledger.state_dict()


def swap_last(path: Path) -> None:
    """One group is trained on twice and another never, and no sum tells."""
    *others, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join(others) + last.replace(str(group(1)), str(group(0))))


@table(
    "max_uses, damage, says",
    [
        (3, Path.touch, "hands out a group 3 times at most, and the run was begun with 1"),
        (1, Path.unlink, r"ledger.jsonl: .* the file has 0 bytes.* restore it"),
        (1, swap_last, r"ledger.jsonl was changed: .* Restore the file"),
    ],
)
def test_a_ledger_of_other_lines_or_uses_is_refused(
    tmp_path: Path, max_uses: int, damage: Callable[[Path], None], says: str
) -> None:
    path = tmp_path / damage.__name__ / "ledger.jsonl"
    path.parent.mkdir()
    state = of_two_groups(path)
    damage(path)
    with closing(Ledger(path, max_uses)) as again, pytest.raises(CheckpointError, match=says):
        again.load_state_dict(state)


class Accounts(RuleBasedStateMachine):
    """Any life of any number of groups, cut at any commit point: the ledger agrees with a model that counts."""

    drawn, finished, buffered = Bundle("drawn"), Bundle("finished"), Bundle("buffered")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "ledger.jsonl"
        self._ledger = Ledger(self._path)
        self._next = 0
        self._model: Counter[str] = Counter()
        self._moves = 0

    def _move(self, was: str | None, now: str) -> None:
        self._moves += 1
        self._model[now] += 1
        if was:
            self._model[was] -= 1

    @rule(target=drawn, count=st.integers(0, 3))
    def draw(self, count: int) -> object:
        ids = [group(self._next + number) for number in range(count)]
        self._next += count
        self._ledger.record(D, ids, 0)
        for _ in ids:
            self._move(None, "drawn")
        return multiple(*ids)

    @rule(target=finished, one=consumes(drawn))
    def finish(self, one: GroupId) -> GroupId:
        self._ledger.record(F, [one], 0)
        self._move("drawn", "finished")
        return one

    @rule(target=buffered, one=consumes(finished))
    def buffer(self, one: GroupId) -> GroupId:
        self._ledger.record(B, [one], 0)
        self._move("finished", "buffered")
        return one

    @rule(one=consumes(buffered))
    def train(self, one: GroupId) -> None:
        self._ledger.record(T, [one], 0)
        self._move("buffered", "trained")

    @rule(one=consumes(drawn), reason=st.text(max_size=5))
    def drop_drawn(self, one: GroupId, reason: str) -> None:
        self._ledger.drop({one: reason}, 0)
        self._move("drawn", "dropped")

    @rule(one=consumes(buffered))
    def drop_buffered(self, one: GroupId) -> None:
        self._ledger.drop({one: "stale"}, 0)
        self._move("buffered", "dropped")

    @rule(lost=st.integers(0, 3), torn=st.binary(max_size=20))
    def commit_then_die_and_resume(self, lost: int, torn: bytes) -> None:
        """Groups drawn after the commit point, and a torn last line, are as if they had never been."""
        state = json.loads(json.dumps(self._ledger.state_dict()))
        self._ledger.record(D, [group(self._next + number) for number in range(lost)], 0)
        self._ledger.close()
        with self._path.open("ab") as file:
            file.write(torn)
        self._ledger = Ledger(self._path)
        self._ledger.load_state_dict(state)

    @invariant()
    def counts_agree(self) -> None:
        assert self._ledger.accounts.counts() == {state.value: self._model[state.value] for state in GroupState}

    def teardown(self) -> None:
        self._ledger.close()
        written = lines(self._path)
        assert len(written) == self._moves
        last = {line["id"]: line["state"] for line in written}
        assert Counter(last.values()) == +self._model
        self._folder.cleanup()


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
