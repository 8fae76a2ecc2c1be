"""Settings: what is refused with the plan, and the table in docs/agents.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from slime_agent_openai.plugin import slime_generators
from slime_agent_openai.settings import AgentSettings, CliSettings, VerifiersSettings
from tests.tables import table

AGENT = f"{Path(__file__).parent}/misbehaving_agents.py:raises"
ENVIRONMENTS = f"{Path(__file__).parent}/some_environments.py"


def test_reachable_gateway_needs_public_url() -> None:
    with pytest.raises(ValidationError, match='Write port = 8000 and public_url = "http://ADDRESS:8000"'):
        AgentSettings(agent=AGENT, host="0.0.0.0", port=8000)
    assert AgentSettings(agent=AGENT, host="0.0.0.0", port=8000, public_url="http://10.0.0.7:8000").host == "0.0.0.0"


@table(
    "url, port, said",
    [
        ("10.0.0.7:8000", 8000, 'is not a URL. Write .* public_url = "http://10.0.0.5:8700"'),
        ("http://0.0.0.0:8000", 8000, "agents cannot connect to 0.0.0.0"),
        ("http://10.0.0.7:8000/v1", 8000, "remove /v1"),
        ("http://10.0.0.7:8000", 0, "port = 0 takes a free port, which may not be the port of .* Write port = 8000"),
    ],
)
def test_unusable_public_url_is_refused(url: str, port: int, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        AgentSettings(agent=AGENT, host="0.0.0.0", public_url=url, port=port)


def test_missing_agent_or_parser_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"has no function 'raisesz'\. Did you mean 'raises'\?"):
        AgentSettings(agent=f"{AGENT}z")
    with pytest.raises(ValidationError, match="there is no command 'no-such-agent' on PATH"):
        CliSettings(command=["no-such-agent"])
    with pytest.raises(ValidationError, match=r"no agent parser 'hermess'\. Did you mean 'hermes'\?"):
        AgentSettings(agent=AGENT, parser="hermess")
    assert AgentSettings(agent=AGENT, parser="hermes").parser == "hermes"


def test_missing_environment_is_refused() -> None:
    assert VerifiersSettings(environment=ENVIRONMENTS).arguments == {}
    with pytest.raises(ValidationError, match=r"has no function 'load_tool'\. Did you mean 'load_tools'\?"):
        VerifiersSettings(environment=f"{ENVIRONMENTS}:load_tool")
    with pytest.raises(ValidationError, match=r"there is no module 'no_such_env'\. Install its package"):
        VerifiersSettings(environment="owner/no-such-env")


PAGE = Path(__file__).resolve().parents[3] / "docs" / "agents.md"
HEAD = "| setting | of | default | meaning |\n| --- | --- | --- | --- |\n"


def rows() -> Iterator[str]:
    """A row for each setting, those of all generators first."""
    models = {spec.name: spec.model for spec in slime_generators()}
    fields = {name: field for model in models.values() for name, field in model.model_fields.items()}
    owners = {
        name: [each for each, model in models.items() if model.model_fields.get(name) is not None] for name in fields
    }
    for name in sorted(fields, key=lambda name: -len(owners[name])):
        of = "all" if len(owners[name]) == len(models) else ", ".join(f"`{each}`" for each in owners[name])
        yield f"| `{name}` | {of} | {_default(fields[name])} | {_meaning(fields[name])} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{json.dumps(value)}`"


def _meaning(field: FieldInfo) -> str:
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    told = " or ".join(f"`{json.dumps(each)}`" for each in choices)
    return f"{field.description}{f' {told}.' if told else ''}"


def test_docs_page_lists_every_setting() -> None:
    page = HEAD + "\n".join(rows()) + "\n"
    assert page in PAGE.read_text("utf-8"), f"docs/agents.md, section Settings, must be:\n\n{page}"


def test_docs_page_names_the_generators() -> None:
    text = PAGE.read_text("utf-8")
    for spec in slime_generators():
        assert f"| `{spec.name}` |" in text
    assert "slime plugins show generator/agent" in text
