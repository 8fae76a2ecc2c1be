"""BestEffort: calls to plugins that watch or record a run, and never end it, whatever they do.

Example:

    watching = BestEffort("run hook", limit_s=30.0)
    await watching.call("slime-x/slime_run_end", function, event)
    watching.errors                     # {"slime-x/slime_run_end/OSError": 3}

What fails is logged once for each kind of error and counted. What hangs costs its time limit, a few times: then it is
not called any more.
"""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ParamSpec, TypeAlias, cast

from slime_core.errors import StopRun, lines_of, said_by
from slime_core.isolation import limited

P = ParamSpec("P")
Failed: TypeAlias = BaseException | None
MOST_TIMEOUTS = 3
"""Times that a call may run into its limit before it is made no more."""
_log = logging.getLogger(__name__)


class BestEffort:
    """Calls of one kind, by name."""

    def __init__(self, what: str, *, limit_s: float) -> None:
        """`what` they are, for the log; `limit_s` is each one's time."""
        self._what = what
        self._limit_s = limit_s
        self._errors: Counter[str] = Counter()
        self._timeouts: Counter[str] = Counter()
        self._given_up: set[str] = set()

    @property
    def errors(self) -> Mapping[str, int]:
        """How often one failed, by `name/ErrorType`."""
        return MappingProxyType(self._errors)

    async def call(self, name: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Failed:
        """Call it, and await what it returns if that can be awaited; returns what it raised.

        Raises:
            StopRun: it says so.
            CancelledError: somebody cancelled the task that this runs in.
        """
        if name in self._given_up:
            return None
        task = cast(asyncio.Task[object], asyncio.current_task())
        cancels = task.cancelling()
        try:
            result = function(*args, **kwargs)
            if result is not None and inspect.isawaitable(result):
                await limited(result, self._limit_s)
        except StopRun:
            raise
        except asyncio.CancelledError as error:
            if task.cancelling() > cancels:
                raise
            return self._failed(name, error)
        except TimeoutError as error:
            self._timeouts[name] += 1
            return self._failed(name, error)
        except BaseException as error:  # SystemExit and its like too: asyncio would end the run with it
            return self._failed(name, error)
        return None

    def _failed(self, name: str, error: BaseException) -> BaseException:
        key = f"{name}/{type(error).__name__}"
        self._errors[key] += 1
        if self._timeouts[name] == MOST_TIMEOUTS:
            self._given_up.add(name)
            _log.error("%s %s: given up after %d time-outs; it is called no more", self._what, name, MOST_TIMEOUTS)
        elif self._errors[key] == 1:
            text, lines = said_by(error), lines_of(error)
            _log.error("%s %s: %s (logged once; the run goes on)%s", self._what, key, text, lines)
        return error
