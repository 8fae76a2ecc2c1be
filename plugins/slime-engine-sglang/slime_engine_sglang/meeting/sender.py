"""MeetingSender: rank 0's end of both transports: who comes is met, and takes one bucket of weights after the other.

A bucket is a piece of memory into which weights are copied, one behind the other. It is the next one's when all servers
have taken it. One that fails half-way ends it for all: they are told so, their engines are replaced, and each is sent
the version again.
"""

import socket
from collections.abc import Iterable, Iterator, Sequence

import torch

from slime_engine_sglang.meeting.changes import Changes
from slime_engine_sglang.meeting.channel import MeetingChannel
from slime_engine_sglang.meeting.guests import Guest, Guests
from slime_engine_sglang.meeting.sums import Sums
from slime_engine_sglang.meeting.wire import END

MEGABYTE = 1e6
Views = Sequence[tuple[str, torch.Tensor]]
"""Weights of one dtype by name, which lie in a bucket one behind the other."""


class Broken(Exception):
    """A server does not take part any more."""


class MeetingSender:
    """Implements `slime_core.roles.WeightSender`."""

    device: str
    """Where buckets lie."""

    def __init__(self, channel: MeetingChannel) -> None:
        """Listen, and say where."""
        self._pace, self._slots = channel.pace, channel.slots
        self._listening = socket.create_server((channel.address, 0))
        self._guests = Guests(self._listening, channel.secret, self._pace.timeout_s)
        self._changes = Changes() if self._pace.changed_only else None
        port = channel.place.with_suffix(".tmp")
        port.write_text(str(self._listening.getsockname()[1]), "utf-8")
        port.rename(channel.place)

    def send(self, version: int, buckets: Iterator[tuple[str, torch.Tensor]], engines: Sequence[int]) -> None:
        """Send a version to those of these engines that come; what fails half-way, no engine serves."""
        with self._guests.met(version, engines) as come:
            if not come:
                return
            sums = Sums(slot.name for slot in self._slots) if any(guest.hello.sums for guest in come) else None
            if sums is not None:
                buckets = sums.among(buckets)
            try:
                self.begin(come)
                bucket = self.bucket(self._size())
                for views in filled(self._wanted(buckets, come), bucket):
                    self.deliver(come, views, bucket)
            except Broken as error:
                self._give_up(come, str(error))
                return
            except BaseException as error:
                self._give_up(come, f"the trainer failed: {error}")
                raise
            if self._changes is not None:
                self._changes.sent(version)
            for guest in come:
                guest.say(END if sums is None else {**END, "sums": sums.told()})

    def close(self) -> None:
        """Listen no more."""
        self._listening.close()

    def begin(self, come: Sequence[Guest]) -> None:
        """Make ready for these guests, before the first bucket.

        Raises:
            Broken: one of them does not take part.
        """

    def bucket(self, size: int) -> torch.Tensor:
        """Memory of so many bytes for a version."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def deliver(self, come: Sequence[Guest], views: Views, bucket: torch.Tensor) -> None:
        """Give all of them what lies in the bucket now; returns when all have taken it.

        Raises:
            Broken: one of them did not take it.
        """
        raise NotImplementedError

    def broke(self) -> None:
        """Clean up after a publication that broke off."""

    def _size(self) -> int:
        """Bytes of a bucket: room for the largest weight, and no more than for all."""
        sizes = [slot.nbytes for slot in self._slots]
        return max(max(sizes), min(sum(sizes), int(self._pace.bucket_mb * MEGABYTE)))

    def _wanted(
        self, buckets: Iterator[tuple[str, torch.Tensor]], come: Sequence[Guest]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """What they lack: all of it, unless all have the same version."""
        if self._changes is None:
            return buckets
        held = {guest.hello.holds for guest in come}
        return self._changes.among(buckets, held.pop() if len(held) == 1 else None)

    def _give_up(self, come: Iterable[Guest], why: str) -> None:
        for guest in come:
            guest.say({"failed": why})
        self.broke()


def filled(weights: Iterator[tuple[str, torch.Tensor]], bucket: torch.Tensor) -> Iterator[Views]:
    """Copy weights into a bucket until it is full, or the next is of another dtype; it is filled anew after that."""
    views: list[tuple[str, torch.Tensor]] = []
    held = 0
    for name, tensor in weights:
        if views and (held + tensor.nbytes > bucket.nbytes or tensor.dtype != views[0][1].dtype):
            yield views
            views, held = [], 0
        place = bucket[held : held + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        views.append((name, place.copy_(tensor.detach())))
        held += tensor.nbytes
    if views:
        yield views
