from pathlib import Path

import pytest
from pydantic import ValidationError

from slime_agent_openai.settings import AgentSettings, CliSettings

AGENT = f"{Path(__file__).parent}/some_agents.py:raises"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.7"])
def test_a_loopback_address_needs_no_url(host: str) -> None:
    assert AgentSettings(agent=AGENT, host=host).public_url == ""


def test_others_can_reach_the_gateway_only_where_that_is_said() -> None:
    with pytest.raises(ValidationError, match='write port = 8000 and public_url = "http://ADDRESS:8000"'):
        AgentSettings(agent=AGENT, host="0.0.0.0", port=8000)
    assert AgentSettings(agent=AGENT, host="0.0.0.0", port=8000, public_url="http://10.0.0.7:8000").host == "0.0.0.0"


@pytest.mark.parametrize(
    ("url", "port", "said"),
    [
        ("10.0.0.7:8000", 8000, 'this is not a URL: .* public_url = "http://10.0.0.5:8700"'),
        ("http://0.0.0.0:8000", 8000, "0.0.0.0 is what is bound, and nobody reaches it"),
        ("http://10.0.0.7:8000/v1", 8000, "leave /v1 out"),
        ("http://10.0.0.7:8000", 0, "port = 0 takes a free one, which .* does not lead to: write port = 8000"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_with_the_plan(url: str, port: int, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AgentSettings(agent=AGENT, host="0.0.0.0", public_url=url, port=port)


def test_an_agent_that_is_not_there_is_refused_with_the_plan() -> None:
    with pytest.raises(ValidationError, match=r"has no function 'raisesz'\. Did you mean 'raises'\?"):
        AgentSettings(agent=f"{AGENT}z")


def test_a_command_that_is_not_there_is_refused_with_the_plan() -> None:
    with pytest.raises(ValidationError, match="there is no command 'no-such-agent' on PATH"):
        CliSettings(command=["no-such-agent"])


def test_a_parser_that_is_not_there_is_refused_with_the_plan() -> None:
    with pytest.raises(ValidationError, match=r"no agent parser 'hermess'\. Did you mean 'hermes'\?"):
        AgentSettings(agent=AGENT, parser="hermess")
    assert AgentSettings(agent=AGENT, parser="hermes").parser == "hermes"
