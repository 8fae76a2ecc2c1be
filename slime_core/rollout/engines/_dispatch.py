"""Dispatch: which of the engines that serve takes a request: its group's, else the one with the least work.

Ties go to the lowest number. Of more than `CANDIDATES` engines, so many are looked at in turn: a choice costs the same
with a hundred and with a thousand.
"""

from collections.abc import Collection
from operator import attrgetter

from slime_core.roles import GenerateRequest
from slime_core.rollout.engines._member import Member
from slime_core.sample import GroupId

AHEAD = 8
"""Requests of this size that an engine may have more than the idlest, for a group to stay together."""
CANDIDATES = 16
"""Engines looked at for one request, in turn: the least loaded of so many is within a request of the least of all."""
MOST_HOMES = 8192
"""Groups whose engine is remembered."""

_least = attrgetter("doubts", "work", "number")
_least_suspect = attrgetter("doubts", "suspects", "work", "number")


class Dispatch:
    """The engines that serve, in order of their numbers."""

    def __init__(self) -> None:
        """None serves yet."""
        self.members: list[Member] = []
        self._homes: dict[GroupId, Member] = {}
        self._turn = 0

    def add(self, member: Member) -> None:
        """It serves from now on."""
        self.members.append(member)
        self.members.sort(key=attrgetter("number"))

    def remove(self, member: Member) -> None:
        """It serves no more."""
        self.members.remove(member)
        self._homes = {group: home for group, home in self._homes.items() if home is not member}

    def choose(self, request: GenerateRequest) -> Member | None:
        """Who takes a request; None if nobody serves.

        Requests of one group share a prompt, and each turn of a sample begins with the one before, so they stay with
        one engine, which computes that once, for as long as it is not too far behind the others.
        """
        members = self.members
        if len(members) < 2:
            return members[0] if members else None
        least = min(members if len(members) <= CANDIDATES else self._candidates(), key=_least)
        group = request.group
        if group is None:
            return least
        home = self._homes.get(group)
        if home is not None and not home.doubts and not self._is_behind(home, least, request):
            return home
        self._homes[group] = least
        if len(self._homes) > MOST_HOMES:
            del self._homes[next(iter(self._homes))]
        return least

    def choose_again(self, avoid: Collection[Member], *, suspect: bool) -> Member | None:
        """Who takes a request that others failed; None if nobody else serves. Suspects are kept apart."""
        others = [member for member in self.members if member not in avoid]
        return min(others, key=_least_suspect if suspect else _least, default=None)

    def _candidates(self) -> list[Member]:
        start, self._turn = self._turn, (self._turn + CANDIDATES) % len(self.members)
        found = self.members[start : start + CANDIDATES]
        return found + self.members[: CANDIDATES - len(found)]

    def _is_behind(self, home: Member, least: Member, request: GenerateRequest) -> bool:
        one = len(request.prompt) + request.sampling.max_new_tokens
        return home.work - least.work > AHEAD * one
