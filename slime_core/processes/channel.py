"""How driver and worker exchange values: length-prefixed frames on a socket, and JSON for isolated plugin calls.

The driver's end never blocks the event loop and can be cancelled at any byte. The worker's end is blocking code.
The driver never unpickles a plugin's answer.

Example:

    shipped = receive_sample(send_sample(sample, ("response", "label")))
    shipped.tokens      # ContractError: declare fields=(..., "tokens")
"""

import asyncio
import enum
import io
import json
import select
import socket
import struct
import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from multiprocessing.reduction import ForkingPickler
from pathlib import PurePath
from typing import cast

from pydantic import BaseModel, SecretStr

from slime_core.errors import ContractError
from slime_core.roles import RewardContext
from slime_core.sample import Json, PrefixCacheInfo, Sample, SpecInfo, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict

# Channel: the driver's end of a worker's socket, on which values travel as frames: their length, 8 bytes, and they.

HEADER = struct.Struct(">Q")
_PART = 1 << 20
"""Bytes that are read at a time: between two of them others have their turn."""


def pickled(value: object) -> bytes:
    """A value as `ForkingPickler` writes it, without the view of its buffer: one that dies in a circle is a warning."""
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(value)
    return buffer.getvalue()


class TooLong(Exception):
    """A frame is longer than is taken; `args[0]` is its length."""


class Channel:
    """One end; the next frame is sent when the last one is answered, or given up."""

    def __init__(self, own: socket.socket) -> None:
        """Take over a socket."""
        own.setblocking(False)
        self._socket = own
        self._unsent: deque[memoryview] = deque()
        self._unread = bytearray()

    @property
    def has_unread(self) -> bool:
        """Whether more has come than was received."""
        return bool(self._unread)

    @property
    def is_closed(self) -> bool:
        """Whether the other end is closed, and nothing is left to be received; a dead process's is at once."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def send(self, *parts: bytes | memoryview) -> None:
        """Send one frame of these parts, after what is left of one whose sending was cancelled.

        Raises:
            OSError: the other end is closed.
        """
        loop = asyncio.get_running_loop()
        self._unsent += (memoryview(HEADER.pack(sum(map(len, parts)))), *(memoryview(part) for part in parts))
        while not self._sent():
            await self._ready(loop.add_writer, loop.remove_writer)

    async def receive(self, limit: int | None = None) -> bytes:
        """Wait for the next frame.

        Args:
            limit: bytes that it may have.

        Raises:
            EOFError: the other end is closed.
            TooLong: it is longer than the limit.
            OSError: this end is.
        """
        loop = asyncio.get_running_loop()
        while (body := self._whole(limit)) is None:
            if not self._took():
                await self._ready(loop.add_reader, loop.remove_reader)
            elif len(self._unread) >= _PART:
                await asyncio.sleep(0)
        return body

    def exchange(self, body: bytes, *, limit: int, timeout_s: float) -> bytes:
        """Send one frame and wait for the next, outside an event loop.

        Raises:
            EOFError: the other end is closed.
            TooLong: the answer is longer than `limit` bytes.
            TimeoutError: there is no answer in time.
            OSError: this end is closed.
        """
        deadline = time.monotonic() + timeout_s
        self._unsent.append(memoryview(HEADER.pack(len(body)) + body))  # at once: each part would wake the worker
        while not self._sent():
            self._wait_until(deadline, write=True)
        while (answer := self._whole(limit)) is None:
            if not self._took():
                self._wait_until(deadline, write=False)
        return answer

    def _wait_until(self, deadline: float, *, write: bool) -> None:
        left, own = max(0.0, deadline - time.monotonic()), [self._socket]
        if not any(select.select([] if write else own, own if write else [], [], left)):
            raise TimeoutError

    def end(self) -> None:
        """Send no more: the worker reads the end of it when it has done what it was sent."""
        _shut(self._socket, socket.SHUT_WR)

    def cut(self) -> None:
        """Break the connection at once; who waits for a frame sees it."""
        _shut(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the socket; nobody may be waiting for a frame."""
        self._socket.close()

    def _sent(self) -> bool:
        """Send what there is room for; whether that was all."""
        while self._unsent:
            part = self._unsent[0]
            try:
                sent = self._socket.send(part)
            except BlockingIOError:
                return False
            if sent < len(part):
                self._unsent[0] = part[sent:]
                return False
            self._unsent.popleft()
        return True

    def _took(self) -> bool:
        """Take what has come, at most one part of it; whether there was anything."""
        try:
            part = self._socket.recv(_PART)
        except BlockingIOError:
            return False
        if not part:
            raise EOFError
        self._unread += part
        return True

    def _whole(self, limit: int | None) -> bytes | None:
        if len(self._unread) < HEADER.size:
            return None
        (length,) = HEADER.unpack(self._unread[: HEADER.size])
        if limit is not None and length > limit:
            raise TooLong(length)
        end = HEADER.size + length
        if len(self._unread) < end:
            return None
        body = bytes(memoryview(self._unread)[HEADER.size : end])
        del self._unread[:end]
        return body

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        descriptor = self._socket.fileno()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        add(descriptor, _settle, ready)
        try:
            await ready
        finally:
            if self._socket.fileno() >= 0:  # else the number may be another's by now
                remove(descriptor)


def send(channel: socket.socket, *parts: bytes | memoryview) -> None:
    """Send one frame of these parts."""
    header = HEADER.pack(sum(map(len, parts)))
    if len(parts) == 1 and len(parts[0]) < _PART:  # in one call, for the other end wakes at each
        channel.sendall(header + parts[0])
        return
    for part in (header, *parts):
        channel.sendall(part)


def receive(channel: socket.socket) -> bytearray:
    """Wait for the next frame.

    Raises:
        EOFError: the other end is closed.
    """
    (length,) = HEADER.unpack(_exactly(channel, HEADER.size))
    return _exactly(channel, length)


def _exactly(channel: socket.socket, count: int) -> bytearray:
    got = bytearray(count)
    view, filled = memoryview(got), 0
    while filled < count:
        read = channel.recv_into(view[filled:])
        if not read:
            raise EOFError
        filled += read
    return got


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _shut(own: socket.socket, how: int) -> None:
    try:
        own.shutdown(how)
    except OSError:  # the other end is gone, or this one is closed
        return


# What goes to a worker and what comes back, as JSON: nothing that a plugin answers is ever unpickled.

LARGEST_ANSWER = 1 << 20
"""Bytes; a verdict has no use for more."""
IDENTITY = ("group_index", "index")
"""Fields that are always sent: errors name a sample by them."""


def packed(value: Json) -> bytes:
    """A value as it is sent to another process."""
    return json.dumps(value, separators=(",", ":")).encode()


class ShippedSample(Sample):
    """A copy of those fields of a sample that the spec names; reading another says so."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        """Called for what is not there.

        Raises:
            ContractError: a field that was not shipped.
            AttributeError: no field of a sample at all.
        """
        if name not in Sample.__dataclass_fields__:
            raise AttributeError(f"'Sample' object has no attribute {name!r}")
        raise ContractError(
            f"sample.{name} was read, but the spec does not declare it: in a thread or a worker process a sample "
            f"has only {', '.join(self.shipped())}. Write fields=(*LIGHT_FIELDS, {name!r}) in the spec"
        )

    def shipped(self) -> dict[str, object]:
        """The fields that are there."""
        return {name: value for name in Sample.__dataclass_fields__ if (value := _there(self, name)) is not _ABSENT}

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, self.shipped()

    def __repr__(self) -> str:
        return f"Sample({', '.join(f'{name}={value!r}' for name, value in self.shipped().items())})"


_ABSENT = object()


def _there(sample: Sample, name: str) -> object:
    slot = getattr(Sample, name)
    try:
        return slot.__get__(sample)
    except AttributeError:
        return _ABSENT


def send_sample(sample: Sample, wanted: Collection[str]) -> dict[str, Json]:
    """The wanted fields of a sample and those that errors name it by, as plain JSON.

    Raises:
        TypeError: a field holds what JSON cannot keep.
    """
    return {name: plain(getattr(sample, name)) for name in {*IDENTITY, *wanted}}


_REVIVE: Mapping[str, Callable[[Json], object]] = {
    "status": Status,
    "spec_info": lambda value: SpecInfo(**cast(dict[str, int], value)),
    "prefix_cache_info": lambda value: PrefixCacheInfo(**cast(dict[str, int], value)),
}


def receive_sample(values: Mapping[str, Json]) -> ShippedSample:
    """The inverse of `send_sample`; shares lists and tables with `values`."""
    sample = object.__new__(ShippedSample)
    for name, value in values.items():
        setattr(sample, name, _REVIVE[name](value) if name in _REVIVE else value)
    return sample


def send_context(ctx: RewardContext) -> dict[str, Json]:
    """A reward's context, as plain JSON."""
    return {"rollout_id": ctx.rollout_id, "evaluation": ctx.evaluation, "seed": ctx.seed}


def send_verdict(verdict: Verdict) -> dict[str, Json]:
    """A checked verdict, as plain JSON."""
    match verdict:
        case Score(value=value, components=components):
            return {"score": float(value), "components": {str(name): float(each) for name, each in components.items()}}
        case Unscored(reason=reason, retryable=retryable, detail=detail):
            return {"unscored": reason, "retryable": retryable, "detail": detail}
        case NotApplicable():
            return {"not_applicable": True}


def receive_verdict(values: Json) -> Verdict:
    """The inverse of `send_verdict`.

    Raises:
        ValueError: it is not a verdict.
    """
    match values:
        case {"score": float(value), "components": dict(components)}:
            parts = {name: each for name, each in components.items() if isinstance(each, float)}
            if len(parts) == len(components):
                return Score(value, parts)
        case {"unscored": str(reason), "retryable": bool(retryable), "detail": str(detail)} if reason:
            return Unscored(reason, retryable, detail)
        case {"not_applicable": True}:
            return NotApplicable()
    raise ValueError("a worker answered with what is not a verdict")


def plain(value: object) -> Json:
    """Any value of a sample or of settings, as JSON; secrets are spelt out, for they go to a worker only.

    Raises:
        TypeError: JSON cannot keep it.
    """
    match value:
        case enum.Enum():
            return plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case array():
            return cast(Json, value.tolist())
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case SpecInfo() | PrefixCacheInfo():
            return {item.name: getattr(value, item.name) for item in fields(value)}
        case SecretStr():
            return value.get_secret_value()
        case BaseModel():
            return {name: plain(getattr(value, name)) for name in type(value).model_fields}
        case PurePath():
            return str(value)
    raise TypeError(f"{type(value).__name__} {value!r:.80} cannot be sent to a worker process: JSON cannot keep it")
