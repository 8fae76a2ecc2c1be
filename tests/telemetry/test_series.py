from hypothesis import given
from hypothesis import strategies as st

from slime_core.telemetry.display import BLOCKS, sparkline


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.sampled_from([1, 4, 48]))
def test_a_curve_of_any_length_fits(values: list[float], points: int) -> None:
    assert bool(values) <= len(sparkline(values, points)) <= points


def test_the_whole_run_stays_in_view_in_equal_parts() -> None:
    spark = sparkline([float(value) for value in range(1000)], 8)
    assert spark == "▁▂▃▄▅▆▇█"
    assert sparkline([0.0, 3.0, 1.0, 2.0], 2) == BLOCKS[3] * 2


def test_a_constant_curve_is_a_flat_line() -> None:
    assert sparkline([]) == ""
    assert sparkline([0.25] * 3) == BLOCKS[3] * 3
