"""Arguments: what a model wrote without JSON, parameter by parameter, as the JSON that clients read.

Example:

    arguments = Arguments(tools, "search")        # of which the schema says: query is a string, limit an integer
    arguments.add("query", "42")                  # '{"query": "42"'
    arguments.add("limit", "42")                  # ', "limit": 42'
    arguments.close()                             # '}'
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from slime_agent_openai.message import Tool
from slime_core.sample import Json

_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""What templates make of these values that print them as they are."""
_DEPTH = 8
"""Schemas that refer to each other more often are taken for endless."""
_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Arguments:
    """The arguments of one call."""

    def __init__(self, tools: Sequence[Tool], name: str) -> None:
        """Look up the tool; of one that nobody offered all parameters are strings."""
        given = next((tool.parameters for tool in tools if tool.name == name), "{}")
        try:
            self._schema: Json = json.loads(given)
        except ValueError:
            self._schema = None
        self._empty = True

    def add(self, key: str, value: str) -> str:
        """More JSON: one parameter."""
        before = "{" if self._empty else ", "
        self._empty = False
        return f"{before}{json.dumps(key, ensure_ascii=False)}: {self._typed(key, value)}"

    def close(self) -> str:
        """The rest of the JSON."""
        return "{}" if self._empty else "}"

    def _typed(self, key: str, value: str) -> str:
        properties = self._schema.get("properties") if isinstance(self._schema, dict) else None
        types = set(_types(properties.get(key) if isinstance(properties, dict) else None, self._schema))
        plain = value.strip()
        word = _PYTHON.get(plain, plain)
        if (word == "null" and "null" in types) or (types - {"null"} and "string" not in types and _is_json(word)):
            return word
        return json.dumps(value, ensure_ascii=False)


def _types(schema: Json, root: Json, depth: int = 0) -> Iterator[str]:
    """The types that a JSON schema allows, as far as it says so."""
    if not isinstance(schema, dict) or depth > _DEPTH:
        return
    given = schema.get("type")
    yield from (each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str))
    for name in ("anyOf", "oneOf", "allOf"):
        options = schema.get(name)
        for option in options if isinstance(options, list) else []:
            yield from _types(option, root, depth + 1)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _types(_referred(reference, root), root, depth + 1)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if given is None and isinstance(values, list):
        yield from (_NAMES[type(value)] for value in values)


def _referred(reference: str, root: Json) -> Json:
    """What `#/$defs/Name` means in this schema."""
    found = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    """NaN and infinity are not JSON, though Python reads them."""
    raise ValueError(constant)
