"""Health: looks after a server while it is up, and asks it to prove that it generates where there is reason to doubt.

A server is suspected when it cannot be reached, or has answered nothing for a while though something is asked of it. It
is only then asked for `/health_generate`, which takes a token's time. Processes are looked after where they live, by
`ServerHost`.

Example:

    await look_after(server, lambda: calls.busy and not weights.is_switching)       # until it raises WorkerError
"""

import asyncio
import time
from collections.abc import Callable

from slime_core.errors import WorkerError
from slime_engine_sglang.server import Server, ServerState

LOOK_S = 1.0
"""Seconds between two looks."""
UNREACHED = 3
"""Looks in a row without an answer that make it suspected."""
SILENCE_S = 30.0
"""Seconds without an answer, while something is asked, that do."""


async def look_after(server: Server, is_asked: Callable[[], bool], silence_s: float = SILENCE_S) -> None:
    """Look until it is found dead.

    Args:
        server: which.
        is_asked: whether an answer is to be expected of it: something is under way, and nothing holds it up.
        silence_s: how long it may then answer nothing.

    Raises:
        WorkerError: it does not generate any more.
    """
    unreached, since = 0, time.monotonic()
    while True:
        await asyncio.sleep(LOOK_S)
        state = await server.answers()
        unreached = 0 if state is ServerState.READY else unreached + 1
        if not is_asked():
            since = time.monotonic()
        silent_s = time.monotonic() - max(since, server.heard)
        if unreached < UNREACHED and silent_s < silence_s:
            continue
        if not await server.is_alive():
            how = state.value if unreached else f"has answered nothing for {silent_s:.0f} s"
            raise WorkerError(f"{server.title} {how}, and does not answer /health_generate: it is given up")
        unreached, since = 0, time.monotonic()
