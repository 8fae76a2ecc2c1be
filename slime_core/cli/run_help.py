"""The help of `slime train` and similar commands: the keys that most runs set, then topics.

Example:

    slime train --help              # about twenty keys, and the topics
    slime train --help lr           # a key, and those like it
    slime train --help engine       # a role: its choices and their settings
    slime train --help all
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from pydantic import BaseModel

from slime_core.catalog import Catalog
from slime_core.config import DEFAULT_USE, FAMILIES, FAMILY_OF_KEY, ROLE_OF_ALIAS, WEIGHTED, FlatKeys, prefixes
from slime_core.errors import PluginError, did_you_mean
from slime_core.roles import SELECTABLE, SPECS

COMMON = (
    *("hf_checkpoint", "prompt_data", "input_key", "label_key", "apply_chat_template", "save", "num_rollout"),
    *("rollout_batch_size", "n_samples_per_prompt", "rollout_max_response_len", "rollout_temperature"),
    *("rollout_policy", "lr", "num_steps_per_rollout", "use_kl_loss", "kl_loss_coef", "eval_prompt_data"),
    *("eval_interval", "save_interval", "actor_num_gpus_per_node", "rollout_num_gpus"),
)
"""Keys that most runs set."""
_FAR = 10**6  # upper bounds from here on only catch slips of the finger
_PLACEHOLDERS = {"boolean": "true|false", "string": "TEXT", "integer": "N", "number": "X"}
_BOUNDS = {
    "minimum": "{} or more",
    "exclusiveMinimum": "over {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
Row = tuple[str, str]
Schema = dict[str, Any]


def flag(key: str) -> str:
    """How a key is typed on the command line."""
    return f"--{key.replace('_', '-')}"


def show_help(command: click.Command, ctx: click.Context, topic: str, discover: Callable[[], Catalog]) -> None:
    """Print the help of a command, or of a topic."""
    formatter = ctx.make_formatter()
    topic = topic.lstrip("-").replace("-", "_").removeprefix("no_")
    if topic:
        sections = list(_sections(topic, discover()))
        if not sections:
            nearest = did_you_mean(topic, [*FAMILIES, *SELECTABLE, *FAMILY_OF_KEY])
            raise click.UsageError(f"no help on {topic!r}.{nearest} {_topics()}", ctx)
    else:
        command.format_usage(ctx, formatter)
        command.format_help_text(ctx, formatter)
        options = (param for param in command.get_params(ctx) if isinstance(param, click.Option))
        own = [record for param in options if (record := param.get_help_record(ctx))]
        keys = [_row(key, FAMILIES[FAMILY_OF_KEY[key]]) for key in COMMON]
        roles = [_role_row(role) for role in ("reward", "trainer", "engine")]
        sections = [("Options", own), ("Keys that most runs set", keys + roles)]
    for title, rows in sections:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=36)
    if not topic:
        formatter.write_paragraph()
        formatter.write_text(_topics())
        formatter.write_text("Every setting of a choice is a flag: --ROLE.NAME.KEY VALUE, as --engine.local.workers 4.")
    click.echo(formatter.getvalue().rstrip("\n"))


def _topics() -> str:
    return f"More: --help KEY; --help all; --help {', '.join(FAMILIES)}; --help {', '.join(SELECTABLE)}."


def _sections(topic: str, catalog: Catalog) -> Iterator[tuple[str, list[Row]]]:
    for name, family in FAMILIES.items():
        whole = topic in ("all", name)
        if rows := [_row(key, family) for key in family.model_fields if whole or topic in key]:
            yield (family.__doc__ or name).strip(" ."), rows
    roles = [role for role in SELECTABLE if topic in ("all", role)]
    also = ((key, role) for key, role in ROLE_OF_ALIAS.items() if topic in ("all", key, role))
    if rows := [*map(_role_row, roles), *((f"{flag(key)} NAME", f"The same as {flag(role)}.") for key, role in also)]:
        yield "Choices (`slime plugins list --load` shows them)", rows
    for role in SELECTABLE:
        if rows := [*_of_choices(role, topic, role in roles, catalog)]:
            yield f"Settings of choices, {role.replace('_', ' ')}", rows


def _of_choices(role: str, topic: str, whole: bool, catalog: Catalog) -> Iterator[Row]:
    for key, owners in FlatKeys(catalog).owners.items():
        owners_of_role = [owner for owner in owners if owner.role == role]
        if owners_of_role and (whole or topic in key):
            of, spec = f" ({', '.join(owner.name for owner in owners_of_role)})", owners_of_role[0].registered.spec
            with contextlib.suppress(PluginError):
                if not spec.is_late and key in spec.model.model_fields:
                    yield _row(key, spec.model, of)
                    continue
            yield f"{flag(key)} VALUE", of.strip()
    for registered in catalog.choices(role).values():
        for prefix, table in prefixes(registered).items():
            if whole or topic.startswith(prefix):
                what = " ".join(("every", *table, "setting of", registered.spec.name))
                yield f"{flag(prefix)}KEY VALUE", f"{what}, `slime plugins show {registered.plugin}`"


def _row(key: str, model: type[BaseModel], of: str = "") -> Row:
    info, schema = model.model_fields[key], _properties(model)[key]
    default = info.get_default(call_default_factory=True)
    kinds = [each for part in schema.get("anyOf", [schema]) for each in (part, part.get("items", {}))]
    hints = [
        words.format(f"{kind[bound]:g}")
        for bound, words in _BOUNDS.items()
        for kind in kinds
        if abs(kind.get(bound, _FAR)) < _FAR
    ]
    if info.is_required():
        hints += ["required"] if key != "save" else []
    elif default is not False and default not in (None, {}, []):
        hints.append(f"default: {default}")
    hints += ["repeat for several"] if any(kind.get("type") == "array" for kind in kinds) else []
    text = f"{info.description or ''}{of}" + (f"  [{'; '.join(hints)}]" if hints else "")
    if info.annotation is bool:
        return f"--[no-]{key.replace('_', '-')}", text
    return f"{flag(key)} {'NAME PATH' if key == 'eval_prompt_data' else _placeholder(kinds)}", text


@functools.cache
def _properties(model: type[BaseModel]) -> dict[str, Schema]:
    model.model_rebuild()  # `Settings` defers the build until a model is used
    properties: dict[str, Schema] = model.model_json_schema()["properties"]
    return properties


def _placeholder(kinds: Sequence[Schema]) -> str:
    for kind in kinds:
        if words := kind.get("enum") or [kind[name] for name in ("const",) if name in kind]:
            return "|".join(map(str, words))
        if kind.get("format") == "path":
            return "PATH"
        if kind.get("type") in _PLACEHOLDERS:
            return _PLACEHOLDERS[kind["type"]]
    return "JSON"


def _role_row(role: str) -> Row:
    default = ", ".join(DEFAULT_USE[role])
    several = "; repeat for several" if SPECS[role].many else ""
    hint = f"  [default: {default}]" if default else ""
    name = "NAME[=WEIGHT]" if role in WEIGHTED else "NAME"
    return f"{flag(role)} {name}", f"Which {role.replace('_', ' ')}{several}.{hint}"
