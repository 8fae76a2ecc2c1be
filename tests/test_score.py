"""Verdicts: a score is finite, and not knowing is not zero."""

import math

import pytest

from slime_core import Score
from tests.tables import table


@table("value", [math.nan, math.inf, -math.inf])
def test_a_score_is_finite(value: float) -> None:
    with pytest.raises(ValueError, match="return Unscored"):
        Score(value)
    with pytest.raises(ValueError, match="style must be finite"):
        Score(1.0, {"style": value})
