"""slime's filters on groups, samples and the buffer."""

import logging

import pytest

from slime_compat.adapters import SlimeBufferFilter, SlimeDynamicFilter, SlimeSampleFilter
from slime_compat.plugin import FunctionSettings
from slime_core.errors import ContractError
from slime_core.roles import BufferContext, Drop, FilterContext, Keep, KeepIfShort, Removal, Selection
from slime_testing import make_group

CONTEXT = FilterContext(rollout_id=0)
HELD = [make_group(draw) for draw in range(4)]


def select(path: str, want: int = 2) -> Selection:
    return SlimeBufferFilter(FunctionSettings(path=path)).select(HELD, want, BufferContext(0, 0))


def test_a_dynamic_filter_keeps_and_drops(path: str) -> None:
    chosen = SlimeDynamicFilter(FunctionSettings(path=f"{path}dynamic_filter"))
    assert chosen(make_group(rewards=(0.0, 1.0)), CONTEXT) == Keep()
    assert chosen(make_group(rewards=(1.0, 1.0)), CONTEXT) == Drop("zero_std_1.0")


def test_a_dynamic_filter_may_fall_back_or_answer_by_its_truth(path: str) -> None:
    fallback = SlimeDynamicFilter(FunctionSettings(path=f"{path}dynamic_filter_with_fallback"))
    assert fallback(HELD[0], CONTEXT) == KeepIfShort("short")
    plain = SlimeDynamicFilter(FunctionSettings(path=f"{path}dynamic_filter_that_says_false"))
    assert plain(HELD[0], CONTEXT) == Drop("dynamic_filter")


def test_samples_marked_in_place_are_removals_and_the_groups_stay_as_they_are(path: str) -> None:
    chosen = SlimeSampleFilter(FunctionSettings(path=f"{path}rollout_filter"))
    assert chosen(HELD[:2], CONTEXT) == [Removal(group.id, 0, "remove_sample") for group in HELD[:2]]
    assert not any(sample.remove_sample for group in HELD for sample in group.samples)


def test_what_a_buffer_filter_returns_is_taken_and_what_it_deletes_besides_is_dropped(path: str) -> None:
    assert select(f"{path}pop_first") == Selection(take=[0, 1], drop=[])
    assert select(f"{path}newest_and_forget_the_rest") == Selection(take=[2, 3], drop=[0, 1])


def test_a_buffer_filter_that_does_not_delete_is_reported_once_and_works(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = SlimeBufferFilter(FunctionSettings(path=f"{path}filter_that_does_not_delete"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert chosen.select(HELD, 2, BufferContext(0, 0)) == Selection(take=[0, 1], drop=[])
    assert [record.message.count("trained on for ever") for record in caplog.records] == [1]


def test_a_buffer_filter_that_returns_too_many_is_cut(path: str, caplog: pytest.LogCaptureFixture) -> None:
    assert select(f"{path}filter_that_returns_too_many") == Selection(take=[0, 1], drop=[])
    assert "returned 4 groups when 2 were wanted" in caplog.text


def test_a_buffer_filter_that_returns_copies_is_an_error(path: str) -> None:
    with pytest.raises(ContractError, match="not one of the buffer's own lists"):
        select(f"{path}filter_that_returns_copies")
