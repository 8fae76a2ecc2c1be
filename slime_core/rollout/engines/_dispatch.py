"""Dispatch: which of the engines that serve takes a request: that of its session or group, else the least busy one.

Ties go to the lowest number. Of more than `CANDIDATES` engines, so many are looked at in turn: a choice costs the same
with a hundred and with a thousand.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from operator import attrgetter

from slime_core.roles import GenerateRequest
from slime_core.rollout.engines._member import Member
from slime_core.sample import GroupId

AHEAD = 8
"""Requests of this size that an engine may have more than the idlest, for a group to stay together."""
CANDIDATES = 16
"""Engines looked at for one request, in turn: the least loaded of so many is within a request of the least of all."""
MOST_HOMES = 8192
"""Groups and sessions whose engine is remembered."""

_least = attrgetter("doubts", "work", "number")
_least_suspect = attrgetter("doubts", "suspects", "work", "number")


class Dispatch:
    """The engines that serve, in order of their numbers."""

    def __init__(self) -> None:
        """None serves yet."""
        self.members: list[Member] = []
        """All of them, a reserved one included."""
        self._open: list[Member] = []
        self._homes: dict[GroupId | str, Member] = {}
        self._turn = 0

    def add(self, member: Member) -> None:
        """The engine serves from now on."""
        for listed in (self.members, self._open):
            listed.append(member)
            listed.sort(key=attrgetter("number"))

    def remove(self, member: Member) -> None:
        """The engine serves no more."""
        self.members.remove(member)
        self._close(member)

    def _close(self, member: Member) -> None:
        if member in self._open:
            self._open.remove(member)
        self._homes = {key: home for key, home in self._homes.items() if home is not member}

    @contextmanager
    def reserved(self, member: Member) -> Iterator[None]:
        """Keep an engine from being chosen for anything else, for the time of a `with`."""
        self._close(member)
        try:
            yield
        finally:
            if member in self.members:
                self._open.append(member)
                self._open.sort(key=attrgetter("number"))

    def choose(self, request: GenerateRequest) -> Member | None:
        """Who takes a request; None if nobody serves.

        Requests of one group share a prompt, and each turn of a sample begins with the one before, so they stay with
        one engine, which computes that once, for as long as it is not too far behind the others. A session begins where
        its group is, and goes on where it is itself.
        """
        members = self._open
        if len(members) < 2:
            return members[0] if members else None
        least = min(members if len(members) <= CANDIDATES else self._candidates(), key=_least)
        group, session = request.group, request.session
        home = None if session is None else self._homes.get(session)
        if home is None and group is not None:
            home = self._homes.get(group)
        if home is None or home.doubts or self._is_behind(home, least, request):
            home = least
            if group is not None:
                self._keep(group, home)
        if session is not None:
            self._keep(session, home)
        return home

    def choose_again(self, avoid: Collection[Member], *, suspect: bool) -> Member | None:
        """Who takes a request that others failed; None if nobody else serves. Suspects are kept apart."""
        others = [member for member in self._open if member not in avoid]
        return min(others, key=_least_suspect if suspect else _least, default=None)

    def _keep(self, key: GroupId | str, home: Member) -> None:
        self._homes[key] = home
        if len(self._homes) > MOST_HOMES:
            del self._homes[next(iter(self._homes))]

    def _candidates(self) -> list[Member]:
        start, self._turn = self._turn, (self._turn + CANDIDATES) % len(self._open)
        found = self._open[start : start + CANDIDATES]
        return found + self._open[: CANDIDATES - len(found)]

    def _is_behind(self, home: Member, least: Member, request: GenerateRequest) -> bool:
        one = len(request.prompt) + request.sampling.max_new_tokens
        return home.work - least.work > AHEAD * one
