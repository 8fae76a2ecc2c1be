"""Tasks that belong together: they end together, whatever ends the first of them, and know who cancelled them.

Example:

    await together(trainer.publish(4, engines), engine.load_weights(channel, 4))
    outcome = await unless(trainer.watch(), loop.run(checkpoint))
    await cancel_all(tasks)
"""

import asyncio
from collections.abc import Collection, Coroutine
from typing import TypeVar
from weakref import WeakSet

ResultT = TypeVar("ResultT")
_CANCELLED: "WeakSet[asyncio.Task[object]]" = WeakSet()


async def together(*calls: Coroutine[object, object, None]) -> None:
    """Await all.

    Raises:
        Exception: what the first of them to fail raised; the others have ended, too.
    """
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


async def unless(fails: Coroutine[object, object, None], call: Coroutine[object, object, ResultT]) -> ResultT:
    """Await a call, which is cancelled if the other fails before it has ended.

    Raises:
        Exception: what one of them raised.
    """
    task, watching = asyncio.create_task(call), asyncio.create_task(fails)
    try:
        await asyncio.wait({task, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            watching.result()
        return await task
    finally:
        await cancel_all((task, watching))


async def cancel_all(tasks: "Collection[asyncio.Task[ResultT] | asyncio.Task[None]]") -> None:
    """Cancel what is not done, and wait for the end of it; whatever any of them raised is dropped."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        cancel(task)
    if unfinished:
        await asyncio.gather(*unfinished, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # so that asyncio does not tell of it as of one that was forgotten


def cancel(task: "asyncio.Task[ResultT] | asyncio.Task[None]") -> None:
    """Cancel a task so that it knows who did: not its plugin."""
    _CANCELLED.add(task)
    task.cancel()


def cancelled_from_outside() -> bool:
    """Whether this task is to end; if not, its plugin cancelled it, or some task of its own, and that is undone."""
    task = asyncio.current_task()
    if task is None or task in _CANCELLED:
        return True
    while task.cancelling():
        task.uncancel()
    return False
