"""Hookspecs: every role and every event has its hook; every event is documented."""

import inspect
import typing
from dataclasses import fields, is_dataclass

from slime_core.hookspecs import (
    HOOK_OF_EVENT,
    HOOK_OF_RANK_EVENT,
    NAMES_HOOK,
    PROVIDER_OF_ROLE,
    ProviderHookSpecs,
    RankHookSpecs,
    RunHookSpecs,
)
from slime_core.roles import SPECS, ForeignName
from tests.tables import table

EVENTS = {**HOOK_OF_EVENT, **HOOK_OF_RANK_EVENT}


def test_every_role_has_a_provider_hook_that_yields_its_spec() -> None:
    wanted = {PROVIDER_OF_ROLE[role]: spec for role, spec in SPECS.items()} | {NAMES_HOOK: ForeignName}
    hooks = dict(inspect.getmembers(ProviderHookSpecs, inspect.isfunction))
    yields = {name: typing.get_args(typing.get_type_hints(hook)["return"])[0] for name, hook in hooks.items()}
    assert yields == wanted


@table("specs, hooks", [(RunHookSpecs, HOOK_OF_EVENT), (RankHookSpecs, HOOK_OF_RANK_EVENT)])
def test_every_event_has_a_hook_that_takes_it(specs: type, hooks: dict[type, str]) -> None:
    functions = dict(inspect.getmembers(specs, inspect.isfunction))
    assert {name: typing.get_type_hints(hook)["event"] for name, hook in functions.items()} == {
        name: event for event, name in hooks.items()
    }


@table("event", EVENTS)
def test_events_are_frozen_and_every_field_is_documented(event: type) -> None:
    assert is_dataclass(event)
    assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
    source = inspect.getsource(event)
    inherited = len(fields(event.__base__))  # type: ignore[arg-type]  # Event or RankEvent
    assert source.count('"""') == 2 * (len(fields(event)) - inherited + 1)
