"""Hookspecs: every role and every event has its hook; every event is documented."""

import inspect
from dataclasses import fields, is_dataclass

from slime_core.catalog.loading import ARGUMENTS
from slime_core.events import Event
from slime_core.hookspecs import HOOK_OF_EVENT, HOOK_OF_RANK_EVENT, NAMES_HOOK, PROVIDER_OF_ROLE
from slime_core.roles import SPECS
from tests.tables import table

EVENTS = {**HOOK_OF_EVENT, **HOOK_OF_RANK_EVENT}


def test_every_role_and_event_has_a_hook() -> None:
    assert PROVIDER_OF_ROLE.keys() == SPECS.keys()
    assert {event.__name__ for event in HOOK_OF_EVENT} == {each.__name__ for each in Event.__subclasses__()}
    assert {
        **dict.fromkeys((*PROVIDER_OF_ROLE.values(), NAMES_HOOK), ()),
        **dict.fromkeys(EVENTS.values(), ("event",)),
    } == ARGUMENTS


@table("event", EVENTS)
def test_events_are_frozen_and_every_field_is_documented(event: type) -> None:
    assert is_dataclass(event)
    assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
    source = inspect.getsource(event)
    inherited = len(fields(event.__base__))  # type: ignore[arg-type]  # Event or RankEvent
    assert source.count('"""') == 2 * (len(fields(event)) - inherited + 1)
