"""Hookspecs: every role and every event has its hook, documented, typed and dated."""

import inspect
import typing
from dataclasses import fields, is_dataclass

from slime_core import events, hookspecs
from slime_core.roles import SPECS, Stability
from tests.tables import table

PROVIDERS = dict(inspect.getmembers(hookspecs.ProviderHookSpecs, inspect.isfunction))
WATCHERS = dict(inspect.getmembers(hookspecs.RunHookSpecs, inspect.isfunction))
RANK_WATCHERS = dict(inspect.getmembers(hookspecs.RankHookSpecs, inspect.isfunction))
HOOKS = PROVIDERS | WATCHERS | RANK_WATCHERS
EVENTS = hookspecs.HOOK_OF_EVENT | hookspecs.HOOK_OF_RANK_EVENT


def test_every_role_has_a_provider_hook_that_yields_its_spec() -> None:
    assert hookspecs.PROVIDER_OF_ROLE.keys() == SPECS.keys()
    assert {*hookspecs.PROVIDER_OF_ROLE.values(), hookspecs.NAMES_HOOK} == PROVIDERS.keys()
    for role, hook in hookspecs.PROVIDER_OF_ROLE.items():
        (spec,) = typing.get_args(typing.get_type_hints(PROVIDERS[hook])["return"])
        assert spec is SPECS[role]


def test_every_event_has_a_hook_that_takes_it() -> None:
    assert set(hookspecs.HOOK_OF_EVENT) == set(typing.get_args(events.Event))
    assert set(hookspecs.HOOK_OF_RANK_EVENT) == set(typing.get_args(events.RankEvent))
    assert set(EVENTS.values()) == WATCHERS.keys() | RANK_WATCHERS.keys()
    for event, hook in EVENTS.items():
        assert typing.get_type_hints(HOOKS[hook])["event"] is event


@table("event", EVENTS)
def test_events_are_frozen_and_every_field_is_documented(event: type) -> None:
    assert is_dataclass(event)
    assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
    source = inspect.getsource(event)
    assert source.count('"""') == 2 * (len(fields(event)) + 1)


@table("name", HOOKS)
def test_every_hook_is_documented_and_dated(name: str) -> None:
    hook = HOOKS[name]
    assert hook.__doc__
    assert hook.added.count(".") == 1
    assert isinstance(hook.stability, Stability)
    assert hook.slime_spec, "pluggy knows it"
