"""PluginStats: durations and failures of each plugin's calls, as metrics of each rollout.

Example:

    calls = stats.calls("reward", "math", "slime-reward-math")
    began = perf_counter()
    ...
    calls.seconds.append(perf_counter() - began)
    stats.take()        # {"plugin/reward/math/p50": 0.002, ".../p99": 0.031, ".../errors": 0.0, ".../timeouts": 0.0}
"""

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType, FrameType, FunctionType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_MEASURING: set[CodeType] = set()


def measures(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a core function that calls a plugin and holds its `CallStats` in a local variable `calls`.

    The watchdog uses the mark to find the plugin that a thread is running. It works from another thread, which cannot
    read the context variables of the loop's tasks. The mark adds no cost per call.
    """
    assert isinstance(function, FunctionType), "a plain function has code to be found by"
    _MEASURING.add(function.__code__)
    return function


def call_in(frame: FrameType) -> "CallStats | None":
    """The `CallStats` of a frame whose function is marked by `measures`; else None."""
    if frame.f_code not in _MEASURING:
        return None
    calls: CallStats | None = frame.f_locals.get("calls")  # unbound in its first instructions
    return calls


@dataclass(slots=True)
class CallStats:
    """The calls of one choice since the last `take`."""

    role: str
    """Its role; "run_hook" for a plugin's run hooks."""
    name: str
    """Its name in the run; the plugin's name if it has none."""
    plugin: str
    """The plugin that offers it."""
    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds that each call took."""
    errors: int = 0
    """Failed calls, without timeouts."""
    timeouts: int = 0
    """Calls that timed out."""
    blocked: float = 0.0
    """Seconds for which it blocked the event loop; counted while the watchdog is on."""

    def measured(self, function: Callable[P, T]) -> Callable[P, T]:
        """Wrap a plain function to count its calls here."""

        @measures
        def measured_call(*args: P.args, **kwargs: P.kwargs) -> T:
            calls = self
            began = perf_counter()
            try:
                return function(*args, **kwargs)
            except Exception:
                calls.errors += 1
                raise
            finally:
                calls.seconds.append(perf_counter() - began)

        return measured_call

    def take(self) -> Iterator[tuple[str, float]]:
        """Return name and value of each metric, and reset the counters."""
        if self.seconds:
            ordered = sorted(self.seconds)
            yield "p50", percentile(ordered, 0.50)
            yield "p99", percentile(ordered, 0.99)
            yield "errors", float(self.errors)
            yield "timeouts", float(self.timeouts)
        if self.blocked:
            yield "blocked", self.blocked
        self.seconds, self.errors, self.timeouts, self.blocked = array("d"), 0, 0, 0.0


class PluginStats:
    """The calls of all plugins of a run."""

    def __init__(self) -> None:
        """Start without any calls."""
        self._calls: dict[tuple[str, str], CallStats] = {}

    def calls(self, role: str, name: str, plugin: str) -> CallStats:
        """The counters of one choice; the same object for the same role and name."""
        return self._calls.setdefault((role, name), CallStats(role, name, plugin))

    def take(self) -> dict[str, float]:
        """Return `plugin/<role>/<name>/{p50,p99,errors,timeouts,blocked}` of called choices, and reset the counters."""
        every = sorted(self._calls.items())
        return {f"plugin/{role}/{name}/{key}": value for (role, name), calls in every for key, value in calls.take()}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of at least one sorted number that `share` of them do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
