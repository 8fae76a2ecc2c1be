"""`slime plugins show`, and the rows of `slime plugins list --load`: what plugins and choices are before a run."""

import dataclasses
import importlib.metadata
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, cast, get_args, get_origin

import click
from pydantic_core import to_jsonable_python

from slime_core.catalog import (
    Catalog,
    PluginState,
    PluginStatus,
    PluginWarning,
    RegisteredChoice,
    is_project_code,
    source_location,
)
from slime_core.cli.plugins import ListedRow, listed_row, plugin_options, plugin_set
from slime_core.errors import PluginError, UnknownName, did_you_mean
from slime_core.events import Event, RankEvent
from slime_core.hookspecs import (
    HOOK_OF_EVENT,
    HOOK_OF_RANK_EVENT,
)
from slime_core.roles import SPECS, CallSpec, PluginSet, Settings, describe_isolation
from slime_core.sample import Json

HOOKS = (*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values())
_MODULE = re.compile(r"(?P<text>'[^']*')|\b(?:[^\W\d]\w*\.)+(?=\w)")
"""A quoted text, to be left as it is, or the dotted modules before a name."""


# Plugins, their choices and their hooks, as plain data.


def loaded_rows(plugins: PluginSet, role: str | None) -> list[ListedRow]:
    """The rows of `slime plugins list` with what each plugin offers, for one role or for all."""
    catalog, seen = _quiet_catalog(plugins), set[str]()
    roles = list(SPECS) if role is None else [role.replace("-", "_")]
    rows: list[ListedRow] = []
    for order, status in enumerate(catalog.statuses, 1):
        row = listed_row(status, order)
        row["choices"], row["hooks"], row["api"] = [], [], _of_module(status, "SLIME_API")
        if status.state is PluginState.LOADED and status.plugin not in seen:  # its entry points share its choices
            seen.add(status.plugin)
            row["choices"] = [
                {"role": spec.role, "choice": each.qualified, "summary": spec.summary, "origin": each.origin}
                for each in _choices_of(catalog, status.plugin, roles)
                for spec in [each.spec]
            ]
            row["hooks"] = [
                {"hook": hook, "origin": source_location(each.function)}
                for hook in HOOKS
                for each in catalog.listeners(hook)
                if each.plugin == status.plugin
            ]
        rows.append(row)
    return rows


def _describe_plugin(catalog: Catalog, status: PluginStatus) -> dict[str, Json]:
    row = cast("dict[str, Json]", listed_row(status, catalog.statuses.index(status) + 1))
    del row["choices"], row["hooks"]
    metadata = importlib.metadata.metadata(status.dist) if status.dist else None
    return {
        **row,
        "file": _of_module(status, "__file__"),
        "api": _of_module(status, "SLIME_API"),
        "summary": str(metadata.json.get("summary", "")) if metadata else "",
        "requires": [*(importlib.metadata.requires(status.dist) or [])] if metadata else [],
    }


def _of_module(status: PluginStatus, name: str) -> str:
    return str(getattr(sys.modules.get(status.origin.partition(":")[0]), name, "") or "")


def _choices_of(catalog: Catalog, plugin: str, roles: Iterable[str] = SPECS) -> list[RegisteredChoice]:
    return [each for role in roles for each in catalog.choices(role).values() if each.plugin == plugin]


def _describe_choice(registered: RegisteredChoice) -> dict[str, Json]:
    spec = registered.spec
    settings = [*_settings(registered, spec.model)]
    if spec.installed is not None:
        settings += _settings(registered, spec.installed.model({}), f"{spec.installed.key}.")
    return {
        "role": spec.role,
        "choice": registered.qualified,
        "plugin": registered.plugin,
        "version": registered.version,
        "origin": registered.origin,
        "summary": spec.summary,
        "isolation": describe_isolation(spec) if isinstance(spec, CallSpec) else None,
        "stability": spec.stability.value,
        "added": spec.added,
        "settings": [*settings],
    }


def _settings(registered: RegisteredChoice, model: type[Settings], before: str = "") -> Iterator[dict[str, Json]]:
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


def _describe_hooks(catalog: Catalog, plugin: str) -> Iterator[dict[str, Json]]:
    hooks: list[tuple[type[Event | RankEvent], str]] = [*HOOK_OF_EVENT.items(), *HOOK_OF_RANK_EVENT.items()]
    for event, hook in hooks:
        listeners = catalog.listeners(hook)
        for position, listener in enumerate(listeners, 1):
            if listener.plugin == plugin:
                yield {
                    "hook": hook,
                    "origin": source_location(listener.function),
                    "position": position,
                    "order": [each.plugin for each in listeners],
                    "stability": event.stability.value,
                    "added": event.added,
                }


# What a NAME on the command line means: a plugin, a module of the project, or choices of plugins.


def _quiet_catalog(plugins: PluginSet) -> Catalog:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the commands show the status of broken plugins
        return Catalog.discover(plugins, strict=False)


def _find_plugin(catalog: Catalog, name: str) -> PluginStatus | None:
    plain = name.lower().replace("_", "-")
    of_dist = [each for each in catalog.statuses if each.plugin in (name, plain)]
    others = [each for each in catalog.statuses if name in (each.name, each.origin)]
    return next(iter((*of_dist, *others)), None)


def _find_choices(catalog: Catalog, name: str) -> list[RegisteredChoice]:
    # `math`, `reward/math`, `slime-reward-math/math`, `reward/./my.py:fn`
    before, slash, rest = name.partition("/")
    role = before.replace("-", "_")
    if slash and role in SPECS:
        return [catalog.find(role, rest)]
    if is_project_code(name):
        raise UnknownName(f"{name!r} may fill several roles: write ROLE/{name}, as in reward/{name}")
    choices = [each for role in SPECS for each in catalog.choices(role).values()]
    if found := [each for each in choices if name in (each.qualified, each.spec.name)]:
        return found
    spellings = {name for each in catalog.statuses for name in (each.plugin, each.name)}
    for each in choices:
        spellings |= {each.spec.name, each.qualified, f"{each.spec.role}/{each.spec.name}"}
    plugins = ", ".join(dict.fromkeys(each.plugin for each in catalog.statuses))
    failed = [f" Not loaded, and might have offered it: {each}." for each in catalog.statuses if each.failed]
    raise UnknownName(
        f"no plugin and no choice {name!r}.{did_you_mean(name, spellings)} Plugins: {plugins}. "
        f"`slime plugins list --load` shows their choices.{''.join(failed)}"
    )


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
    plugins = plugin_set(ctx)
    if name.endswith(".py") and Path(name).is_file() and name not in plugins.modules:
        plugins = dataclasses.replace(plugins, modules=(*plugins.modules, name))
    catalog = _quiet_catalog(plugins)
    status = _find_plugin(catalog, name)
    plugin = _describe_plugin(catalog, status) if status else None
    found = _choices_of(catalog, status.plugin) if status else _find_choices(catalog, name)
    choices = [_describe_choice(each) for each in found]
    hooks = list(_describe_hooks(catalog, status.plugin)) if status else []
    if as_json:
        value = {"schema_version": 1, "plugin": plugin, "choices": choices, "hooks": hooks}
        click.echo(json.dumps(value, indent=2))
        return
    blocks = [[*_plugin_lines(plugin)]] if plugin else []
    blocks += [[*_choice_lines(each)] for each in choices] + [[*_hook_lines(each)] for each in hooks]
    click.echo("\n\n".join("\n".join(filter(None, lines)) for lines in blocks))


def _plugin_lines(row: Mapping[str, Json]) -> Iterator[str]:
    yield _title(f"{row['plugin']} {row['version']}".rstrip(), row["summary"])
    yield _line("state", click.style(str(row["state"]), fg="green" if row["state"] == "loaded" else "red"))
    yield _line("", row["detail"])
    yield _line("order", row["order"])
    yield _line("plugin API", row["api"])
    yield _line("module", f"{row['origin']}  {row['file']}".rstrip())
    yield _line("requires", ", ".join(cast("list[str]", row["requires"])))


def _choice_lines(row: Mapping[str, Json]) -> Iterator[str]:
    yield _title(f"{row['role']} {str(row['choice']).rpartition('/')[2]}", row["summary"])
    yield _line("choice", f"{row['choice']} {row['version']}".rstrip())
    yield _line("defined", row["origin"])
    yield _line("calls run", row["isolation"])
    yield _line("role", f"{row['stability']}, since {row['added']}")
    for setting in cast("list[dict[str, Json]]", row["settings"]):
        default = "required" if setting["required"] else f"= {json.dumps(setting['default'])}"
        yield _line("setting", f"{click.style(str(setting['key']), bold=True)}: {setting['type']} {default}")
        yield _line("", setting["description"])


def _hook_lines(row: Mapping[str, Json]) -> Iterator[str]:
    order = cast("list[str]", row["order"])
    yield _title(f"hook {row['hook']}", "")
    yield _line("defined", row["origin"])
    yield _line("called", f"{row['position']} of {len(order)}: {', '.join(order)}")
    yield _line("hook", f"{row['stability']}, since {row['added']}")


def _title(name: str, text: Json) -> str:
    return click.style(name, fg="cyan", bold=True) + (f"  {text}" if text else "")


def _line(what: str, text: Json) -> str:
    return f"  {click.style(f'{what:10}', dim=True)}  {text}" if text else ""
