"""A stranger's transport: rank 0 sends every bucket over a TCP connection to every worker of every engine.

Both sides wait for each other, and nothing is kept: an engine that comes late is sent to again.
"""

import json
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import slime_core
from slime_core.errors import WorkerError
from slime_core.roles import (
    Settings,
    TransportSetup,
    TransportSpec,
    WeightChannel,
    WeightReceiver,
    WeightSender,
    WeightSlot,
)

SLIME_API = "1"
WAIT_S = 60.0
HELLO = struct.Struct("<iiq")
"""Engine, worker and the version that it wants."""


@dataclass(frozen=True, slots=True)
class TcpChannel(WeightChannel):
    """Where rank 0 listens, and for how many workers of an engine."""

    port: int
    workers: int
    late_readers = False

    def sender(self, rank: int, world_size: int) -> WeightSender:
        return TcpSender(self) if rank == 0 else NoSender()

    def receiver(self, engine: int, worker: int = 0) -> WeightReceiver:
        return TcpReceiver(self, engine, worker)


class TcpTransport:
    """Finds a free port."""

    def __init__(self, settings: Settings, setup: TransportSetup) -> None:
        self._workers = setup.receivers

    async def open(self, slots: Sequence[WeightSlot]) -> TcpChannel:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            return TcpChannel("tcp", tuple(slots), found.getsockname()[1], self._workers)

    async def close(self) -> None:
        """Nothing is held here."""


class NoSender:
    """Ranks other than the first have nothing to send."""

    def send(self, version: int, buckets: object, engines: Sequence[int]) -> None:
        """The core exhausts the buckets."""

    def close(self) -> None:
        """Nothing is held."""


class TcpSender:
    """Rank 0's end."""

    def __init__(self, channel: TcpChannel) -> None:
        self._workers = channel.workers
        self._listening = socket.create_server(("127.0.0.1", channel.port))
        self._listening.settimeout(WAIT_S)

    def send(self, version: int, buckets: Iterable[tuple[str, object]], engines: Sequence[int]) -> None:
        connected = self._met(version, {(engine, worker) for engine in engines for worker in range(self._workers)})
        try:
            for name, tensor in buckets:
                body = _bytes_of(tensor)
                about = {"name": name, "dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape), "bytes": len(body)}
                self._tell(connected, json.dumps(about).encode() + b"\n" + body)
            self._tell(connected, b"{}\n")
        finally:
            for connection in connected:
                connection.close()

    def close(self) -> None:
        self._listening.close()

    def _met(self, version: int, wanted: set[tuple[int, int]]) -> list[socket.socket]:
        connected = []
        while wanted:
            connection, _ = self._listening.accept()
            engine, worker, asked = HELLO.unpack(connection.recv(HELLO.size, socket.MSG_WAITALL))
            if (engine, worker) in wanted and asked == version:
                wanted.discard((engine, worker))
                connected.append(connection)
            else:
                connection.close()
        return connected

    @staticmethod
    def _tell(connected: list[socket.socket], data: bytes) -> None:
        for connection in tuple(connected):
            try:
                connection.sendall(data)
            except OSError:  # it is gone; the run sees to its engine
                connected.remove(connection)
                connection.close()


class TcpReceiver:
    """A worker's end."""

    keeps_tensors = False

    def __init__(self, channel: TcpChannel, engine: int, worker: int) -> None:
        self._port, self._place = channel.port, (engine, worker)

    def read(self, version: int) -> Iterator[tuple[str, object]]:
        import torch

        with self._connected() as connection, connection.makefile("rb") as stream:
            connection.sendall(HELLO.pack(*self._place, version))
            while line := stream.readline():
                about = json.loads(line)
                if not about:
                    return
                data = bytearray(stream.read(about["bytes"]))
                if len(data) < about["bytes"]:
                    break
                yield about["name"], torch.frombuffer(data, dtype=getattr(torch, about["dtype"])).view(about["shape"])
        raise WorkerError(f"version {version} broke off before its end")

    def close(self) -> None:
        """A connection is of one version."""

    def _connected(self) -> socket.socket:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            with suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_S)
            time.sleep(0.05)
        raise WorkerError(f"nobody listens at port {self._port}")


def _bytes_of(tensor: object) -> bytes:
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@slime_core.hookimpl
def slime_transports() -> list[TransportSpec]:
    return [TransportSpec("tcp", TcpTransport, summary="Connections of this machine", rendezvous=True)]
