"""Check: one thing that `slime doctor` looks at, and perhaps mends.

Example:

    class DiskRoom:
        def __call__(self):
            free = shutil.disk_usage(".").free
            return Finding(Health.OK if free > 2**30 else Health.WARNING, f"{free / 2**30:.1f} GiB free")
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Spec, Stability


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
