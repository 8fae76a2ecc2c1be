"""Tools that a request offers the model, as all protocols agree on them."""

from dataclasses import replace
from typing import Literal, TypeAlias

from slime_agent_openai.errors import IN_SECTION, unsupported
from slime_agent_openai.message import Tool
from slime_agent_openai.wires.reading import Value

Hosted: TypeAlias = Literal["refuse", "ignore"]
"""What becomes of tools that are not functions of the agent's, such as a provider's search: some agents always list
them, and do without."""


def function_tool(at: Value, parameters: str) -> Tool:
    """A function, its JSON Schema in the member `parameters`."""
    name = at.at("name").text()
    if not name:
        raise at.at("name").wrong("a name")
    description, schema = at.at("description").text(""), at.at(parameters)
    made = Tool(name, description, is_strict=at.at("strict").flag())
    return replace(made, parameters=schema.as_json()) if schema.is_given else made


def hosted_tool(at: Value, hosted: Hosted) -> None:
    """Nothing, or an error: a tool that a provider would run.

    Raises:
        ApiError: such tools are refused.
    """
    if hosted == "refuse":
        kind = at.at("type").text("")
        why = f"a tool of type {kind!r} would be run by a provider; offer functions only"
        raise unsupported(at.path, f'{why}, or set hosted_tools = "ignore" {IN_SECTION}')
