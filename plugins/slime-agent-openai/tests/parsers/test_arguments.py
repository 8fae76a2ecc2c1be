import json

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.families import typed_arguments
from slime_core.sample import Json
from tests.tables import table


def written(schema: Json, value: str, **root: Json) -> Json:
    tool = Tool("note", parameters=json.dumps({"type": "object", "properties": {"given": schema}, **root}))
    made: dict[str, Json] = json.loads(typed_arguments([("given", value)], "note", [tool]))
    return made["given"]


@table(
    "schema, value, read",
    [
        ({"type": "string"}, "42", "42"),
        ({"type": "string"}, " a\n", " a\n"),
        ({"type": "integer"}, " 42\n", 42),
        ({"type": "integer"}, "many", "many"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "False", False),
        ({"type": ["integer", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "integer"]}, "1", "1"),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, "[1]", [1]),
        ({"$ref": "#/$defs/Where"}, '{"a": 1}', {"a": 1}),
        ({"$ref": "#/$defs/Endless"}, "1", "1"),
        ({"$ref": "#/nowhere/at/all"}, "1", "1"),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": "2"}, "2", "2"),
        ({}, "1", "1"),
        (True, "1", "1"),
        ({"type": "array"}, "[" * 100_000, "[" * 100_000),
    ],
)
def test_value_is_typed_by_its_schema(schema: Json, value: str, read: Json) -> None:
    known: Json = {"Where": {"type": "object"}, "Endless": {"$ref": "#/$defs/Endless"}}
    assert written(schema, value, **{"$defs": known}) == read


@table("schema", ["[]", "{", '{"properties": []}', ""])
def test_values_without_a_schema_are_strings(schema: str) -> None:
    tools = [Tool("note", parameters=schema)] if schema else []
    assert typed_arguments([("a", "1"), ('"', "ü")], "note", tools) == '{"a": "1", "\\"": "ü"}'
