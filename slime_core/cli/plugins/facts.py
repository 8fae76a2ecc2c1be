"""What `slime plugins show` knows, as plain data: a plugin, its choices with settings, its hooks in call order."""

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, TypedDict, Union, get_args, get_origin

from pydantic_core import to_jsonable_python

from slime_core.catalog import Catalog, PluginStatus, Registered, place_of
from slime_core.errors import PluginError
from slime_core.hookspecs import HOOK_OF_EVENT, HOOK_OF_RANK_EVENT, RankHookSpecs, RunHookSpecs
from slime_core.roles import SPECS, CallSpec, Settings, describe_isolation
from slime_core.sample import Json

_MODULE = re.compile(r"(?P<text>'[^']*')|\b(?:[^\W\d]\w*\.)+(?=\w)")
"""A quoted text, to be left as it is, or the dotted modules before a name."""


class SettingRow(TypedDict):
    """One setting of a choice."""

    key: str
    type: str
    required: bool
    default: Json
    description: str


class RegisteredRow(TypedDict):
    """One choice."""

    role: str
    choice: str
    plugin: str
    version: str
    origin: str
    summary: str
    isolation: str | None
    stability: str
    added: str
    settings: list[SettingRow]


class HookRow(TypedDict):
    """One hook that a plugin implements, and who is called before and after."""

    hook: str
    origin: str
    position: int
    order: list[str]
    stability: str
    added: str


class PluginRow(TypedDict):
    """One plugin."""

    plugin: str
    version: str
    order: int
    entry_point: str
    origin: str
    file: str
    state: str
    phase: str
    detail: str
    api: str
    summary: str
    requires: list[str]


def describe_plugin(catalog: Catalog, status: PluginStatus) -> PluginRow:
    """A plugin: what its metadata and its module say, and what became of it."""
    module = sys.modules.get(status.origin.partition(":")[0])
    metadata = _metadata(status.dist)
    numbers = {each: number for number, each in enumerate(catalog.statuses, 1)}
    return PluginRow(
        plugin=status.plugin,
        version=status.version,
        order=0 if status.state.value == "excluded" else numbers[status],
        entry_point=status.name,
        origin=status.origin,
        file=str(getattr(module, "__file__", "") or ""),
        state=status.state.value,
        phase=status.phase.value,
        detail=status.detail,
        api=str(getattr(module, "SLIME_API", "")),
        summary=str(metadata.json.get("summary", "")) if metadata else "",
        requires=list(importlib.metadata.requires(status.dist) or []) if metadata else [],
    )


def _metadata(dist: str) -> importlib.metadata.PackageMetadata | None:
    try:
        return importlib.metadata.metadata(dist) if dist else None
    except importlib.metadata.PackageNotFoundError:
        return None


def choices_of(catalog: Catalog, plugin: str) -> list[Registered]:
    """All that a plugin offers, by role."""
    return [each for role in SPECS for each in catalog.choices(role).values() if each.plugin == plugin]


def describe_choice(registered: Registered) -> RegisteredRow:
    """A choice with its settings."""
    spec = registered.spec
    return RegisteredRow(
        role=spec.role,
        choice=registered.qualified,
        plugin=registered.plugin,
        version=registered.version,
        origin=registered.origin,
        summary=spec.summary,
        isolation=describe_isolation(spec) if isinstance(spec, CallSpec) else None,
        stability=spec.stability.value,
        added=spec.added,
        settings=list(_settings(registered)),
    )


def _settings(registered: Registered) -> Iterator[SettingRow]:
    installed = registered.spec.installed
    yield from _rows(registered, registered.spec.model)
    if installed is not None:
        yield from _rows(registered, installed.model({}), f"{installed.key}.")
    for table in registered.spec.prefixed:
        yield from _rows(registered, table.model({}), f"{table.key}.")


def _rows(registered: Registered, model: type[Settings], before: str = "") -> Iterator[SettingRow]:
    for key, info in model.model_fields.items():
        try:
            default = None if info.is_required() else info.get_default(call_default_factory=True)
        except Exception as error:  # a factory is a plugin's code
            raise PluginError(f"{registered.qualified}: the default of setting {key!r} raised {error!r}") from error
        yield SettingRow(
            key=before + key,
            type=type_name(info.annotation),
            required=info.is_required(),
            default=to_jsonable_python(default, fallback=str),
            description=info.description or "",
        )


def type_name(annotation: object) -> str:
    """A type as its author wrote it, without modules and bounds."""
    if get_origin(annotation) is Annotated:
        return type_name(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(type_name, get_args(annotation)))
    if isinstance(annotation, type) and not get_args(annotation):
        return "None" if annotation is type(None) else annotation.__name__
    return _MODULE.sub(lambda found: found["text"] or "", str(annotation)).replace("NoneType", "None")


def describe_hooks(catalog: Catalog, plugin: str) -> Iterator[HookRow]:
    """The run hooks and rank hooks of a plugin, with the order in which everybody is called."""
    for hook in (*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values()):
        listeners = catalog.listeners(hook)
        specified = getattr(RunHookSpecs if hook in HOOK_OF_EVENT.values() else RankHookSpecs, hook)
        for position, listener in enumerate(listeners, 1):
            if listener.plugin == plugin:
                yield HookRow(
                    hook=hook,
                    origin=place_of(listener.function),
                    position=position,
                    order=[each.plugin for each in listeners],
                    stability=specified.stability.value,
                    added=specified.added,
                )
