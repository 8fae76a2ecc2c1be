"""Hookspecs: every role and every event has its hook, documented and typed."""

import inspect
import typing
from dataclasses import fields, is_dataclass

import pytest

from slime_core import hookspecs
from slime_core.roles import SPECS

PROVIDERS = dict(inspect.getmembers(hookspecs.ProviderHooks, inspect.isfunction))
WATCHERS = dict(inspect.getmembers(hookspecs.RunHooks, inspect.isfunction))


def test_every_role_has_a_provider_hook_that_yields_its_spec() -> None:
    assert hookspecs.PROVIDER_OF_ROLE.keys() == SPECS.keys()
    assert set(hookspecs.PROVIDER_OF_ROLE.values()) == PROVIDERS.keys()
    for role, hook in hookspecs.PROVIDER_OF_ROLE.items():
        (spec,) = typing.get_args(typing.get_type_hints(PROVIDERS[hook])["return"])
        assert spec is SPECS[role]


def test_every_event_has_a_run_hook_that_takes_it() -> None:
    assert set(hookspecs.HOOK_OF_EVENT) == set(typing.get_args(hookspecs.Event))
    assert set(hookspecs.HOOK_OF_EVENT.values()) == WATCHERS.keys()
    for event, hook in hookspecs.HOOK_OF_EVENT.items():
        assert typing.get_type_hints(WATCHERS[hook])["event"] is event


@pytest.mark.parametrize("event", hookspecs.HOOK_OF_EVENT, ids=lambda event: event.__name__)
def test_events_are_frozen_and_every_field_is_documented(event: type) -> None:
    assert is_dataclass(event)
    assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
    source = inspect.getsource(event)
    assert source.count('"""') == 2 * (len(fields(event)) + 1)


@pytest.mark.parametrize("name", [*PROVIDERS, *WATCHERS])
def test_every_hook_is_documented(name: str) -> None:
    assert (PROVIDERS | WATCHERS)[name].__doc__
