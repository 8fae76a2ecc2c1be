import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_agent_openai import Result
from slime_agent_openai.task import Verdict, said_of, verdict_of

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
def test_a_verdict_arrives_as_it_was(verdict: Verdict) -> None:
    assert verdict_of(json.loads(json.dumps(said_of(verdict)))) == verdict


@pytest.mark.parametrize("metadata", [{"seen": {1}}, {"seen": float("inf")}, {"seen": object}], ids=str)
def test_metadata_that_is_no_json_is_refused(metadata: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"the agent returned metadata \{'seen': .*, which is not JSON: "):
        said_of(Result(metadata=metadata))  # type: ignore[arg-type]


def test_rewards_of_sub_agents_are_rewards_by_name() -> None:
    with pytest.raises(TypeError, match=r"expected rewards by the name of a sub-agent"):
        said_of(Result(agents=[0.5]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite"):
        said_of(Result(agents={"scout": float("nan")}))
