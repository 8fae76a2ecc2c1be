"""Tells the tasks that serve connections to a generator's own server from the tasks that a call left behind.

Clients keep connections open, and wait on them for as long as they like: that ends with the server, not with a call.

Example:

    before = listening()
    await generator.start()
    servers = listening() - before
    running = unserved(servers)             # without a task for each connection to these
"""

import asyncio
import os
import socket
import stat
from collections.abc import Iterator, Set
from typing import TypeAlias

Place: TypeAlias = int | str
"""A port, or the path of a Unix socket."""


def listening() -> frozenset[Place]:
    """Where this process accepts connections now."""
    return frozenset(place for name in os.listdir("/dev/fd") if (place := _accepted_at(int(name))) is not None)  # noqa: PTH208


def unserved(servers: Set[Place]) -> set["asyncio.Task[object]"]:
    """The tasks of the running loop but those that serve a connection to one of these places."""
    return {task for task in asyncio.all_tasks() if servers.isdisjoint(_places(task))}


def _accepted_at(descriptor: int) -> Place | None:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as one:
            is_listening = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return _place(one.getsockname()) if is_listening else None
    except OSError:
        return None  # the descriptor that listed the folder, or one of another kind of socket


def _places(task: "asyncio.Task[object]") -> Iterator[Place]:
    """Places of the open connections that a task's own coroutine holds: as its protocol, its writer, or bare."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    for held in list(frame.f_locals.values()) if frame is not None else ():
        each = getattr(held, "transport", None) if isinstance(held, asyncio.BaseProtocol) else held
        if isinstance(each, asyncio.StreamWriter):
            each = each.transport
        if isinstance(each, asyncio.BaseTransport) and not each.is_closing():
            yield _place(each.get_extra_info("sockname"))
        elif isinstance(each, socket.socket) and each.fileno() >= 0:  # just accepted
            yield _place(each.getsockname())


def _place(name: object) -> Place:
    """The port or the path in a socket's name."""
    return int(name[1]) if isinstance(name, tuple) else os.fsdecode(name) if isinstance(name, str | bytes) else ""
