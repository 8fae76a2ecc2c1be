"""Arguments of installed software: their values, and the command line made of them."""

from typing import cast

import pytest
from pydantic import ValidationError

from slime_core.sample import Json
from slime_engine_sglang.command_line import Argument, ArgumentKind, arguments_model, command_line
from tests.tables import table

ARGUMENTS = (
    Argument("share", ArgumentKind.NUMBER, "How much."),
    Argument("count", ArgumentKind.INTEGER, default=1),
    Argument("size", ArgumentKind.TEXT),
    Argument("level", ArgumentKind.TEXT, choices=("low", "1", "true")),
    Argument("bits", ArgumentKind.INTEGER, choices=(4, 8)),
    Argument("names", ArgumentKind.TEXT, many=True),
    Argument("metrics", ArgumentKind.SWITCH, default=False),
    Argument("graph", ArgumentKind.SWITCH, default=True, negative="no_graph"),
    Argument("about", ArgumentKind.JSON),
    Argument("port", ArgumentKind.INTEGER, blocked_because="follows from the launcher"),
)


def given(**values: Json) -> dict[str, Json]:
    model = arguments_model("Arguments", ARGUMENTS)
    return cast(dict[str, Json], model.model_validate(values).model_dump(exclude_unset=True))


@table(
    "values, line",
    [
        ({"share": 0.5, "count": 3}, "--share 0.5 --count 3"),
        ({"size": 4096}, "--size 4096"),
        ({"size": "32k"}, "--size 32k"),
        ({"level": 1}, "--level 1"),
        ({"level": True}, "--level true"),
        ({"bits": "8"}, "--bits 8"),
        ({"names": "one"}, "--names one"),
        ({"names": ["one", 2]}, "--names one 2"),
        ({"metrics": True, "graph": True}, "--metrics --graph"),
        ({"metrics": False, "graph": False}, "--no-graph"),
        ({"about": {"a": [1]}}, '--about {"a":[1]}'),
        ({"about": [1, 2]}, "--about [1,2]"),
        ({}, ""),
    ],
)
def test_values_become_a_command_line(values: dict[str, Json], line: str) -> None:
    words = [each.replace(" ", "") for each in command_line(ARGUMENTS, given(**values))]
    assert " ".join(words) == line


@table(
    "values, message",
    [
        ({"share": "much"}, "should be a valid number"),
        ({"count": 1.5}, "should be a valid integer"),
        ({"count": True}, "should be a number"),
        ({"size": True}, "should be a valid string"),
        ({"level": "high"}, "should be 'low', '1' or 'true'"),
        ({"bits": 5}, "should be 4 or 8"),
        ({"names": [True]}, "should be a valid string"),
        ({"metrics": "perhaps"}, "should be a valid boolean"),
        ({"port": 1}, "this argument cannot be set, because it follows from the launcher"),
        ({"shares": 1}, "Extra inputs are not permitted"),
    ],
)
def test_invalid_argument_values_are_refused(values: dict[str, Json], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        given(**values)
    assert message in caught.value.errors()[0]["msg"]
