"""BufferContract: what every buffer must keep, BUF-001 to BUF-009.

    class TestPriority(BufferContract):
        choice = "slime-buffer-priority/priority"
        settings = {"capacity": 8}

A buffer is the run's memory between rollout and training: what it loses or repeats is lost or repeated for good.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from slime_core.roles import (
    Buffer,
    BufferContext,
    BufferSetup,
    BufferSpec,
    Selection,
)
from slime_core.sample import Group, GroupId
from slime_testing._state import plain_state
from slime_testing.contract import check, require
from slime_testing.protected import SEED
from slime_testing.role import RoleContract
from slime_testing.samples import make_group

ROUNDS = 6
"""Rollouts that a check plays."""


class BufferContract(RoleContract[BufferSpec]):
    """Inherit and name the buffer."""

    kind = BufferSpec
    choice: ClassVar[str | BufferSpec]
    """The buffer: a name for the catalog, or a spec."""

    @check("BUF-001")
    def test_the_factory_builds_a_buffer(self) -> None:
        """The object has every method of `slime_core.roles.Buffer`, `__len__` included, and starts empty."""
        built: object = self._build()
        missing = [name for name in _METHODS if not callable(getattr(built, name, None))]
        require(not missing, f"{type(built).__name__} lacks {', '.join(missing)}")
        require(len(self._build()) == 0, f"a new buffer holds {len(self._build())} groups")

    @check("BUF-002", needs=("BUF-001",))
    def test_it_hands_out_what_was_added_and_no_more_than_wanted(self) -> None:
        """`sample(want)` returns at most `want` distinct groups, each of which was added before."""
        buffer, added = self._build(), set()
        for round_, groups in _rounds():
            buffer.add(groups)
            added |= {group.id for group in groups}
            ids = [group.id for group in buffer.sample(3, _context(round_)).groups]
            require(len(ids) <= 3, f"3 groups were wanted, {len(ids)} came")
            require(len(set(ids)) == len(ids), "one draw holds the same group twice")
            require(set(ids) <= added, "a group came that was never added")

    @check("BUF-003", needs=("BUF-001",))
    def test_every_group_of_a_draw_has_a_weight(self) -> None:
        """`Draw.weights` are finite factors above 0 of the groups' losses, one each; 1.0 without priorities."""
        buffer = self._build()
        for round_, groups in _rounds():
            buffer.add(groups)
            draw = buffer.sample(3, _context(round_))
            require(len(draw.weights) == len(draw.groups), f"{len(draw.groups)} groups, {len(draw.weights)} weights")
            wrong = [weight for weight in draw.weights if not (math.isfinite(weight) and weight > 0)]
            require(not wrong, f"weights must be finite and above 0, found {wrong}")

    @check("BUF-004", needs=("BUF-001", "BUF-005", "BUF-008"))
    def test_a_group_is_handed_out_as_often_as_the_spec_says(self) -> None:
        """Training on a group more often than announced is off-policy: once, unless `BufferSpec.replay` says more."""
        allowed = self.spec.replay(self.validated()).max_uses
        buffer, uses = self._build(), Counter[GroupId]()
        for round_ in range(ROUNDS * (1 + allowed)):
            if round_ < ROUNDS:
                buffer.add(_groups(round_))
            ids = [group.id for group in buffer.sample(3, _context(round_)).groups]
            buffer.update(dict.fromkeys(ids, 1.0))
            uses.update(ids)
        again = [str(group_id) for group_id, count in uses.items() if count > allowed]
        require(not again, f"handed out more than {_times(allowed)}: {', '.join(again)}")

    @check("BUF-005", needs=("BUF-001", "BUF-008"))
    def test_nothing_comes_of_nothing(self) -> None:
        """An empty buffer, and a draw of 0, give an empty draw; neither is an error."""
        buffer = self._build()
        require(not buffer.sample(4, _context(0)).groups, "an empty buffer handed out groups")
        buffer.add(_groups(0))
        require(not buffer.sample(0, _context(0)).groups, "0 groups were wanted, some came")

    @check("BUF-006", needs=("BUF-001", "BUF-007"))
    def test_a_saved_buffer_continues_as_if_nothing_had_happened(self) -> None:
        """`state_dict` is plain JSON with every held group, priority and random state; a crash must lose none."""
        for cut in range(ROUNDS):
            buffer = self._build()
            self._play(buffer, range(cut))
            saved = plain_state(buffer.state_dict())
            resumed = self._build()
            resumed.load_state_dict(json.loads(saved))
            require(len(resumed) == len(buffer), f"{len(buffer)} groups were held, {len(resumed)} are after a resume")
            expected, found = (self._play(each, range(cut, ROUNDS)) for each in (buffer, resumed))
            require(found == expected, f"saved after {cut} rounds: the draws that follow differ after a resume")

    @check("BUF-007", needs=("BUF-001",))
    def test_what_is_evicted_is_named_once_and_gone(self) -> None:
        """`evict` returns the reason of each group that will never be trained; the ledger ends it there."""
        buffer, added, evicted = self._build(), set(), Counter[GroupId]()
        for round_, groups in _rounds():
            buffer.add(groups)
            added |= {group.id for group in groups}
            evicted.update(list(_evict(buffer, round_)))
            came = {group.id for group in buffer.sample(2, _context(round_)).groups} & set(evicted)
            require(not came, f"handed out after it was evicted: {', '.join(map(str, came))}")
        require(set(evicted) <= added, "a group was evicted that was never added")
        require(all(count == 1 for count in evicted.values()), "a group was evicted more than once")

    @check("BUF-008", needs=("BUF-001",))
    def test_two_buffers_share_nothing(self) -> None:
        """Evaluation, tests and a second run have buffers of their own: keep state in `self`."""
        one, other = self._build(), self._build()
        one.add(_groups(0))
        require(len(other) == 0, "a group added to one buffer is in another one")

    @check("BUF-009", needs=("BUF-001",))
    def test_groups_come_out_as_they_went_in(self) -> None:
        """What is trained must be what was sampled: a buffer keeps its notes in `group.metadata`, and nowhere else."""
        buffer, samples = self._build(), dict[GroupId, object]()
        for round_, groups in _rounds():
            samples |= {group.id: [sample.to_dict() for sample in group.samples] for group in groups}
            buffer.add(groups)
            for group in buffer.sample(3, _context(round_)).groups:
                same = [sample.to_dict() for sample in group.samples] == samples[group.id]
                require(same, f"group {group.id} was changed while it was held")

    def _build(self) -> Buffer:
        return self.spec.factory(self.validated(), BufferSetup(self.make, SEED, buffer_filter=_OldestFirst()))

    def _play(self, buffer: Buffer, rounds: range) -> list[tuple[list[GroupId], list[float], list[GroupId]]]:
        """What a buffer hands out and evicts in some rounds of add, evict, sample and update."""
        told = []
        for round_ in rounds:
            buffer.add(_groups(round_))
            evicted = _evict(buffer, round_)
            draw = buffer.sample(2, _context(round_))
            ids = [group.id for group in draw.groups]
            buffer.update({group_id: 1.0 / (1 + group_id.draw) for group_id in ids})
            told.append((ids, list(draw.weights), sorted(evicted)))
        return told


class _OldestFirst:
    """The filter that the kit gives to buffers that take one."""

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=range(min(want, len(groups))))


_METHODS = ("add", "sample", "update", "evict", "state_dict", "load_state_dict", "__len__")


def _groups(round_: int) -> list[Group]:
    """Four new groups, some with equal rewards, as rollout `round_` makes them."""
    return [make_group(4 * round_ + number, rewards=(number % 2, 1.0), weight_version=round_) for number in range(4)]


def _rounds() -> list[tuple[int, list[Group]]]:
    return [(round_, _groups(round_)) for round_ in range(ROUNDS)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _context(round_: int) -> BufferContext:
    return BufferContext(rollout_id=round_, weight_version=round_)


def _evict(buffer: Buffer, round_: int) -> Mapping[GroupId, str]:
    evicted = buffer.evict(_context(round_))
    require(all(evicted.values()), "evict must give a reason for each group")
    return evicted
