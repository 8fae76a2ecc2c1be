"""Used: a choice that was built for this run, with the names that error texts and metrics call it by.

Example:

    Used("nonzero_std", "slime-core", NonzeroStd())
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

PartT = TypeVar("PartT", covariant=True)


@dataclass(frozen=True, slots=True)
class Used(Generic[PartT]):
    """What the factory of a choice made, and how errors and metrics call it."""

    name: str
    """As the run selected it."""
    plugin: str
    """Who registered it."""
    part: PartT
    """What its factory made."""
