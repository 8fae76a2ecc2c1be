"""`slime plugins show` and `slime plugins schema`: a plugin or a choice, as fully as it is known before a run."""

import dataclasses
import importlib.metadata
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Union, cast, get_args, get_origin

import click
from pydantic_core import to_jsonable_python

from slime_core.catalog import (
    Catalog,
    PluginState,
    PluginStatus,
    PluginWarning,
    Registered,
    is_in_project,
    place_of,
)
from slime_core.cli.plugins import ListedRow, listed_row, plugin_options, plugin_set
from slime_core.config import settings_schema
from slime_core.errors import ConfigError, PluginError, UnknownName, did_you_mean
from slime_core.hookspecs import (
    HOOK_OF_EVENT,
    HOOK_OF_RANK_EVENT,
    PROVIDER_OF_ROLE,
    ProviderHookSpecs,
    RankHookSpecs,
    RunHookSpecs,
)
from slime_core.roles import SPECS, CallSpec, PluginSet, Settings, describe_isolation
from slime_core.sample import Json

# What `slime plugins show` knows, as plain data: a plugin, its choices with settings, its hooks in call order.

HOOKS = (*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values())
_MODULE = re.compile(r"(?P<text>'[^']*')|\b(?:[^\W\d]\w*\.)+(?=\w)")
"""A quoted text, to be left as it is, or the dotted modules before a name."""


def describe_plugin(catalog: Catalog, status: PluginStatus) -> dict[str, Json]:
    """A plugin: what its metadata and its module say, and what became of it."""
    metadata = _metadata(status.dist)
    row = cast("dict[str, Json]", listed_row(status, catalog.statuses.index(status) + 1))
    del row["choices"], row["hooks"]
    return {
        **row,
        "file": str(getattr(_module(status), "__file__", "") or ""),
        "api": declared_api(status),
        "summary": str(metadata.json.get("summary", "")) if metadata else "",
        "requires": [*(importlib.metadata.requires(status.dist) or [])] if metadata else [],
    }


def loaded_rows(plugins: PluginSet, role: str | None) -> list[ListedRow]:
    """The rows of `slime plugins list` with what each plugin offers, for one role or for all.

    Raises:
        UnknownName: there is no such role.
    """
    catalog, seen = quiet_catalog(plugins), set[str]()
    roles = list(SPECS) if role is None else [role.replace("-", "_")]
    rows: list[ListedRow] = []
    for order, status in enumerate(catalog.statuses, 1):
        row = listed_row(status, order)
        row["choices"], row["hooks"], row["api"] = [], [], declared_api(status)
        if status.state is PluginState.LOADED and status.plugin not in seen:  # its entry points share its choices
            seen.add(status.plugin)
            row["choices"] = [
                {
                    "role": each.spec.role,
                    "choice": each.qualified,
                    "summary": each.spec.summary,
                    "origin": each.origin,
                }
                for each in choices_of(catalog, status.plugin, roles)
            ]
            row["hooks"] = [
                {"hook": hook, "origin": place_of(each.function)}
                for hook in HOOKS
                for each in catalog.listeners(hook)
                if each.plugin == status.plugin
            ]
        rows.append(row)
    return rows


def _metadata(dist: str) -> importlib.metadata.PackageMetadata | None:
    try:
        return importlib.metadata.metadata(dist) if dist else None
    except importlib.metadata.PackageNotFoundError:
        return None


def choices_of(catalog: Catalog, plugin: str, roles: Iterable[str] = SPECS) -> list[Registered]:
    """All that a plugin offers, by role."""
    return [each for role in roles for each in catalog.choices(role).values() if each.plugin == plugin]


def describe_choice(registered: Registered) -> dict[str, Json]:
    """A choice with its settings."""
    spec = registered.spec
    specified = getattr(ProviderHookSpecs, PROVIDER_OF_ROLE[spec.role])
    return {
        "role": spec.role,
        "choice": registered.qualified,
        "plugin": registered.plugin,
        "version": registered.version,
        "origin": registered.origin,
        "summary": spec.summary,
        "isolation": describe_isolation(spec) if isinstance(spec, CallSpec) else None,
        "stability": specified.stability.value,
        "added": specified.added,
        "settings": [*_settings(registered)],
    }


def _settings(registered: Registered) -> Iterator[dict[str, Json]]:
    installed = registered.spec.installed
    yield from _rows(registered, registered.spec.model)
    if installed is not None:
        yield from _rows(registered, installed.model({}), f"{installed.key}.")
    for table in registered.spec.prefixed:
        yield from _rows(registered, table.model({}), f"{table.key}.")


def _rows(registered: Registered, model: type[Settings], before: str = "") -> Iterator[dict[str, Json]]:
    for key, info in model.model_fields.items():
        try:
            default = None if info.is_required() else info.get_default(call_default_factory=True)
        except Exception as error:  # a factory is a plugin's code
            raise PluginError(f"{registered.qualified}: the default of setting {key!r} raised {error!r}") from error
        yield {
            "key": before + key,
            "type": type_name(info.annotation),
            "required": info.is_required(),
            "default": to_jsonable_python(default, fallback=str),
            "description": info.description or "",
        }


def type_name(annotation: object) -> str:
    """A type as its author wrote it, without modules and bounds."""
    if get_origin(annotation) is Annotated:
        return type_name(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(type_name, get_args(annotation)))
    if isinstance(annotation, type) and not get_args(annotation):
        return "None" if annotation is type(None) else annotation.__name__
    return _MODULE.sub(lambda found: found["text"] or "", str(annotation)).replace("NoneType", "None")


def describe_hooks(catalog: Catalog, plugin: str) -> Iterator[dict[str, Json]]:
    """The run hooks and rank hooks of a plugin, with the order in which everybody is called."""
    for hook in HOOKS:
        listeners = catalog.listeners(hook)
        specified = getattr(RunHookSpecs if hook in HOOK_OF_EVENT.values() else RankHookSpecs, hook)
        for position, listener in enumerate(listeners, 1):
            if listener.plugin == plugin:
                yield {
                    "hook": hook,
                    "origin": place_of(listener.function),
                    "position": position,
                    "order": [each.plugin for each in listeners],
                    "stability": specified.stability.value,
                    "added": specified.added,
                }


def declared_api(status: PluginStatus) -> str:
    """The SLIME_API of an imported plugin; empty for one that has none."""
    return str(getattr(_module(status), "SLIME_API", ""))


def _module(status: PluginStatus) -> ModuleType | None:
    return sys.modules.get(status.origin.partition(":")[0])


# What a NAME on the command line means: a plugin, a module of the project, or choices of plugins.


def open_catalog(ctx: click.Context, name: str) -> Catalog:
    """The catalog, without a warning about broken plugins; and with NAME, if it is a module file."""
    plugins = plugin_set(ctx)
    if name.endswith(".py") and Path(name).is_file() and name not in plugins.modules:
        plugins = dataclasses.replace(plugins, modules=(*plugins.modules, name))
    return quiet_catalog(plugins)


def quiet_catalog(plugins: PluginSet) -> Catalog:
    """The catalog, without a word about plugins that are broken: the command shows their status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        return Catalog.discover(plugins, strict=False)


def find_plugin(catalog: Catalog, name: str) -> PluginStatus | None:
    """The plugin of this name: a distribution, an entry point or a module."""
    plain = name.lower().replace("_", "-")
    of_dist = [each for each in catalog.statuses if each.plugin in (name, plain)]
    others = [each for each in catalog.statuses if name in (each.name, each.origin)]
    return next(iter((*of_dist, *others)), None)


def find_choices(catalog: Catalog, name: str, role: str | None = None) -> list[Registered]:
    """The choices that a name means: `math`, `reward/math`, `slime-reward-math/math`, `reward/./my.py:fn`.

    Args:
        catalog: where to look.
        name: what the user wrote.
        role: the only role to look at.

    Raises:
        UnknownName: there is none.
    """
    before, slash, rest = name.partition("/")
    named = before.replace("-", "_")
    if role is not None:
        return [catalog.find(role, name)]
    if slash and named in SPECS:
        return [catalog.find(named, rest)]
    if is_in_project(name):
        raise UnknownName(f"{name!r} may fill several roles: write ROLE/{name}, as in reward/{name}")
    everywhere = [each for role in SPECS for each in catalog.choices(role).values()]
    found = [each for each in everywhere if name in (each.qualified, each.spec.name)]
    if not found:
        raise UnknownName(_unknown(catalog, name, everywhere))
    return found


def _unknown(catalog: Catalog, name: str, choices: list[Registered]) -> str:
    spellings = {each.plugin for each in catalog.statuses} | {each.name for each in catalog.statuses}
    spellings |= {each.spec.name for each in choices} | {each.qualified for each in choices}
    spellings |= {f"{each.spec.role}/{each.spec.name}" for each in choices}
    text = f"no plugin and no choice {name!r}.{did_you_mean(name, spellings)}"
    plugins = ", ".join(dict.fromkeys(each.plugin for each in catalog.statuses))
    text += f" Plugins: {plugins}. `slime plugins list --load` shows their choices."
    for status in catalog.statuses:
        if status.failed:
            text += f" Not loaded, and might have offered it: {status}."
    return text


# `slime plugins show NAME`: one plugin, or the choices of one name, as fully as it is known before a run.


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a plugin, or a choice: where it is, its settings, how its calls are isolated, its hooks in call order.

    \b
    slime plugins show slime-reward-math
    slime plugins show reward/math
    slime plugins show slime-reward-math/math
    slime plugins show ./my_plugin.py
    """  # noqa: D301  # \b keeps click from filling the lines below it
    catalog = open_catalog(ctx, name)
    status = find_plugin(catalog, name)
    plugin = describe_plugin(catalog, status) if status else None
    found = choices_of(catalog, status.plugin) if status else find_choices(catalog, name)
    choices = [describe_choice(each) for each in found]
    hooks = list(describe_hooks(catalog, status.plugin)) if status else []
    if as_json:
        value = {"schema_version": 1, "plugin": plugin, "choices": choices, "hooks": hooks}
        click.echo(json.dumps(value, indent=2))
        return
    blocks = [partial(_show_plugin, plugin)] if plugin else []
    blocks += [partial(_show_choice, choice) for choice in choices]
    blocks += [partial(_show_hook, hook) for hook in hooks]
    for number, show_block in enumerate(blocks):
        if number:
            click.echo()
        show_block()


def _show_plugin(row: Mapping[str, Json]) -> None:
    click.echo(_title(f"{row['plugin']} {row['version']}".rstrip(), row["summary"]))
    _line("state", click.style(str(row["state"]), fg="green" if row["state"] == "loaded" else "red"))
    if row["detail"]:
        _line("", row["detail"])
    if row["order"]:
        _line("order", str(row["order"]))
    _line("plugin API", row["api"])
    _line("module", f"{row['origin']}  {row['file']}".rstrip())
    _line("requires", ", ".join(cast("list[str]", row["requires"])))


def _show_choice(row: Mapping[str, Json]) -> None:
    click.echo(_title(f"{row['role']} {str(row['choice']).rpartition('/')[2]}", row["summary"]))
    _line("choice", f"{row['choice']} {row['version']}".rstrip())
    _line("defined", row["origin"])
    _line("calls run", row["isolation"])
    _line("role", f"{row['stability']}, since {row['added']}")
    for setting in cast("list[dict[str, Json]]", row["settings"]):
        default = "required" if setting["required"] else f"= {json.dumps(setting['default'])}"
        _line("setting", f"{click.style(str(setting['key']), bold=True)}: {setting['type']} {default}")
        _line("", setting["description"])


def _show_hook(row: Mapping[str, Json]) -> None:
    order = cast("list[str]", row["order"])
    click.echo(_title(f"hook {row['hook']}", ""))
    _line("defined", row["origin"])
    _line("called", f"{row['position']} of {len(order)}: {', '.join(order)}")
    _line("hook", f"{row['stability']}, since {row['added']}")


def _title(name: str, text: Json) -> str:
    return click.style(name, fg="cyan", bold=True) + (f"  {text}" if text else "")


def _line(what: str, text: Json) -> None:
    if text:
        click.echo(f"  {click.style(f'{what:10}', dim=True)}  {text}")


# `slime plugins schema NAME`: the JSON Schema of a choice's settings.


@click.command()
@click.argument("name")
@click.option("--role", type=click.Choice(list(SPECS)), metavar="ROLE", help=f"Its role: {', '.join(SPECS)}.")
@plugin_options
@click.pass_context
def schema(ctx: click.Context, name: str, role: str | None) -> None:
    """Print the JSON Schema (2020-12) of the settings of a choice: what may stand in its section of the run file.

    \b
    slime plugins schema reward/math
    slime plugins schema local --role engine
    """  # noqa: D301  # \b keeps click from filling the lines below it
    found = find_choices(open_catalog(ctx, name), name, role)
    if len(found) > 1:
        several = ", ".join(f"{each.spec.role}/{each.qualified}" for each in found)
        raise ConfigError(f"{name!r} means {len(found)} choices: write one of {several}")
    click.echo(json.dumps(settings_schema(found[0].spec), indent=2))
