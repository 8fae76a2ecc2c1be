"""Every number of a run has bounds, and what is outside them is refused before anything starts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from slime_core.catalog import Catalog
from slime_core.config import FAMILIES, EvalSetArgs, parse_config, read_run_file, resolve
from slime_core.errors import SlimeError
from slime_core.roles import SPECS, Settings

Project = Any
Schema = Mapping[str, Any]
UNBOUNDED = {"max_shard_size"}
"""Of a type whose schema shows no bounds."""


def models() -> dict[str, type[BaseModel]]:
    """Families of the core, and settings of all that the core and its own plugins offer."""
    ours = {"slime-core", *(each.name for each in (Path(__file__).parents[2] / "plugins").iterdir())}
    found: dict[str, type[BaseModel]] = {**FAMILIES, "eval_prompt_data": EvalSetArgs}
    catalog = Catalog.discover()
    for role in SPECS:
        for name, each in catalog.choices(role).items():
            if each.plugin in ours and each.spec.model is not Settings:
                found[f"{role}/{name}"] = each.spec.model
    return found


def numbers(schema: Schema, whole: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every number in a JSON Schema, with its place."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if schema.get("type") in ("integer", "number"):
        yield path, schema
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("prefixItems", ())):
        yield from numbers(each, whole, path)
    for name, each in schema.get("properties", {}).items():
        yield from numbers(each, whole, f"{path}.{name}" if path else name)
    for inside in ("items", "additionalProperties"):
        if isinstance(schema.get(inside), dict):
            yield from numbers(schema[inside], whole, f"{path}.*")


def test_every_number_has_a_least_and_a_greatest_value() -> None:
    unbounded = []
    for owner, model in models().items():
        schema = model.model_json_schema()
        for place, number in numbers(schema, schema):
            least, most = {"minimum", "exclusiveMinimum"} & {*number}, {"maximum", "exclusiveMaximum"} & {*number}
            if not (least and most) and place not in UNBOUNDED:
                unbounded.append(f"{owner}: {place}")
    assert not unbounded


HOSTILE_TEXTS = ["", " ", "/", "/dev/null", "..", "x" * 5_000, "a\nb", "-", "{}", "file@[", "é\u202e"]


def test_a_hostile_text_for_any_key_is_accepted_or_a_typed_error(project: Project) -> None:
    values = read_run_file(project.root / "run.toml")
    catalog, wrong = Catalog.discover(), []
    for family in FAMILIES.values():
        for key, info in family.model_fields.items():
            annotation = str(info.annotation)
            if "str" not in annotation and "Path" not in annotation and "Literal" not in annotation:
                continue
            for text in HOSTILE_TEXTS:
                try:
                    resolve(parse_config({"save": "runs/x", **values, key: text}, catalog), catalog)
                except SlimeError:
                    continue
                except Exception as error:
                    wrong.append(f"{key} = {text[:20]!r}: {error!r}"[:200])
    assert not wrong
