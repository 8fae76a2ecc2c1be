import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.telemetry.display import BLOCKS, Series


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.sampled_from([2, 4, 48]))
def test_a_curve_of_any_length_fits_and_keeps_its_scale(values: list[float], points: int) -> None:
    series = Series(points)
    for value in values:
        series.add(value)
    assert len(series.sparkline()) <= points
    assert series.count == len(values)
    if values:
        assert series.last == values[-1]
        assert min(values) - 1e-6 <= min(series.means()) <= max(series.means()) <= max(values) + 1e-6


def test_the_whole_run_stays_in_view() -> None:
    series = Series(8)
    for value in range(1000):
        series.add(float(value))
    spark = series.sparkline()
    assert spark[0] == BLOCKS[0]
    assert spark[-1] == BLOCKS[-1]
    assert list(spark) == sorted(spark, key=BLOCKS.index)


def test_points_stand_for_equal_numbers_of_values() -> None:
    series = Series(4)
    for value in range(8):
        series.add(float(value))
    assert series.means() == [1.5, 5.5]


def test_a_constant_curve_is_a_flat_line() -> None:
    series = Series(4)
    assert series.sparkline() == ""
    for _ in range(3):
        series.add(0.25)
    assert series.sparkline() == BLOCKS[3] * 3


@pytest.mark.parametrize("points", [0, 1, 3])
def test_points_must_pair_up(points: int) -> None:
    with pytest.raises(ValueError, match="even number"):
        Series(points)
