"""The hooks of plugins. Mark your functions with `@hookimpl`.

Each role has a provider hook, such as `slime_rewards` for `reward`: a plain function, called once per process, that
yields specs. Each event has a hook, such as `slime_run_start` for `RunStart`. Use a role to change data, and an
event's hook to observe.

A run hook may be `async def`; its return value is ignored. It is cancelled after 30 s, and disabled after three such
timeouts. Only `StopRun` ends the run; other exceptions are counted and logged once. A rank hook is a plain function;
an error in one ends the run on all ranks.

Example:

    SLIME_API = "1"

    @hookimpl
    def slime_rewards():
        yield RewardSpec("exact", ExactMatch, summary="1.0 when the stripped response equals the label")
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import pluggy

from slime_core import events
from slime_core.events import Event, RankEvent
from slime_core.roles import SPECS

__all__ = [
    "API_VERSION",
    "HOOK_OF_EVENT",
    "HOOK_OF_RANK_EVENT",
    "NAMES_HOOK",
    "PROJECT",
    "PROVIDER_OF_ROLE",
    "hookimpl",
]

PROJECT = "slime"
API_VERSION = "1"
"""The value that a plugin declares as `SLIME_API`."""

hookimpl = pluggy.HookimplMarker(PROJECT)
EventT = TypeVar("EventT")


def _hooks_of(base: type[EventT]) -> dict[type[EventT], str]:
    """Map each event class to its hook: `RunStart` to `slime_run_start`."""
    own = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, base)]
    return {each: "slime" + re.sub("([A-Z])", r"_\1", each.__name__).lower() for each in own if each is not base}


HOOK_OF_EVENT: Mapping[type[Event], str] = _hooks_of(Event)
"""Run hook of each event class."""
HOOK_OF_RANK_EVENT: Mapping[type[RankEvent], str] = _hooks_of(RankEvent)
"""Rank hook of each event class."""
PROVIDER_OF_ROLE = {role: f"slime_{role}{'es' if role.endswith('s') else 's'}" for role in SPECS}
"""Provider hook of each role."""
NAMES_HOOK = "slime_foreign_names"
"""The provider hook without a role: it yields other frameworks' names as `ForeignName`."""
DEPRECATED: dict[str, str] = {}
"""Warning for each hook that will be removed: since when, until when, and what to write instead."""
