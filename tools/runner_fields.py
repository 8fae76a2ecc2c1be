"""The page docs/reference/runner-fields.md: the fields of SlimeRunner, their types and defaults, from slime-compat.

.venv/bin/python tools/runner_fields.py            exit 1 if the page differs
.venv/bin/python tools/runner_fields.py --write    write it
"""

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from slime_compat.runner.fields import IGNORED_FIELDS, RunnerFields

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "runner-fields.md"
HEAD = """\
<!-- written by tools/runner_fields.py -->
# Fields of SlimeRunner

Keyword arguments of [`SlimeRunner`](../runner.md). Names and defaults match agentcore-rl-toolkit's class. `$env:NAME`
reads a variable of the environment.

| field | type | default | meaning |
|---|---|---|---|"""


def page() -> str:
    """The page."""
    return "\n".join([HEAD, *_rows()]) + "\n"


def _rows() -> Iterator[str]:
    for name, field in RunnerFields.model_fields.items():
        what = "Ignored: " + IGNORED_FIELDS[name] + "." if name in IGNORED_FIELDS else str(field.description)
        yield f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {what} |"


def _type(annotation: object) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(each) for each in arguments if each is not type(None))
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " or ".join(f'`"{each}"`' for each in arguments)
    if origin is dict:
        return f"{_type(arguments[1])} by name"
    if origin is list:
        return f"list of {_type(arguments[0])}"
    names: dict[object, str] = {str: "text", Path: "path", int: "integer", float: "number", bool: "true or false"}
    return names[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default in (None, [], {}):
        return ""
    return f"`{field.default}`" if isinstance(field.default, Path) else f"`{field.default!r}`"


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(PAGE, page()))
