"""The answer of a dynamic sampling filter, as slime has it."""

from dataclasses import dataclass


@dataclass
class DynamicFilterOutput:
    """Whether a group is kept."""

    keep: bool
    """Train on it."""
    reason: str | None = None
    """Why not."""
    keep_when_insufficient: bool = False
    """Train on it after all when the rollout comes up short."""
