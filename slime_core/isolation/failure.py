"""Failure: why an isolated call has no verdict, and the verdict that says so.

reasons: "timeout" (retryable), "memory", "died", "output", "processes", "contract", or the exception's type
"""

from slime_core.errors import PluginError
from slime_core.score import Unscored

LONGEST_REASON = 60
"""Characters; a reason becomes the name of a metric."""


class StartError(PluginError):
    """A worker process could not build its plugin; ends the run, for no other worker will do better."""


class CallFailure(Exception):
    """A call that has no verdict."""

    def __init__(self, reason: str, detail: str, *, retryable: bool = False) -> None:
        super().__init__(reason, detail)
        self.reason = reason if reason.isidentifier() and len(reason) <= LONGEST_REASON else "error"
        self.detail = detail
        self.retryable = retryable

    def verdict(self) -> Unscored:
        """What the run is told."""
        return Unscored(self.reason, self.retryable, self.detail)
