"""Ends: an opened transport with all its senders and receivers, each in a thread of its own.

Example:

    with Ends(build, slots, spec, limit_s=30.0) as ends:
        read = ends.publish(1, [weights, weights])[0, 1]        # by engine 0, worker 1
"""

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, cast
from unittest import SkipTest

from slime_core.roles import Transport, TransportSpec, WeightChannel, WeightReceiver, WeightSender, WeightSlot

if TYPE_CHECKING:
    import torch

    Weights: TypeAlias = Mapping[str, torch.Tensor]
    Buckets: TypeAlias = Iterator[tuple[str, torch.Tensor]]

RANKS, ENGINES, WORKERS = 2, 2, 2
Place: TypeAlias = tuple[int, int]
"""Engine and worker."""


@dataclass
class Outcome:
    """How a publication ended."""

    sent: dict[int, BaseException | None] = field(default_factory=dict)
    """What each rank's `send` raised, if anything."""
    read: "dict[Place, Weights | BaseException]" = field(default_factory=dict)
    """What each receiver read, or raised."""


class Ends:
    """Opens everything at its beginning, and closes it at its end."""

    def __init__(
        self, build: Callable[[Path], Transport], slots: Sequence[WeightSlot], spec: TransportSpec, limit_s: float
    ) -> None:
        self._build, self._slots, self._spec, self._limit_s = build, slots, spec, limit_s
        self.lasting = False
        """Whether receivers say that what they give stays."""

    def __enter__(self) -> "Ends":
        if not self._spec.brings_receiver:
            raise SkipTest("it brings no receiver: an engine of its own reads it")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        try:
            self._open()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def _open(self) -> None:
        self._transport = self._build(Path(self._folder.name))
        self._channel = asyncio.run(self._transport.open(self._slots))
        self._senders: list[WeightSender] = [self._arrived().sender(rank, RANKS) for rank in range(RANKS)]
        places = [(engine, worker) for engine in range(ENGINES) for worker in range(WORKERS)]
        self._receivers: dict[Place, WeightReceiver] = {place: self._arrived().receiver(*place) for place in places}
        self.lasting = all(receiver.lasting for receiver in self._receivers.values())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends: list[WeightSender | WeightReceiver] = [*self._receivers.values(), *self._senders]
        for end in (*ends, *ends):
            end.close()
        asyncio.run(self._transport.close())
        self._folder.cleanup()

    def _arrived(self) -> WeightChannel:
        return cast(WeightChannel, ForkingPickler.loads(ForkingPickler.dumps(self._channel)))

    def publish(self, version: int, of_ranks: "Sequence[Weights]", *, hold: bool = False) -> "dict[Place, Weights]":
        """What every worker reads of a version; `hold` the tensors where they are, if they stay.

        Raises:
            AssertionError: an end raised, or did not come to its end in time.
        """
        outcome = self.try_publish(version, [iter(weights.items()) for weights in of_ranks], hold=hold)
        return self._good(outcome)

    def try_publish(self, version: int, of_ranks: "Sequence[Buckets]", *, hold: bool = False) -> Outcome:
        """The same, whatever becomes of it."""
        return self._move(version, of_ranks, list(self._receivers), hold)

    def late(self, engine: int, version: int, weights: "Weights") -> "dict[Place, Weights]":
        """What the workers of an engine read that was restarted after this version was sent; errors as in `publish`."""
        places = [place for place in self._receivers if place[0] == engine]
        for place in places:
            self._receivers[place].close()
            self._receivers[place] = self._arrived().receiver(*place)
        sends = [] if self._channel.late_readers else [iter(weights.items()) for _ in range(RANKS)]
        return self._good(self._move(version, sends, places, hold=False))

    def _good(self, outcome: Outcome) -> "dict[Place, Weights]":
        for rank, error in outcome.sent.items():
            if error is not None:
                raise AssertionError(f"send() of rank {rank} ended with {error!r:.200}") from error
        read: dict[Place, Weights] = {}
        for place, found in outcome.read.items():
            if isinstance(found, BaseException):
                raise AssertionError(f"read() of engine {place[0]}, worker {place[1]} ended with {found!r:.200}")
            read[place] = found
        return read

    def _move(self, version: int, of_ranks: "Sequence[Buckets]", places: Sequence[Place], hold: bool) -> Outcome:
        outcome, engines = Outcome(), sorted({engine for engine, _ in places})

        def send(rank: int, buckets: "Buckets") -> None:
            outcome.sent[rank] = TimeoutError(f"no end within {self._limit_s:g} s")
            try:
                self._senders[rank].send(version, buckets, engines)
                for _ in buckets:  # as the core does
                    pass
                outcome.sent[rank] = None
            except Exception as error:
                outcome.sent[rank] = error

        def read(place: Place) -> None:
            outcome.read[place] = TimeoutError(f"no end within {self._limit_s:g} s")
            receiver = self._receivers[place]
            try:
                found = receiver.read(version)
                keep = hold and receiver.lasting
                outcome.read[place] = {name: tensor if keep else tensor.clone() for name, tensor in found}
            except Exception as error:
                outcome.read[place] = error

        sends = [threading.Thread(target=send, args=each, daemon=True) for each in enumerate(of_ranks)]
        reads = [threading.Thread(target=read, args=(place,), daemon=True) for place in places]
        for together in ([*sends, *reads],) if self._spec.rendezvous else (sends, reads):
            _run(together, self._limit_s)
        return outcome


def _run(threads: Iterable[threading.Thread], limit_s: float) -> None:
    started = list(threads)
    for thread in started:
        thread.start()
    end = time.monotonic() + limit_s
    for thread in started:
        thread.join(max(0.0, end - time.monotonic()))
