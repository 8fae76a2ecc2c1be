"""BroadcastSender: rank 0's end of `distributed`: buckets become flat tensors, which all servers get at once.

The group is of the servers that came; it is kept as long as the same ones come. One that fails amid a broadcast breaks
it for all: then all of them are told so, their engines are replaced, and each is sent the version again.
"""

import itertools
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.distributed_c10d import Backend, GroupName, PrefixStore, _new_process_group_helper, _world

from slime_engine_sglang.broadcast.channel import DistributedChannel
from slime_engine_sglang.broadcast.guests import Guest, Guests
from slime_engine_sglang.broadcast.wire import DONE, END, Bucket, Join

MEGABYTE = 1e6
LOOK_S = 0.002
"""Seconds between two looks whether a broadcast is over, and whether all who take part are there."""


class Broken(Exception):
    """A server does not take part any more."""


class BroadcastSender:
    """Implements `slime_core.roles.WeightSender`."""

    def __init__(self, channel: DistributedChannel) -> None:
        """Listen, and say where."""
        settings = channel.settings
        self._settings = settings
        self._listening = socket.create_server((settings.address, 0))
        self._guests = Guests(self._listening, channel.secret, settings.timeout_s)
        port = channel.place.with_suffix(".tmp")
        port.write_text(str(self._listening.getsockname()[1]), "utf-8")
        port.rename(channel.place)
        self._group: dist.ProcessGroup | None = None
        self._work: dist.Work | None = None
        self._name = ""
        self._members: tuple[tuple[str, int], ...] = ()
        self._numbers = itertools.count()

    def send(self, version: int, buckets: Iterator[tuple[str, torch.Tensor]], engines: Sequence[int]) -> None:
        """Broadcast a version to those of these engines that come; what fails half-way, no engine serves."""
        with self._guests.met(version, engines) as come:
            if not come:
                return
            try:
                self._join(come)
                for names, flat in filled(buckets, int(self._settings.bucket_mb * MEGABYTE)):
                    self._broadcast(come, names, flat)
            except Broken as error:
                self._give_up(come, str(error))
                return
            except BaseException as error:
                self._give_up(come, f"the trainer failed: {error}")
                raise
            for guest in come:
                guest.say(END)

    def close(self) -> None:
        """Leave the group, and listen no more."""
        self._leave()
        self._listening.close()

    def _join(self, come: Sequence[Guest]) -> None:
        """A group of these servers, in this order; the one that there is, if it is."""
        members = tuple((guest.hello.server, guest.hello.ranks) for guest in come)
        if self._group is not None and members == self._members:
            return
        left = self._name
        self._leave()
        settings, end = self._settings, time.monotonic() + self._settings.timeout_s
        size = 1 + sum(ranks for _, ranks in members)
        name, first = f"slime-{self._listening.getsockname()[1]}-{next(self._numbers)}", 1
        with closing(socket.create_server((settings.address, 0))) as kept:
            port = kept.getsockname()[1]
        timeout = timedelta(seconds=settings.timeout_s)
        # Made before anybody is told of it, who would have to try again.
        store = TCPStore(settings.address, port, size, is_master=True, wait_for_workers=False, timeout=timeout)
        for guest in come:
            guest.say(Join(settings.address, port, first, size, name, settings.backend, left))
            first += guest.hello.ranks
        made: Future[dist.ProcessGroup] = Future()
        # In a thread, which waits on where one server fails; it is then left alone.
        meeting = threading.Thread(target=_meet, args=(made, size, settings.backend, store, name, timeout), daemon=True)
        meeting.start()
        while not made.done():
            _require_all(come, "as the group was made")
            meeting.join(LOOK_S)
        try:
            self._group, self._name, self._members = made.result(), name, members
        except Exception as error:
            raise Broken(f"a server did not join the group: {error}") from error
        if missing := [guest.hello.engine for guest in come if not guest.heard(end, DONE)]:
            raise Broken(f"the server of engine {missing[0]} did not join the group")

    def _broadcast(self, come: Sequence[Guest], names: Sequence[tuple[str, torch.Size]], flat: torch.Tensor) -> None:
        """One flat tensor to all; returns when all servers have taken it."""
        assert self._group is not None, "it was joined"
        order = Bucket(
            self._name,
            [name for name, _ in names],
            [list(shape) for _, shape in names],
            str(flat.dtype)[len("torch.") :],
        )
        end = time.monotonic() + self._settings.timeout_s
        if gone := [guest.hello.engine for guest in come if not guest.say(order)]:
            raise Broken(f"engine {gone[0]} went away")
        body = flat.to("cuda" if self._settings.backend == "nccl" else "cpu").view(torch.uint8)
        work = self._work = dist.broadcast(body, src=0, group=self._group, async_op=True)
        assert work is not None, "it is asynchronous"
        while not work.is_completed():
            _require_all(come, "amid a broadcast")
            if time.monotonic() > end:
                raise Broken(f"a broadcast was not over in {self._settings.timeout_s:g} s")
            time.sleep(LOOK_S)
        try:
            work.wait()
        except RuntimeError as error:
            raise Broken(f"a broadcast broke off: {error}") from error
        self._work = None
        if wrong := [guest.hello.engine for guest in come if not guest.heard(end, DONE)]:
            raise Broken(f"the server of engine {wrong[0]} did not take its weights")

    def _give_up(self, come: Iterable[Guest], why: str) -> None:
        for guest in come:
            guest.say({"failed": why})
        group, self._group, self._members = self._group, None, ()
        work, self._work = self._work, None
        if group is not None:
            threading.Thread(target=_destroy, args=(group, work), daemon=True).start()

    def _leave(self) -> None:
        group, self._group, self._members = self._group, None, ()
        if group is not None:
            _destroy(group)


def _meet(
    made: "Future[dist.ProcessGroup]", size: int, backend: str, store: Store, name: str, timeout: timedelta
) -> None:
    """Make a group with processes that torch's own group does not have; SGLang makes its end in the same way."""
    try:
        prefixed = PrefixStore(name, store)
        group, _ = _new_process_group_helper(
            size, 0, [], Backend(backend), prefixed, group_name=GroupName(name), timeout=timeout
        )
        _world.pg_group_ranks[group] = {rank: rank for rank in range(size)}
        made.set_result(group)
    except Exception as error:
        made.set_exception(error)


def _destroy(group: dist.ProcessGroup, work: dist.Work | None = None) -> None:
    """End a group, once what is under way there has taken too long: torch would stop all threads as it waits."""
    with suppress(RuntimeError):
        if work is not None:
            work.wait()
    with suppress(RuntimeError, ValueError):
        dist.destroy_process_group(group)


def _require_all(come: Iterable[Guest], when: str) -> None:
    if gone := [guest.hello.engine for guest in come if guest.is_gone()]:
        raise Broken(f"engine {gone[0]} went away {when}")


def filled(
    buckets: Iterator[tuple[str, torch.Tensor]], size: int
) -> Iterator[tuple[list[tuple[str, torch.Size]], torch.Tensor]]:
    """Names and shapes with the flat tensor that they are of, each of about so many bytes and of one dtype."""
    names: list[tuple[str, torch.Size]] = []
    parts: list[torch.Tensor] = []
    held = 0
    for name, tensor in buckets:
        if parts and (held + tensor.nbytes > size or tensor.dtype != parts[0].dtype):
            yield names, torch.cat(parts)
            names, parts, held = [], [], 0
        names.append((name, tensor.shape))
        parts.append(tensor.detach().reshape(-1).clone())  # a bucket is good until the next one is asked for
        held += tensor.nbytes
    if parts:
        yield names, torch.cat(parts)
