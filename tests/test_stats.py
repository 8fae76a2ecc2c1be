"""PluginStats: percentiles and counts per plugin and rollout."""

from time import sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.stats import PluginStats, percentile


def test_a_row_holds_what_was_called_and_counting_starts_anew() -> None:
    stats = PluginStats()
    calls = stats.calls("reward", "math", "slime-reward-math")
    calls.seconds.extend([0.3, 0.1, 0.2])
    calls.errors = 1
    stats.calls("reward", "never", "slime-reward-math")
    prefix = "plugin/reward/math"
    assert stats.take() == {
        f"{prefix}/p50": 0.2,
        f"{prefix}/p99": 0.3,
        f"{prefix}/errors": 1.0,
        f"{prefix}/timeouts": 0.0,
    }
    assert stats.take() == {}


def test_a_plain_function_is_measured_and_its_errors_counted() -> None:
    stats = PluginStats()
    calls = stats.calls("group_filter", "picky", "slime-picky")
    measured = calls.measured(lambda seconds: sleep(seconds))
    measured(0.01)
    with pytest.raises(ValueError, match="non-negative"):
        measured(-1)
    row = stats.take()
    assert row["plugin/group_filter/picky/p99"] >= 0.01
    assert row["plugin/group_filter/picky/errors"] == 1.0


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_percentile_is_one_of_the_numbers_that_enough_do_not_exceed(numbers: list[float]) -> None:
    ordered = sorted(numbers)
    found = percentile(ordered, 0.99)
    assert found in ordered
    assert sum(number <= found for number in ordered) >= 0.99 * len(ordered)
