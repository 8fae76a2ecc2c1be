"""LabelCheck: `check_label` of a reward, called where the reward runs, from plain code.

Example:

    with LabelCheck(protection.protect(registered, settings, build, name="math")) as check:
        check(sample)               # None, or why no response to this row can earn full marks
"""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from slime_core.catalog.checks import checked_label
from slime_core.isolation.failure import CallFailure
from slime_core.isolation.lanes import Isolated, Lane
from slime_core.isolation.on_loop import OnLoop
from slime_core.roles import CallSpec, ChecksLabels
from slime_core.sample import Sample


class LabelCheck:
    """The check of one protected reward."""

    def __init__(self, reward: object) -> None:
        """Start nothing; a reward that runs in a process gets its first worker at the first call."""
        self._called = reward.called if isinstance(reward, OnLoop) else reward
        self._lane: Lane | None = reward.lane if isinstance(reward, Isolated) else None
        # The caller's thread may have an event loop that runs, so the lane gets one in another thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="check_label") if self._lane else None
        self._runner = asyncio.Runner()

    def __enter__(self) -> "LabelCheck":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the event loop; the worker stays, for the run."""
        if self._thread is not None:
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()

    def __call__(self, sample: Sample) -> str | None:
        """Return why no response can earn full marks against the label; None if one can, or if nothing is known.

        Raises:
            CallFailure: the reward runs in a process, and failed there.
            StartError: its worker cannot be started.
        """
        lane = self._lane
        if lane is not None and self._thread is not None:
            try:
                return self._thread.submit(lambda: self._runner.run(lane.check_label(sample))).result()
            except CallFailure as failure:
                if failure.reason == "timeout":
                    return "its check took longer than the reward's time limit"
                raise
        if isinstance(self._called, ChecksLabels):
            return checked_label(self._called.check_label(sample))
        return None


def may_check_labels(spec: CallSpec[object]) -> bool:
    """Whether what a spec offers may have a `check_label`; False where its function or class shows that it has none."""
    made: object = inspect.unwrap(spec.factory)
    return hasattr(made, "check_label") or (made is spec.factory and not isinstance(made, type))
