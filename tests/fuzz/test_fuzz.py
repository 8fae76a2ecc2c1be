"""Every target of `make fuzz` for a few seconds: a number of examples that is fixed, the same each time."""

import importlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TARGETS = sorted(each.stem for each in Path(__file__).parent.glob("*.py") if "\ndef fuzz(" in each.read_text("utf-8"))
EXAMPLES = {"run_folder": 15}
"""Of each target, where it is not 150: about three seconds."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_answers_or_says_what_is_wrong(name: str) -> None:
    target = importlib.import_module(f"tests.fuzz.{name}").fuzz

    @settings(
        max_examples=EXAMPLES.get(name, 150),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def each(data: st.DataObject) -> None:
        target(data)

    each()
