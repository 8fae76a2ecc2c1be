"""Settings of choices: a section of the run file against the choice's model, and the model as JSON Schema.

Example:

    settings = read_settings("reward", "judge", registered.spec, {"url": "http://…", "key": "$env:JUDGE_KEY"})
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python

from slime_core.config.plain_values import shown
from slime_core.config.run_file import toml_key
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import Settings, Spec
from slime_core.sample import Json
from slime_core.secrets import REDACTOR

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def read_settings(role: str, name: str, spec: Spec[object], section: Mapping[str, Json]) -> Settings:
    """The typed settings of a choice.

    Raises:
        ConfigError: a key is unknown, missing, mistyped or out of range, or a variable is not set; all in one message.
    """
    prefix = f"{role}.{toml_key(name)}"
    settings = _read(spec.model, section, prefix)
    installed = spec.installed
    if installed is None or not isinstance(table := section.get(installed.key), dict) or not table:
        return settings
    lists = f"`slime plugins show {role}/{name}` lists them"
    passed_on = _read(installed.model(section), table, f"{prefix}.{installed.key}", spec.model.model_fields, lists)
    return settings.model_copy(update={installed.key: passed_on.model_dump(exclude_unset=True)})


def _read(
    model: type[Settings], given: Mapping[str, Json], prefix: str, beside: Iterable[str] = (), lists: str = ""
) -> Settings:
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, model, prefix, beside, lists))) from None


def show_settings(settings: Settings) -> dict[str, Json]:
    """Settings as plain data, with `$env:NAME` in place of what was read from the environment."""
    return cast(dict[str, Json], to_jsonable_python(REDACTOR.redact_data(settings.model_dump())))


def settings_schema(spec: Spec[object]) -> dict[str, Json]:
    """JSON Schema (2020-12) of a choice's section in the run file."""
    schema: dict[str, Json] = spec.model.model_json_schema()
    description = spec.summary or ("" if spec.model is Settings else schema.get("description", ""))
    described: dict[str, Json] = {"description": description} if description else {}
    rest = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {"$schema": DIALECT, "title": f"[{spec.role}.{spec.name}]", **described, **rest}


def explain(
    error: ValidationError, model: type[BaseModel], prefix: str = "", beside: Iterable[str] = (), lists: str = ""
) -> list[str]:
    """One sentence for each thing that a model refused, with a did-you-mean for unknown keys; no secret in any.

    Args:
        error: what pydantic says.
        model: what it was read by.
        prefix: where the keys are: "engine.local".
        beside: names in the table above, which an unknown key may mean.
        lists: what lists all keys, where they are too many to be named.
    """
    told = [_sentence(item, model, prefix, tuple(beside), lists) for item in error.errors(include_url=False)]
    return [REDACTOR.redact(each) for each in told]


def _sentence(item: ErrorDetails, model: type[BaseModel], prefix: str, beside: tuple[str, ...], lists: str) -> str:
    where = ".".join(filter(None, (prefix, *map(str, item["loc"]))))
    match item["type"]:
        case "missing":
            has_flag = bool(prefix) or len(item["loc"]) == 1
            name = where.replace('"', "") if prefix else where.replace("_", "-")
            flag = f" or pass --{name}" if has_flag else ""
            return f"{where} is required: set it in the run file{flag}"
        case "extra_forbidden":
            owner, key = _model_at(model, item["loc"][:-1]), str(item["loc"][-1])
            known = list(owner.model_fields) if owner else []
            section = where.removesuffix(f".{key}")
            near = did_you_mean(key, (*known, *beside))
            has = f" {len(known)} keys, {lists}" if lists else f": {', '.join(known) or 'none'}"
            return f"unknown setting {where}.{near} [{section}] has{has}."
        case "literal_secret":
            return f"{where}: {item['msg']}"
    said = item["msg"].removeprefix("Value error, ")  # pydantic's name for what a check of our own says
    return f"{where} = {shown(REDACTOR.redact_data(item['input']))}: {said[0].lower()}{said[1:]}"


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    """The model that a nested section is read by; None when that cannot be told."""
    for step in path:
        if isinstance(step, int) or step not in model.model_fields:
            continue  # a position in a list, a key of a mapping, or a name that pydantic gives to one of several types
        inner = next(_models(model.model_fields[step].annotation), None)
        if inner is None:
            return None
        model = inner
    return model


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)
