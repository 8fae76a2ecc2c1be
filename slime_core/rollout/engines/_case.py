"""Case: a request that an engine failed, until it is clear whose fault that was.

What another engine answers was the engine's fault, and what several fail one after another the request's: a prompt that
kills engines costs its own sample, not the run. An engine that dies or hangs may do so for reasons of its own, so a
request is found guilty of it only where nothing else explains it: asked alone, while all other engines serve.
"""

from collections.abc import Set

from slime_core.errors import ContractError, RequestError, SlimeError, said_by
from slime_core.rollout.engines._member import DEADLY, Member

SUSPECT_LOST = 2
"""Engines that may die or hang over a request before it is asked alone."""
MOST_UNEXPLAINED = 2
"""Engines that it may lose then, in a row, while all others serve: one may be chance where engines come and go."""
MOST_LOST = 32
"""And altogether, whatever explains it."""
MOST_FAILED = 3
"""Engines that may raise or return garbage for a request."""


class Case:
    """What engines did to one request."""

    def __init__(self) -> None:
        """No engine has failed it yet."""
        self.failed: list[tuple[Member, Exception]] = []
        """Who raised or returned garbage, and goes on."""
        self._lost: list[str] = []
        self._victims: set[Member] = set()
        self._deaths = self._unexplained = 0

    @property
    def members(self) -> list[Member]:
        """Who is not asked again."""
        return [member for member, _ in self.failed]

    @property
    def is_suspect(self) -> bool:
        """Whether an engine died or hung over it."""
        return bool(self._lost)

    @property
    def is_to_be_tried(self) -> bool:
        """Whether it is asked alone from now on."""
        return len(self._lost) >= SUSPECT_LOST

    def lose(self, member: Member, deaths: int, *, out: Set[Member], alone: bool) -> None:
        """An engine was quarantined while it was at the request.

        Args:
            member: which one.
            deaths: engines that died or hung in all, with this one.
            out: those that do not serve now.
            alone: whether it was at nothing else.

        Raises:
            RequestError: nothing explains it, or this happened too often.
        """
        verdict = member.quarantine
        assert verdict is not None, "it was quarantined"
        if verdict.cause not in DEADLY:
            return
        self._lost.append(f"engine {member.number} {verdict.cause.value}: {verdict.detail}")
        self._victims.add(member)
        is_alone_with_it = alone and deaths == self._deaths + 1 and out <= self._victims
        self._unexplained = self._unexplained + 1 if is_alone_with_it else 0
        self._deaths = deaths
        if self._unexplained == MOST_UNEXPLAINED or len(self._lost) == MOST_LOST:
            listed = "\n  ".join(self._lost)
            raise RequestError(
                f"{len(self._lost)} engines died or hung over one request, {self._unexplained} of them while they were "
                f"asked nothing else and all others served; it is given up:\n  {listed}"
            )

    def fail(self, member: Member, error: Exception) -> None:
        """An engine raised, or its answer breaks the contract.

        Raises:
            Exception: the error, when several engines failed.
        """
        member.doubts += 1
        self.failed.append((member, error))
        if len(self.failed) == MOST_FAILED:
            raise error

    def close(self) -> None:
        """No engine is in doubt any more for this request."""
        for member, _ in self.failed:
            member.doubts -= 1
        self.failed = []


def is_garbage(error: Exception) -> bool:
    """Whether an engine gave something that is not an answer; an engine that says that it cannot answer did not."""
    return isinstance(error, ContractError)


def told(error: Exception) -> str:
    """What an engine's error says; one of ours speaks for itself."""
    return said_by(error) if isinstance(error, SlimeError) else f"{type(error).__name__}: {said_by(error)}"
