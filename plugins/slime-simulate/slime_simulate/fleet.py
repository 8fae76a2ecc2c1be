"""Fleet: simulated engines that decode token by token, slower the more they decode at once.

Each request goes to the engine with the fewest. With n requests at once, a token takes `1 + slowdown * (n - 1)` units
of time; a unit is the time of one token alone. Lengths are log-normal, and depend only on the number in the prompt, so
that every policy gets the same work.

Example:

    fleet = Fleet(FleetShape(engines=1000, slots=8), Lengths(mean=64, sigma=1.0), seed=0)
    output = await fleet.generate(GenerateRequest([17], SamplingParams(512), seed=0))
"""

import asyncio
import heapq
import math
from collections import deque
from dataclasses import dataclass
from statistics import NormalDist

from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, WeightChannel
from slime_core.seeds import derive_seed

_NORMAL = NormalDist()
_DONE = 1e-6
"""Tokens by which a request may be short of its end, for rounding."""


@dataclass(frozen=True, slots=True)
class FleetShape:
    """How many engines, and how load slows them."""

    engines: int = 1000
    """Engines."""
    slots: int = 8
    """Requests that an engine runs at once."""
    slowdown: float = 0.05
    """Extra time per token for each further request, as a share of its time alone."""

    @property
    def capacity(self) -> float:
        """Tokens per unit of time with all slots in use."""
        return self.engines * self.slots / self.time_of_token(self.slots)

    def time_of_token(self, running: int) -> float:
        """Units of time that one token of each running request takes."""
        return 1.0 + self.slowdown * (running - 1)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal response lengths."""

    mean: float = 64.0
    """Tokens; a token here may stand for many."""
    sigma: float = 1.0
    """Standard deviation of the logarithm."""
    longest: int = 512
    """Token budget, at which responses are cut."""

    def of(self, seed: int, number: int) -> int:
        """Tokens of one response."""
        uniform = (derive_seed(seed, number) + 0.5) / 2**63
        middle = math.log(self.mean) - self.sigma**2 / 2
        return max(1, min(self.longest, round(math.exp(middle + self.sigma * _NORMAL.inv_cdf(uniform)))))


@dataclass(slots=True, order=True)
class _Running:
    """One request on an engine, in order of its end."""

    end: float
    """The engine's progress at the request's end, in tokens."""
    number: int
    length: int
    answer: "asyncio.Future[tuple[int, FinishReason]]"


class Fleet:
    """Implements `slime_core.roles.Engine`."""

    def __init__(self, shape: FleetShape, lengths: Lengths, seed: int) -> None:
        """Idle engines with version 0."""
        self.version = 0
        """Weights that new requests are made with."""
        self.tokens = 0
        """Tokens made so far."""
        self.events = 0
        """Requests that began or ended."""
        self._lengths, self._seed = lengths, seed
        self._loads = _Loads(shape.engines)
        self._alarms = _Alarms()
        self._servers = [_Server(shape, index, self._loads, self._alarms) for index in range(shape.engines)]

    async def start(self) -> None:
        """Nothing to start."""

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch at once, requests under way included."""
        self.version = version

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Decode one response, or the rest of it: [number, tokens made so far]."""
        number, made = request.prompt[0], len(request.prompt) - 1
        length = max(1, self._lengths.of(self._seed, number) - made)
        version, server = self.version, self._servers[self._loads.least()]
        self.events += 2
        made_now, finish = await server.run(min(length, request.sampling.max_new_tokens))
        self.tokens += made_now
        return GenerateOutput([0] * made_now, [-1.0] * made_now, finish, version)

    async def abort(self) -> None:
        """End every request with the tokens that it has."""
        for server in self._servers:
            server.abort()

    async def close(self) -> None:
        """Nothing to stop."""


class _Loads:
    """Finds an engine with the fewest requests, in a time that does not depend on how many engines there are."""

    def __init__(self, engines: int) -> None:
        self._load = [0] * engines
        self._queues = [deque(range(engines))]
        """For each load, engines that had it; entries whose load has changed are skipped."""
        self._queued = [set(range(engines))]

    def change(self, engine: int, load: int) -> None:
        """Set an engine's number of requests."""
        self._load[engine] = load
        while load >= len(self._queues):
            self._queues.append(deque())
            self._queued.append(set())
        if engine not in self._queued[load]:
            self._queued[load].add(engine)
            self._queues[load].append(engine)

    def least(self) -> int:
        """The engine that has waited longest with the fewest."""
        for load, queue in enumerate(self._queues):
            while queue:
                if self._load[queue[0]] == load:
                    return queue[0]
                self._queued[load].remove(queue.popleft())
        raise AssertionError("every engine has a load")


class _Alarms:
    """Wakes engines, with one timer of the loop for all of them.

    With one timer per engine, an event took 6 us longer for 1,000 engines than for 10: asyncio's heap is in Python.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, _Server]] = []
        """A heap of times; cancelled entries are skipped."""
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, server: "_Server", at: float) -> None:
        """Wake an engine at a time, instead of its earlier alarm."""
        self._count += 1
        server.alarm = self._count
        heapq.heappush(self._due, (at, self._count, server))
        if self._timer is None or at < self._timer.when():
            self._wind()

    def _wind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        while self._due and self._due[0][2].alarm != self._due[0][1]:
            heapq.heappop(self._due)
        if self._due:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._ring)

    def _ring(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now + _DONE:
            _, number, server = heapq.heappop(self._due)
            if server.alarm == number:
                server.finish()
        self._wind()


class _Server:
    """One engine: every running request advances at the same pace, which depends on how many there are."""

    def __init__(self, shape: FleetShape, index: int, loads: _Loads, alarms: _Alarms) -> None:
        self._shape, self._index, self._loads, self._alarms = shape, index, loads, alarms
        self._running: list[_Running] = []
        self._progress = self._since = 0.0
        self._count = 0
        self.alarm = 0
        """Number of the current alarm; 0 is none."""

    async def run(self, length: int) -> tuple[int, FinishReason]:
        """Decode `length` tokens; fewer when aborted."""
        self._advance()
        self._count += 1
        answer: asyncio.Future[tuple[int, FinishReason]] = asyncio.get_running_loop().create_future()
        request = _Running(self._progress + length, self._count, length, answer)
        heapq.heappush(self._running, request)
        self._schedule()
        try:
            return await answer
        finally:
            if not answer.done() or answer.cancelled():
                self._advance()
                self._running.remove(request)
                heapq.heapify(self._running)
                self._schedule()

    def abort(self) -> None:
        self._advance()
        for request in self._running:
            made = min(request.length, max(0, int(request.length - (request.end - self._progress))))
            request.answer.set_result((made, FinishReason.ABORT))
        self._running.clear()
        self._schedule()

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._running:
            self._progress += (now - self._since) / self._shape.time_of_token(len(self._running))
        self._since = now

    def _schedule(self) -> None:
        """Set the alarm for the next request's end; called on every change of the running requests."""
        self._loads.change(self._index, len(self._running))
        self.alarm = 0
        if self._running:
            wait = max(0.0, self._running[0].end - self._progress) * self._shape.time_of_token(len(self._running))
            self._alarms.set(self, self._since + wait)

    def finish(self) -> None:
        """Return the responses that are complete by now."""
        self._advance()
        while self._running and self._running[0].end <= self._progress + _DONE:
            request = heapq.heappop(self._running)
            if not request.answer.done():
                request.answer.set_result((request.length, FinishReason.STOP))
        self._schedule()
