"""FifoBuffer: every group leaves once, taken or dropped with a reason, and the state keeps what is held."""

import gc
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.buffer import FifoBuffer, FifoFilter
from slime_core.errors import CheckpointError
from slime_core.roles import Buffer, BufferContext, BufferFilter, BufferSetup, Selection
from slime_core.sample import Group
from slime_testing.samples import make_group

NOW = BufferContext(rollout_id=3, weight_version=3)


class Chosen:
    """A filter that answers as the test says, whatever is held."""

    def __init__(self, take: Sequence[int] = (), drop: Sequence[int] = ()) -> None:
        self.answer: Selection = Selection(take, drop)

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return self.answer


def make_buffer(buffer_filter: BufferFilter) -> FifoBuffer:
    return FifoBuffer(BufferSetup(make=lambda role, name, **settings: None, seed=0, buffer_filter=buffer_filter))


def groups(count: int, start: int = 0) -> list[Group]:
    made = [make_group(draw=start + number) for number in range(count)]
    for group in made:
        group.freeze()
    return made


def draws(taken: Sequence[Group]) -> list[int]:
    return [group.id.draw for group in taken]


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=8))
def test_the_oldest_leave_first_and_each_once(steps: list[tuple[int, int]]) -> None:
    buffer, added, left = make_buffer(FifoFilter()), 0, []
    for arriving, want in steps:
        buffer.add(groups(arriving, added))
        added += arriving
        draw = buffer.sample(want, NOW)
        assert len(draw.groups) == min(want, added - len(left))
        assert list(draw.weights) == [1.0] * len(draw.groups)
        left += draws(draw.groups)
    assert left == list(range(len(left)))
    assert len(buffer) == added - len(left)


class Rearranges:
    """A filter that changes what it is given."""

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        groups.clear()  # type: ignore[attr-defined]  # a list has it
        return Selection([], [])


def test_a_filter_cannot_change_what_is_held() -> None:
    buffer = make_buffer(Rearranges())
    buffer.add(groups(2))
    with pytest.raises(AttributeError):
        buffer.sample(1, NOW)
    assert len(buffer) == 2


@given(data=st.data(), held=st.integers(0, 8))
def test_the_filter_decides_what_leaves_and_what_is_dropped(data: st.DataObject, held: int) -> None:
    order = data.draw(st.permutations(range(held)))
    taken = data.draw(st.integers(0, held))
    dropped = data.draw(st.integers(taken, held))
    buffer = make_buffer(Chosen(order[:taken], order[taken:dropped]))
    buffer.add(groups(held))
    draw = buffer.sample(held, NOW)
    assert draws(draw.groups) == list(order[:taken])
    assert list(draw.weights) == [1.0] * taken
    assert {each.draw: reason for each, reason in buffer.evict(NOW).items()} == dict.fromkeys(
        order[taken:dropped], "buffer_filter"
    )
    assert buffer.evict(NOW) == {}
    assert len(buffer) == held - dropped


@given(held=st.integers(0, 5), dropped=st.booleans())
def test_a_saved_state_continues_exactly(held: int, dropped: bool) -> None:
    chosen = Chosen(drop=[0] if dropped and held else [])
    buffer, other = make_buffer(chosen), make_buffer(FifoFilter())
    buffer.add(groups(held))
    buffer.sample(0, NOW)
    other.load_state_dict(json.loads(json.dumps(buffer.state_dict())))
    assert other.state_dict() == buffer.state_dict()
    assert other.evict(NOW) == buffer.evict(NOW)
    taken = other.sample(held, NOW).groups
    assert [group.to_dict() for group in taken] == [
        group.to_dict() for group in groups(held)[int(dropped and held > 0) :]
    ]


def test_the_state_of_another_buffer_is_refused() -> None:
    with pytest.raises(CheckpointError, match="priorities"):
        make_buffer(FifoFilter()).load_state_dict({"priorities": []})


def test_the_roles_are_met() -> None:
    assert isinstance(make_buffer(FifoFilter()), Buffer)
    assert isinstance(FifoFilter(), BufferFilter)


def test_filters_see_a_sequence_like_any_other() -> None:
    seen: list[list[int]] = []

    class Looks:
        def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
            seen.append([group.id.draw for group in groups])
            assert [groups[number].id.draw for number in range(len(groups))] == seen[-1]
            assert [group.id.draw for group in groups[-2:]] == seen[-1][-2:]
            with pytest.raises(IndexError):
                groups[len(groups)]
            return Selection(take=range(min(want, len(groups))), drop=[len(groups) - 1] if len(groups) > want else [])

    held = make_buffer(Looks())
    held.add(groups(10))
    for rollout in range(4):
        held.sample(2, BufferContext(rollout, rollout))
    assert seen == [list(range(10)), list(range(2, 9)), [4, 5, 6, 7], [6]]


def test_what_was_handed_out_is_not_kept_alive() -> None:
    held = make_buffer(FifoFilter())
    held.add(groups(100))
    group = held.sample(1, BufferContext(0, 0)).groups[0]
    assert not [each for each in gc.get_referrers(group) if isinstance(each, list) and len(each) > 50]
