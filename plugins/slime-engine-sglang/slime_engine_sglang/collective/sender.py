"""CollectiveSender: rank 0's side of both transports. It waits for engines and sends one bucket of weights at a time.

A bucket is a buffer that holds weights one after another. It is refilled when all servers have received it. If a
server fails during a publication, the publication fails for all servers. The run then replaces their engines, and each
new engine receives the version again.
"""

import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import torch

from slime_engine_sglang.collective.messages import END, READY, Hello, Message, Order, decode, encode, parse_as
from slime_engine_sglang.collective.transports import CollectiveChannel

ACCEPT_S = 0.2


@dataclass
class Peer:
    """An engine that has connected."""

    hello: Hello
    connection: socket.socket
    stream: BinaryIO

    def send_message(self, message: Message | Order) -> bool:
        try:
            self.connection.sendall(encode(message))
        except OSError:
            return False
        return True

    def receives(self, end: float, wanted: Message) -> bool:
        """Whether the engine sends `wanted` before `end`, a time of `time.monotonic`."""
        self.connection.settimeout(max(0.001, end - time.monotonic()))
        try:
            return decode(self.stream.readline()) == wanted
        except OSError:
            return False

    def is_gone(self) -> bool:
        try:
            ready, _, _ = select.select([self.connection], [], [], 0)
            return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        self.stream.close()
        self.connection.close()


class Peers:
    """The engines that connect to a listening socket."""

    def __init__(self, listening: socket.socket, secret: str, timeout_s: float) -> None:
        self._listening, self._secret, self._timeout_s = listening, secret, timeout_s

    @contextmanager
    def ready(self, version: int, engines: Sequence[int]) -> Iterator[list[Peer]]:
        """The engines from the list that are ready in time; skips engines that disconnect before."""
        end = time.monotonic() + self._timeout_s
        joined: dict[int, Peer] = {}
        try:
            while len(joined) < len(set(engines)) and time.monotonic() < end:
                peer = self._next()
                if peer is None:
                    continue
                if peer.hello.engine in engines and peer.hello.version == version:
                    if before := joined.get(peer.hello.engine):
                        before.close()
                    joined[peer.hello.engine] = peer
                else:
                    peer.close()
            ready = [peer for _, peer in sorted(joined.items()) if peer.receives(end, READY)]
            yield ready
        finally:
            for peer in joined.values():
                peer.close()

    def _next(self) -> Peer | None:
        """The next engine that connects with the right secret, if any."""
        self._listening.settimeout(ACCEPT_S)
        try:
            connection, _ = self._listening.accept()
        except TimeoutError:
            return None
        connection.settimeout(self._timeout_s)
        stream = connection.makefile("rb")
        try:
            hello = parse_as(Hello, decode(stream.readline()))
        except OSError:
            hello = None
        if hello is None or hello.secret != self._secret:
            stream.close()
            connection.close()
            return None
        return Peer(hello, connection, stream)


MEGABYTE = 1e6
Views = Sequence[tuple[str, torch.Tensor]]  # Names and tensors of one dtype; the tensors are views of one bucket


class PublicationFailed(Exception):
    """A server dropped out of a publication."""


class CollectiveSender:
    """Implements `slime_core.roles.WeightSender`."""

    device: str  # Device of the buckets

    def __init__(self, channel: CollectiveChannel) -> None:
        self._limits, self._slots = channel.settings, channel.slots
        self._listening = socket.create_server((channel.address, 0))
        self._peers = Peers(self._listening, channel.secret, self._limits.timeout_s)
        port = channel.port_file.with_suffix(".tmp")
        port.write_text(str(self._listening.getsockname()[1]), "utf-8")
        port.rename(channel.port_file)

    def send(self, version: int, buckets: Iterator[tuple[str, torch.Tensor]], engines: Sequence[int]) -> None:
        """Send a version to those `engines` which connect. After a failure, no engine serves the version."""
        with self._peers.ready(version, engines) as peers:
            if not peers:
                return
            try:
                self.begin(peers)
                bucket = self.bucket(self._size())
                for views in fill_buckets(buckets, bucket):
                    self.deliver(peers, views, bucket)
            except PublicationFailed as error:
                self._give_up(peers, str(error))
                return
            except BaseException as error:
                self._give_up(peers, f"the trainer failed: {error}")
                raise
            for peer in peers:
                peer.send_message(END)

    def close(self) -> None:
        self._listening.close()

    def begin(self, peers: Sequence[Peer]) -> None:
        """Prepare for these peers before the first bucket."""

    def bucket(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def deliver(self, peers: Sequence[Peer], views: Views, bucket: torch.Tensor) -> None:
        """Send the bucket's contents to all peers. Returns when all peers have received them."""
        raise NotImplementedError

    def on_failure(self) -> None:
        """Clean up after a failed publication."""

    def _size(self) -> int:
        sizes = [slot.nbytes for slot in self._slots]
        return max(max(sizes), min(sum(sizes), int(self._limits.bucket_mb * MEGABYTE)))

    def _give_up(self, peers: Iterable[Peer], why: str) -> None:
        for peer in peers:
            peer.send_message({"failed": why})
        self.on_failure()


def fill_buckets(weights: Iterator[tuple[str, torch.Tensor]], bucket: torch.Tensor) -> Iterator[Views]:
    """Refill the bucket with as many weights of one dtype as fit, and yield views of them, until all are sent."""
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
