"""OnLoop: an async callable run where it is, under a time limit and a limit of calls at once, and measured."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Generic, TypeVar, cast

from slime_core.errors import PluginError, said_by
from slime_core.isolation.limit import limited
from slime_core.isolation.slots import Slots
from slime_core.stats import CallStats, measures

SubjectT = TypeVar("SubjectT")
ContextT = TypeVar("ContextT")
ResultT = TypeVar("ResultT")


class OnLoop(Generic[SubjectT, ContextT, ResultT]):
    """Calls `call(subject, ctx)` on the event loop; what it raises passes through."""

    def __init__(
        self,
        call: Callable[[SubjectT, ContextT], Awaitable[ResultT]],
        *,
        timeout_s: float,
        max_concurrency: int | None,
        calls: CallStats,
        until: Callable[[ContextT, float], ContextT] | None = None,
        convert: Callable[[object], object] | None = None,
    ) -> None:
        """Wrap it.

        Args:
            call: what is called.
            timeout_s: its time limit, which begins when the call does, not when it begins to wait for a place.
            max_concurrency: calls at once; None for as many as come.
            calls: where calls are counted.
            convert: makes of what it returned what the caller gets.
            until: puts into a call's context when the call will be given up, by the loop's clock.
        """
        self.called = call
        self._timeout_s = timeout_s
        self._slots = Slots(max_concurrency) if max_concurrency else None
        self._calls = calls
        self._until = until
        self._convert = convert
        calls.limit_s = min(calls.limit_s, timeout_s)

    @measures
    async def __call__(self, subject: SubjectT, ctx: ContextT) -> ResultT:
        """One call.

        Raises:
            TimeoutError: it was given up.
            PluginError: it raised `SystemExit`, or what else ends an event loop.
        """
        calls = self._calls
        if self._slots is not None:
            await self._slots.acquire()
        if self._until is not None:
            ctx = self._until(ctx, asyncio.get_running_loop().time() + self._timeout_s)
        began = perf_counter()
        try:
            answer = await limited(self.called(subject, ctx), self._timeout_s)
            return answer if self._convert is None else cast(ResultT, self._convert(answer))
        except TimeoutError:
            calls.timeouts += 1
            raise
        except (Exception, asyncio.CancelledError, GeneratorExit) as error:
            calls.errors += isinstance(error, Exception)
            raise
        except BaseException as error:
            calls.errors += 1
            raise PluginError(
                f"it raised {type(error).__name__}: {said_by(error)}"
            ) from error  # asyncio would end the run with it
        finally:
            calls.seconds.append(perf_counter() - began)
            if self._slots is not None:
                self._slots.release()
