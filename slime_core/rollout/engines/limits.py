"""Limits: how long engines may take. What depends on the engine is what its spec says."""

from dataclasses import dataclass
from typing import Self

from slime_core.roles import EngineSpec

LEAST_START_S = 600.0
"""Seconds that any engine has to start: a slow one is in nobody's way while others serve."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many seconds engines may take; a field each."""

    silence_s: float
    """Without any sign of life of an engine that has work, or is to abort it."""
    restart_s: float
    """Without any engine that serves, until the run ends."""
    probe_s: float
    """For the first answer of an engine that was restarted."""
    load_s: float
    """For loading weights, once what was under way has ended."""

    @classmethod
    def of(cls, spec: EngineSpec, silence_s: float) -> Self:
        """Those of a kind of engine."""
        return cls(silence_s, spec.restart_s, spec.probe_s, spec.load_s)

    @property
    def start_s(self) -> float:
        """For starting an engine."""
        return max(LEAST_START_S, self.restart_s)
