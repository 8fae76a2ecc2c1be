"""Check: one thing that `slime doctor` looks at, and perhaps mends.

Example:

    def disk_room():
        free = shutil.disk_usage(".").free
        return Finding(Health.OK if free > 2**30 else Health.WARNING, f"{free / 2**30:.1f} GiB free")

    CheckSpec.from_function("disk_room", disk_room, summary="Room for a run's checkpoints")
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Settings, Setup, Spec, Stability


class Health(enum.Enum):
    """How a check went."""

    OK = "ok"
    """Nothing to do."""
    WARNING = "warning"
    """It works, but not as well as it could."""
    ERROR = "error"
    """It does not work; `slime doctor` exits with 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    health: Health
    """How it went."""
    text: str
    """One line: what was looked at and what was found."""
    advice: str = ""
    """What to type."""
    fix: Callable[[], str] | None = None
    """Mends it and says what it did; called only after the user agreed (`slime doctor --fix`)."""


@runtime_checkable
class Check(Protocol):
    """A quick, harmless look; raising counts as an error of the check."""

    def __call__(self) -> Finding:
        """Look, and say what was found."""
        ...


@dataclass(frozen=True)
class CheckSpec(Spec[Check]):
    """Offers a check; `slime doctor` runs all that are installed."""

    role: ClassVar[str] = "check"
    many: ClassVar[bool] = True
    selectable: ClassVar[bool] = False
    stability: ClassVar[Stability] = Stability.PROVISIONAL

    @classmethod
    def from_function(cls, name: str, function: Check, summary: str = "") -> "CheckSpec":
        """A spec for a plain function without settings."""

        def factory(settings: Settings, setup: Setup) -> Check:
            return function

        # The origin that is printed is the function's, not this factory's.
        return cls(name, update_wrapper(factory, function, updated=()), summary=summary)
