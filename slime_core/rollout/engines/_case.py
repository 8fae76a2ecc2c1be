"""Case: a request that an engine failed, until it is clear whose fault that was.

What another engine answers was the engine's fault, and what several fail one after another the request's: a prompt that
kills engines costs its own sample, not the run.
"""

from slime_core.errors import ContractError, RequestError, SlimeError, said_by
from slime_core.rollout.engines._member import DEADLY, Member

MOST_LOST = 3
"""Engines that may die or hang over a request."""
MOST_FAILED = 3
"""Engines that may raise or return garbage for a request."""


class Case:
    """What engines did to one request."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.failed: list[tuple[Member, Exception]] = []
        """Who raised or returned garbage, and goes on."""
        self._lost: list[str] = []

    @property
    def members(self) -> list[Member]:
        """Who is not asked again."""
        return [member for member, _ in self.failed]

    @property
    def is_suspect(self) -> bool:
        """Whether an engine died or hung over it."""
        return bool(self._lost)

    @property
    def is_near_its_end(self) -> bool:
        """Whether one more engine that dies or hangs over it costs it."""
        return len(self._lost) == MOST_LOST - 1

    def lose(self, member: Member) -> None:
        """An engine was quarantined while it was at the request.

        Raises:
            RequestError: this happened too often.
        """
        verdict = member.quarantine
        assert verdict is not None, "it was quarantined"
        if verdict.cause not in DEADLY:
            return
        self._lost.append(f"engine {member.number} {verdict.cause.value}: {verdict.detail}")
        if len(self._lost) == MOST_LOST:
            listed = "\n  ".join(self._lost)
            raise RequestError(f"{MOST_LOST} engines died or hung over one request, which is given up:\n  {listed}")

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
    """Whether an engine answered with what is no answer; one that says that it cannot may be right the next time."""
    return isinstance(error, ContractError)


def told(error: Exception) -> str:
    """What an engine's error says; one of ours speaks for itself."""
    return said_by(error) if isinstance(error, SlimeError) else f"{type(error).__name__}: {said_by(error)}"
