"""What is kept of an agent's exception."""

import json

import pytest

from slime_agent_openai.errors import SHOWN, raised


def agent(text: str, why: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise RuntimeError(why) from error


def of(text: str, why: str) -> str:
    with pytest.raises(RuntimeError) as caught:
        agent(text, why)
    return raised(caught.value)


def test_a_traceback_keeps_the_agents_own_lines_and_the_last() -> None:
    told = of("{", "no plan")
    assert told.count(__file__) == 3  # in both, and where it was called
    assert "json/decoder.py" in told
    assert "json/__init__.py" not in told  # a line between them
    assert "^^^" not in told
    assert told.endswith("RuntimeError: no plan\n")


def test_one_that_is_long_begins_with_a_whole_line() -> None:
    told = of("{", "\n".join(f"line {number} of many" for number in range(100)))
    assert len(told) <= SHOWN
    assert told.startswith("line ")
    assert told.endswith("line 99 of many\n")


def test_a_line_that_is_too_long_keeps_its_end() -> None:
    assert of("{", f"{'x' * 2 * SHOWN}end") == f"{'x' * (SHOWN - 4)}end\n"
