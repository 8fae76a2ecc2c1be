"""PriorityBuffer: adding, drawing, updating, evicting and saving."""

import json
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_buffer_priority.buffer import CAPACITY, STALE, PriorityBuffer
from slime_buffer_priority.settings import Order, PrioritySettings, ScoreName
from slime_core import Group, GroupId
from slime_core.errors import CheckpointError
from slime_core.roles import BufferContext, BufferSetup, Selection
from slime_core.sample import Json
from slime_testing import make_group, make_sample
from tests.tables import table


class NoFilter:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        raise AssertionError("a priority buffer asks no filter")


def no_choice(role: str, name: str, **settings: object) -> object:
    raise AssertionError("a priority buffer makes no other choice")


def made(seed: int = 1, **chosen: object) -> PriorityBuffer:
    settings = PrioritySettings.model_validate({"replay_ratio": 1.0, **chosen})
    return PriorityBuffer(settings, BufferSetup(no_choice, seed, buffer_filter=NoFilter()))


def at(rollout: int) -> BufferContext:
    return BufferContext(rollout_id=rollout, weight_version=rollout)


def draws(groups: Sequence[Group]) -> list[int]:
    return [group.id.draw for group in groups]


def from_source(source: str, draw: int) -> Group:
    return Group(GroupId(source, 0, draw, draw), [make_sample(reward=1.0)])


def test_group_leaves_after_max_uses() -> None:
    buffer = made(max_uses=3)
    buffer.add([make_group(0)])
    counts = []
    for rollout in range(4):
        draw = buffer.sample(2, at(rollout))
        counts.append([group.metadata.get("replay_count") for group in draw.groups])
        buffer.update({make_group(0).id: 1.0})
    assert counts == [[None], [2], [3], []]
    assert (len(buffer), buffer.evict(at(4))) == (0, {})


def test_a_high_advantage_is_drawn_more_often() -> None:
    buffer, counts = made(max_uses=10_000, alpha=1.0, max_staleness=100_000), Counter[int]()
    groups = [make_group(0), make_group(1)]
    buffer.add(groups)
    buffer.update({groups[0].id: 0.04, groups[1].id: 0.24})  # and epsilon 0.01: 0.05 to 0.25
    for rollout in range(2_000):
        counts.update(draws(buffer.sample(1, at(rollout)).groups))
    assert counts[1] / counts[0] == pytest.approx(5.0, rel=0.2)


def test_a_new_group_has_the_highest_advantage_so_far() -> None:
    buffer = made(max_uses=10_000, alpha=4.0, max_staleness=100_000)
    buffer.add([make_group(0), make_group(1)])
    buffer.update({make_group(0).id: 20.0, make_group(1).id: 0.1})
    buffer.add([make_group(2)])
    counts = Counter[int]()
    for rollout in range(600):
        counts.update(draws(buffer.sample(1, at(rollout)).groups))
    assert counts[1] == 0
    assert 0.4 < counts[2] / 600 < 0.6


@table("score", [float("nan"), float("inf"), -1.0])
def test_non_finite_advantage_is_refused(score: float) -> None:
    buffer = made()
    buffer.add([make_group(0)])
    with pytest.raises(ValueError, match=f"finite and at least 0; got {score}"):
        buffer.update({make_group(0).id: score})
    assert len(buffer.sample(1, at(0)).groups) == 1


def test_scores_of_removed_groups_are_ignored() -> None:
    buffer = made(max_uses=1)
    buffer.add([make_group(0), make_group(1)])
    gone = buffer.sample(1, at(0)).groups[0]
    buffer.update({make_group(0).id: 1.0, make_group(1).id: 2.0, make_group(9).id: 3.0})
    assert draws(buffer.sample(2, at(1)).groups) == [1 - gone.id.draw]


def test_stale_groups_are_evicted() -> None:
    buffer = made(max_staleness=2)
    buffer.add([make_group(0, weight_version=0), make_group(1, weight_version=3)])
    assert buffer.evict(at(2)) == {}
    assert buffer.evict(at(3)) == {make_group(0).id: STALE}
    assert draws(buffer.sample(2, at(5)).groups) == [1]
    assert draws(buffer.sample(2, at(6)).groups) == []
    assert buffer.evict(at(6)) == {make_group(1).id: STALE}


def test_oldest_groups_leave_beyond_capacity() -> None:
    buffer = made(capacity=3)
    buffer.add([make_group(draw) for draw in range(6)])
    assert buffer.evict(at(0)) == {make_group(draw).id: CAPACITY for draw in range(3)}


def test_fifo_draws_unused_groups_first() -> None:
    buffer = made(order=Order.FIFO, max_uses=2)
    buffer.add([make_group(draw) for draw in range(3)])
    assert draws(buffer.sample(2, at(0)).groups) == [0, 1]
    buffer.add([make_group(3)])
    draw = buffer.sample(3, at(1))
    assert (sorted(draws(draw.groups)), draw.weights) == ([0, 1, 2], [1.0] * 3)
    assert draws(buffer.sample(3, at(2)).groups) == [3, 2]


def test_quotas_hold_over_draws() -> None:
    buffer = made(quotas={"math": 0.5, "code": 0.3}, max_uses=1)
    for draw in range(60):
        buffer.add([from_source(("math", "code", "chat")[draw % 3], draw)])
    counts = Counter[str]()
    for rollout in range(7):
        counts.update(group.id.source for group in buffer.sample(5, at(rollout)).groups)
    assert counts == {"math": 18, "code": 10, "chat": 7} or counts == {"math": 17, "code": 11, "chat": 7}
    assert len(buffer.sample(25, at(7)).groups) == 25
    assert len(buffer) == 0


def test_beta_anneals_to_full_correction() -> None:
    buffer = made(max_uses=10_000, alpha=1.0, beta=0.0, beta_rollouts=10, max_staleness=100_000, normalize=False)
    groups = [make_group(draw) for draw in range(40)]
    buffer.add(groups)
    buffer.update({group.id: 0.1 + group.id.draw for group in groups})
    assert set(buffer.sample(8, BufferContext(0, 0)).weights) == {1.0}
    half, full = (buffer.sample(8, BufferContext(rollout, 0)).weights for rollout in (5, 10))
    assert max(half) / min(half) < max(full) / min(full)
    assert buffer.sample(8, BufferContext(99, 0)).weights != buffer.sample(8, BufferContext(0, 0)).weights


def test_normalised_weights_scale_down_only() -> None:
    buffer = made(alpha=1.0, beta=1.0)
    buffer.add([make_group(draw) for draw in range(20)])
    buffer.update({make_group(draw).id: 0.1 * draw for draw in range(20)})
    weights = buffer.sample(5, at(0)).weights
    assert max(weights) == 1.0
    assert min(weights) > 0


@table(
    "scores, low, high",
    [
        ({"reward": 1.0}, make_group(0, rewards=(0.0, 0.0)), make_group(1, rewards=(1.0, 0.0))),
        ({"difficulty": 1.0}, make_group(0, rewards=(1.0, 1.0)), make_group(1, rewards=(1.0, 0.0))),
        ({"staleness": 1.0}, make_group(0, weight_version=0), make_group(1, weight_version=20)),
        (
            {"diversity": 1.0},
            Group(GroupId("kit", 0, 0, 0), [make_sample("4", reward=1.0) for _ in range(4)]),
            Group(GroupId("kit", 0, 1, 1), [make_sample(text, reward=1.0) for text in "4567"]),
        ),
        ({"reward": 1.0, "difficulty": 1.0}, make_group(0, rewards=(1.0, 1.0)), make_group(1, rewards=(1.0, 0.0))),
    ],
)
def test_scores_decide_what_is_drawn(scores: dict[str, float], low: Group, high: Group) -> None:
    for groups in ([low, high], [high, low]):
        buffer = made(scores=scores, alpha=4.0, epsilon=1e-3, max_staleness=100_000)
        buffer.add(groups)
        assert draws(buffer.sample(1, at(20)).groups) == [high.id.draw]


def test_recency_counts_draws_since_a_group_came() -> None:
    buffer = made(scores={ScoreName.RECENCY: 1.0}, recency_half_life=0.1, alpha=4.0)
    buffer.add([make_group(0)])
    buffer.sample(0, at(0))
    buffer.add([make_group(1)])
    assert draws(buffer.sample(1, at(1)).groups) == [1]


ORDERS = st.sampled_from(list(Order))
STEP = st.tuples(st.integers(0, 6), st.integers(0, 6), st.floats(0, 3), st.booleans())


def play(buffer: PriorityBuffer, steps: Sequence[tuple[int, int, float, bool]], first: int) -> list[object]:
    told: list[object] = []
    for rollout, (fresh, want, score, evicts) in enumerate(steps, first):
        buffer.add([from_source("ab"[number % 2], 10 * rollout + number) for number in range(fresh)])
        draw = buffer.sample(want, at(rollout))
        buffer.update({group.id: score * (1 + number) for number, group in enumerate(draw.groups)})
        told += [draws(draw.groups), draw.weights, [group.metadata.get("replay_count") for group in draw.groups]]
        if evicts:
            told.append({str(group_id): reason for group_id, reason in buffer.evict(at(rollout + 1)).items()})
    return told


@given(ORDERS, st.lists(STEP, max_size=14), st.integers(0, 14), st.booleans())
@settings(max_examples=150, deadline=None)
def test_saved_buffer_resumes_exactly(
    order: Order, steps: list[tuple[int, int, float, bool]], cut: int, quotas: bool
) -> None:
    chosen: dict[str, object] = {
        "order": order,
        "capacity": 7,
        "max_uses": 3,
        "max_staleness": 4,
        "quotas": {"a": 0.3} if quotas else {},
        "scores": {"advantage": 1.0, "recency": 0.5},
    }
    buffer = made(**chosen)
    play(buffer, steps[:cut], 0)
    saved: dict[str, Json] = json.loads(json.dumps(buffer.state_dict(), allow_nan=False))
    again = made(**chosen)
    again.load_state_dict(saved)
    assert len(again) == len(buffer)
    assert again.state_dict() == saved
    assert play(again, steps[cut:], cut) == play(buffer, steps[cut:], cut)
    assert again.state_dict() == buffer.state_dict()


def test_draws_depend_on_the_seed() -> None:
    steps = [(6, 3, 1.0, True)] * 6
    assert play(made(3), steps, 0) == play(made(3), steps, 0)
    assert play(made(3), steps, 0) != play(made(4), steps, 0)


def test_a_state_of_another_buffer_is_refused() -> None:
    with pytest.raises(CheckpointError, match="state has dropped, groups, which another buffer saved"):
        made().load_state_dict({"groups": [], "dropped": {}})
