"""The help of `slime train` and similar commands: the keys that most runs set, then topics.

Example:

    slime train --help              # about twenty keys, and the topics
    slime train --help lr           # a key, and those like it
    slime train --help engine       # a role: its choices and their settings
    slime train --help all
"""

import contextlib
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from slime_core.catalog import Catalog
from slime_core.config import CHOOSES, DEFAULT_USE, FAMILIES, WEIGHTED, FlatKeys, prefixes
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
_PLACEHOLDERS = (("dict", "JSON"), ("JsonValue", "JSON"), ("Path", "PATH"), ("int", "N"), ("float", "X"))
Row = tuple[str, str]


def flag(key: str) -> str:
    """How a key is typed on the command line."""
    return f"--{key.replace('_', '-')}"


def show_help(command: click.Command, ctx: click.Context, topic: str, discover: Callable[[], Catalog]) -> None:
    """Print the help of a command, or of a topic.

    Raises:
        click.UsageError: there is no such topic.
    """
    formatter = ctx.make_formatter()
    topic = topic.lstrip("-").replace("-", "_").removeprefix("no_")
    if topic:
        sections = list(_sections(topic, discover()))
        if not sections:
            names = [*FAMILIES, *SELECTABLE, *(key for family in FAMILIES.values() for key in family.model_fields)]
            raise click.UsageError(f"no help on {topic!r}.{did_you_mean(topic, names)} {_topics()}", ctx)
    else:
        command.format_usage(ctx, formatter)
        command.format_help_text(ctx, formatter)
        options = (param for param in command.get_params(ctx) if isinstance(param, click.Option))
        own = [record for param in options if (record := param.get_help_record(ctx))]
        by_key = {key: info for family in FAMILIES.values() for key, info in family.model_fields.items()}
        roles = [_role_row(role) for role in ("reward", "trainer", "engine")]
        sections = [("Options", own), ("Keys that most runs set", [_row(key, by_key[key]) for key in COMMON] + roles)]
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
        if rows := [_row(key, info) for key, info in family.model_fields.items() if whole or topic in key]:
            yield (family.__doc__ or name).strip(" ."), rows
    roles = [role for role in SELECTABLE if topic in ("all", role)]
    also = ((key, role) for key, role in CHOOSES.items() if topic in ("all", key, role))
    if rows := [*map(_role_row, roles), *((f"{flag(key)} NAME", f"The same as {flag(role)}.") for key, role in also)]:
        yield "Choices (`slime plugins list --load` shows them)", rows
    for role in SELECTABLE:
        if rows := [*_of_choices(role, topic, role in roles, catalog)]:
            yield f"Settings of choices, {role.replace('_', ' ')}", rows


def _of_choices(role: str, topic: str, whole: bool, catalog: Catalog) -> Iterator[Row]:
    for key, owners in FlatKeys(catalog).owners.items():
        mine = [owner for owner in owners if owner.role == role]
        if mine and (whole or topic in key):
            of, spec = f" ({', '.join(owner.name for owner in mine)})", mine[0].registered.spec
            fields = {}
            with contextlib.suppress(PluginError):
                fields = {} if spec.is_late else spec.model.model_fields
            yield _row(key, fields[key], of) if key in fields else (f"{flag(key)} VALUE", of.strip())
    for registered in catalog.choices(role).values():
        for prefix, table in prefixes(registered).items():
            if whole or topic.startswith(prefix):
                what = " ".join(("every", *table, "setting of", registered.spec.name))
                yield f"{flag(prefix)}KEY VALUE", f"{what}, `slime plugins show {registered.plugin}`"


def _row(key: str, info: FieldInfo, of: str = "") -> Row:
    default = info.get_default(call_default_factory=True)
    hints = list(_bounds(info))
    if info.is_required():
        hints += ["required"] if key != "save" else []
    elif default is not False and default not in (None, {}, []):
        hints.append(f"default: {default}")
    many = "list[" in str(info.annotation)
    hints += ["repeat for several"] if many else []
    text = f"{info.description or ''}{of}" + (f"  [{'; '.join(hints)}]" if hints else "")
    if info.annotation is bool:
        return f"--[no-]{key.replace('_', '-')}", text
    return f"{flag(key)} {_placeholder(key, info)}", text


def _placeholder(key: str, info: FieldInfo) -> str:
    if key == "eval_prompt_data":
        return "NAME PATH"
    annotation = str(info.annotation)
    if words := _words(info.annotation):
        return "|".join(words)
    return next((shown for kind, shown in _PLACEHOLDERS if kind in annotation), "TEXT")


def _words(annotation: object) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    return next(filter(None, map(_words, get_args(annotation))), [])


def _bounds(info: FieldInfo) -> Iterator[str]:
    found = list(info.metadata)
    for part in get_args(info.annotation) if get_origin(info.annotation) in (Union, UnionType) else ():
        for each in getattr(part, "__metadata__", ()):
            found += each.metadata if isinstance(each, FieldInfo) else [each]
    for kind, words in (("ge", "{} or more"), ("gt", "over {}"), ("le", "at most {}"), ("lt", "below {}")):
        for bound in found:
            if (limit := getattr(bound, kind, None)) is not None and limit < _FAR:
                yield words.format(f"{limit:g}")


def _role_row(role: str) -> Row:
    default = ", ".join(DEFAULT_USE[role])
    several = "; repeat for several" if SPECS[role].many else ""
    hint = f"  [default: {default}]" if default else ""
    name = "NAME[=WEIGHT]" if role in WEIGHTED else "NAME"
    return f"{flag(role)} {name}", f"Which {role.replace('_', ' ')}{several}.{hint}"
