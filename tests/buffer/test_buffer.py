"""The buffer of a run: first in, first out, by a filter's choice; and what a plugin's buffer must keep."""

import gc
import json
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.buffer import CheckedBuffer, CheckedFilter, FifoBuffer, FifoFilter
from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import CheckpointError, ContractError, PluginError
from slime_core.roles import BufferContext, BufferFilter, BufferSetup, Draw, Replay, Selection
from slime_core.sample import Group, GroupId
from slime_testing.samples import make_group
from tests.tables import table

NOW = BufferContext(rollout_id=3, weight_version=3)


class Chosen:
    """A filter that answers as the test says, and keeps the last context."""

    def __init__(self, take: Sequence[int] = (), drop: Sequence[int] = ()) -> None:
        self.answer: Selection = Selection(take, drop)
        self.ctx: BufferContext | None = None

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        self.ctx = ctx
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


def test_drops_of_several_draws_are_reported_together() -> None:
    buffer = make_buffer(Chosen(drop=[0]))
    buffer.add(groups(3))
    for _ in range(2):
        buffer.sample(1, NOW)
    assert [each.draw for each in buffer.evict(NOW)] == [0, 1]


def test_a_filter_gets_the_context_of_the_draw() -> None:
    chosen = Chosen(take=[0])
    buffer, _ = made(chosen=chosen)
    buffer.sample(1, NOW)
    assert chosen.ctx == NOW


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


def test_what_was_handed_out_is_not_kept_alive() -> None:
    held = make_buffer(FifoFilter())
    held.add(groups(100))
    group = held.sample(1, BufferContext(0, 0)).groups[0]
    assert not [each for each in gc.get_referrers(group) if isinstance(each, list) and len(each) > 50]


# CheckedBuffer and CheckedFilter: what breaks a contract is named, and nothing is lost by it.


GROUPS = [make_group(draw) for draw in range(3)]
UNKNOWN = make_group(7)


class CheckedChosen:
    """A filter that answers as the test says."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


class Answers(FifoBuffer):
    """A buffer that answers as the test says."""

    drawn: object = None
    evicted: object = None

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        if isinstance(self.drawn, Exception):
            raise self.drawn
        return self.drawn or super().sample(want, ctx)  # type: ignore[return-value]

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        return super().evict(ctx) if self.evicted is None else self.evicted  # type: ignore[return-value]


def made(
    kind: type[FifoBuffer] = FifoBuffer, chosen: BufferFilter | None = None, max_uses: int = 1
) -> tuple[CheckedBuffer, FifoBuffer]:
    own_filter = CheckedFilter(BuiltChoice("filter", "slime-filter", chosen or FifoFilter()))
    inner = kind(BufferSetup(make=lambda role, name, **settings: None, seed=0, buffer_filter=own_filter))
    buffer = CheckedBuffer(BuiltChoice("buffer", "slime-buffer", inner), max_uses)
    buffer.add(GROUPS)
    return buffer, inner


@table(
    "answer, says",
    [
        (Selection([0, 1, 2]), "take at most 2"),
        (Selection([0, 0]), "twice"),
        (Selection([9]), "position 9"),
        (Selection([0], [0]), "both"),
        ([0], "expected a Selection"),
        (KeyError("priority"), "raised KeyError: 'priority'"),
    ],
)
def test_a_broken_choice_of_the_filter_removes_nothing(answer: object, says: str) -> None:
    buffer, _ = made(chosen=CheckedChosen(answer))
    with pytest.raises(PluginError, match=rf"^buffer filter of plugin slime-filter.*{says}"):
        buffer.sample(2, NOW)
    assert len(buffer) == 3


@table(
    "drawn, says",
    [
        (GROUPS[:1], r"expected a Draw, got list .*return Draw\(groups, weights\)"),
        (Draw(GROUPS, [1.0] * 3), "Draw.groups holds 3 groups; hand out at most 2"),
        (Draw(GROUPS[:2], [1.0]), "Draw.weights holds 1 weights for 2 groups"),
        (Draw([GROUPS[0], GROUPS[0]], [1.0, 1.0]), "holds group kit:e0:r0:d0 twice"),
        (Draw([UNKNOWN], [1.0]), "holds group kit:e0:r7:d7, which it was not given or gave away before"),
        (Draw(GROUPS[:1], [float("nan")]), "group kit:e0:r0:d0: its weight is nan"),
        (Draw(GROUPS[:1], [-1.0]), "its weight is -1.0; weights are finite, 0 or more"),
        (Draw(GROUPS[:1], [True]), "expected a float, got bool True"),
        (Draw(["group"], [1.0]), "item 0: expected a Group, got str"),  # type: ignore[list-item]
        (ZeroDivisionError("no weights"), "raised ZeroDivisionError: no weights"),
    ],
)
def test_a_draw_that_breaks_the_contract_is_refused(drawn: object, says: str) -> None:
    buffer, inner = made(Answers)
    inner.drawn = drawn  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match=rf"^buffer.* of plugin slime-buffer.*{says}"):
        buffer.sample(2, NOW)


@table(
    "evicted, says",
    [
        ([GROUPS[0].id], "expected a dict of GroupId to reason"),
        ({GROUPS[0].id: ""}, "expected a short text"),
        ({"kit:e0:r0:d0": "old"}, "expected a GroupId, got str"),
        ({UNKNOWN.id: "old"}, "it does not hold group kit:e0:r7:d7"),
        ({GROUPS[1].id: "old"}, "it does not hold group kit:e0:r1:d1"),
    ],
)
def test_an_eviction_of_what_is_not_there_is_refused(evicted: object, says: str) -> None:
    buffer, inner = made(Answers)
    inner.drawn = Draw([GROUPS[1]], [0.5])  # type: ignore[attr-defined]
    assert buffer.sample(2, NOW).weights == [0.5]
    inner.evicted = evicted  # type: ignore[attr-defined]
    with pytest.raises(ContractError, match=rf"^buffer of plugin slime-buffer, evict.*{says}"):
        buffer.evict(NOW)


class Broken(FifoBuffer):
    """A buffer of which nothing works."""

    def _fail(self, *given: object) -> None:
        raise ZeroDivisionError("nothing works")

    add = sample = update = evict = state_dict = load_state_dict = __len__ = _fail  # type: ignore[assignment]


CALLS: dict[str, Callable[[CheckedBuffer], object]] = {
    "add": lambda buffer: buffer.add(GROUPS),
    "sample": lambda buffer: buffer.sample(1, NOW),
    "update": lambda buffer: buffer.update({}),
    "evict": lambda buffer: buffer.evict(NOW),
    "state_dict": lambda buffer: buffer.state_dict(),
    "load_state_dict": lambda buffer: buffer.load_state_dict({}),
    "len": len,
}


@table("method", CALLS)
def test_what_raises_is_named_with_its_method(method: str) -> None:
    setup = BufferSetup(make=lambda role, name, **settings: None, seed=0, buffer_filter=FifoFilter())
    buffer = CheckedBuffer(BuiltChoice("buffer", "slime-buffer", Broken(setup)), max_uses=1)
    with pytest.raises(PluginError, match=rf"^buffer \({method}\) of plugin slime-buffer raised ZeroDivisionError"):
        CALLS[method](buffer)


def test_what_was_handed_out_in_several_draws_is_all_held_again() -> None:
    buffer, inner = made(Answers, max_uses=2)
    for group in GROUPS[:2]:
        inner.drawn = Draw([group], [1.0])  # type: ignore[attr-defined]
        buffer.sample(1, NOW)
    buffer.update({})
    inner.drawn = Draw(GROUPS[:2], [1.0, 1.0])  # type: ignore[attr-defined]
    assert buffer.sample(2, NOW).groups == GROUPS[:2]


def test_a_group_leaves_once_also_after_a_resume() -> None:
    buffer, _ = made()
    state = buffer.state_dict()
    assert [group.id for group in buffer.sample(2, NOW).groups] == [group.id for group in GROUPS[:2]]
    again, inner = made(Answers)
    again.load_state_dict(state)
    again.hold({GROUPS[2].id: 0})
    inner.drawn = Draw([GROUPS[0]], [1.0])  # type: ignore[attr-defined]
    with pytest.raises(ContractError, match="gave away before"):
        again.sample(1, NOW)
    inner.drawn = Draw([GROUPS[2]], [1.0])  # type: ignore[attr-defined]
    assert again.sample(1, NOW).groups == [GROUPS[2]]


def test_a_group_may_be_handed_out_as_often_as_was_announced_and_never_while_it_is_trained() -> None:
    buffer, inner = made(Answers, max_uses=2)
    inner.drawn = Draw(GROUPS[:1], [1.0])  # type: ignore[attr-defined]
    buffer.sample(1, NOW)
    with pytest.raises(ContractError, match="gave away before"):
        buffer.sample(1, NOW)
    inner.evicted = {GROUPS[0].id: "old"}  # type: ignore[attr-defined]
    with pytest.raises(ContractError, match="it does not hold group"):
        buffer.evict(NOW)
    buffer.update({})
    buffer.sample(1, NOW)
    buffer.update({})
    with pytest.raises(ContractError, match="gave away before"):
        buffer.sample(1, NOW)


def test_uses_are_counted_on_after_a_resume() -> None:
    buffer, inner = made(Answers, max_uses=2)
    buffer.hold({GROUPS[0].id: 1, GROUPS[1].id: 0})
    inner.drawn = Draw(GROUPS[:2], [1.0, 1.0])  # type: ignore[attr-defined]
    buffer.sample(2, NOW)
    buffer.update({})
    with pytest.raises(ContractError, match="r0:d0, which it was not given or gave away before"):
        buffer.sample(2, NOW)
    inner.drawn = Draw(GROUPS[1:2], [1.0])  # type: ignore[attr-defined]
    assert buffer.sample(2, NOW).groups == GROUPS[1:2]


@table("max_uses, ratio", [(1, 2.0), (0, 1.0), (4, 0.5), (4, float("nan"))])
def test_a_ratio_of_uses_that_cannot_be_kept_is_refused(max_uses: int, ratio: float) -> None:
    with pytest.raises(ValueError, match=f"1 to max_uses = {max_uses}, not {ratio}"):
        Replay(max_uses, ratio)
