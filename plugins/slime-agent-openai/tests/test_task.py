"""What an agent is given, what it may return, and what is kept of its exception."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_agent_openai import Result, Task
from slime_agent_openai.errors import traceback_of
from slime_agent_openai.task import Verdict, verdict_from_json, verdict_to_json
from tests.tables import table

TASK = Task([{"role": "user", "content": "2 + 2?"}], "4", "http://127.0.0.1:1/s/key", "key", {"level": 3}, True)


def test_importing_task_is_light() -> None:
    said = "import sys; from slime_agent_openai import Task; print({'aiohttp', 'pydantic', 'torch'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


NUMBER = st.floats(allow_nan=False, allow_infinity=False)
REWARD = st.none() | NUMBER | st.dictionaries(st.text(), NUMBER, min_size=1)
RESULT = st.builds(
    Result,
    REWARD,
    st.none() | st.lists(NUMBER).map(tuple),
    st.dictionaries(st.text(), REWARD),
    st.dictionaries(st.text(), st.lists(st.text() | NUMBER)),
)


@given(REWARD | RESULT)
def test_verdict_round_trips_through_json(verdict: Verdict) -> None:
    assert verdict_from_json(json.loads(json.dumps(verdict_to_json(verdict)))) == verdict


@table(
    "made, kind, said",
    [
        ("1.0", TypeError, "the agent returned '1.0'; expected a number"),
        ({}, TypeError, "expected a number"),
        (float("nan"), ValueError, "the agent returned nan; expected a finite number"),
        (Result("much"), TypeError, "the agent returned 'much'; expected a number"),
        (Result(turn_rewards=0.5), TypeError, "turn_rewards 0.5; expected a number for each reply"),
        (Result(turn_rewards="12"), TypeError, "turn_rewards '12'; expected a number for each reply"),
        (Result(turn_rewards=[1, None]), TypeError, r"turn_rewards \[1, None\]; expected a number for each reply"),
        (Result(turn_rewards=[float("nan")]), ValueError, r"turn_rewards \[nan\]; expected finite numbers"),
        (Result(metadata=[1]), TypeError, r"metadata \[1\]; expected JSON values by name"),
        (Result(metadata={1: 1}), TypeError, "expected JSON values by name"),
        (Result(metadata={"seen": {1}}), TypeError, r"metadata \{'seen': .*, which is not JSON: "),
        (Result(metadata={"seen": float("inf")}), TypeError, r"metadata \{'seen': .*, which is not JSON: "),
        (Result(agents=[0.5]), TypeError, "expected rewards by sub-agent name"),
        (Result(agents={"scout": float("nan")}), ValueError, "finite"),
    ],
)
def test_invalid_verdict_is_refused(made: object, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        verdict_to_json(made)


def agent(text: str, why: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise RuntimeError(why) from error


def of(text: str, why: str) -> str:
    with pytest.raises(RuntimeError) as caught:
        agent(text, why)
    return traceback_of(caught.value)


def test_traceback_keeps_agent_frames_and_the_last() -> None:
    told = of("{", "no plan")
    assert told.count(__file__) == 3  # in both, and where it was called
    assert "json/decoder.py" in told
    assert "json/__init__.py" not in told  # a line between them
    assert "^^^" not in told
    assert told.endswith("RuntimeError: no plan\n")
