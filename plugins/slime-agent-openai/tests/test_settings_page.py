"""The table of settings in docs/agents.md is what the generators take."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from slime_agent_openai.plugin import slime_generators

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


def test_the_page_has_every_setting_as_it_is() -> None:
    table = HEAD + "\n".join(rows()) + "\n"
    assert table in PAGE.read_text("utf-8"), f"docs/agents.md, section Settings, is to be:\n\n{table}"


def test_the_page_names_the_command_that_lists_them() -> None:
    text = PAGE.read_text("utf-8")
    for spec in slime_generators():
        assert f"| `{spec.name}` |" in text
    assert "slime plugins show generator/agent" in text
