"""The requests of one worker, on the driver's side, and what driver and worker exchange; without torch.

The driver calls a worker for one `Turn` at a time. The worker takes new requests, decodes, and answers with the
responses that have ended and the tokens so far of watched ones. Later requests wait for the next turn; a flag in shared
memory ends the current turn soon.
"""

import asyncio
import itertools
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeAlias, cast

from slime_core.errors import ModelError
from slime_core.roles import GenerateChunk, GenerateOutput, GenerateRequest, WorkerGroup

Ended: TypeAlias = dict[int, GenerateOutput | ModelError]
"""Result or error of each ended request, by number."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a worker."""

    admitted: Mapping[int, GenerateRequest]
    """New requests by unique number."""
    dropped: frozenset[int] = frozenset()
    """Requests without a waiting caller."""
    watched: frozenset[int] = frozenset()
    """Requests that stream their tokens; with any, a turn is short."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """Results of a turn."""

    ended: Ended
    """Results and errors of the requests that ended."""
    partial: Mapping[int, GenerateChunk] = field(default_factory=dict)
    """All tokens so far of the watched requests still running, by number."""


class Watch:
    """Passes the tokens of one request from the queue to its streaming caller."""

    def __init__(self, answer: asyncio.Future[GenerateOutput]) -> None:
        """Start without tokens."""
        self._answer = answer
        self._partial: GenerateChunk | None = None
        self._taken = 0
        self._changed = asyncio.Event()
        answer.add_done_callback(self._over)

    def show(self, partial: GenerateChunk) -> None:
        """Replace the response so far."""
        self._partial = partial
        self._changed.set()

    def _over(self, answer: asyncio.Future[GenerateOutput]) -> None:
        self._changed.set()
        if not answer.cancelled():
            answer.exception()  # mark as retrieved: asyncio logs unretrieved errors, as after an early end

    async def take(self) -> GenerateChunk:
        """Wait for new tokens; the last part has the finish reason.

        Raises:
            SlimeError: the request's.
        """
        while not self._answer.done():
            if self._partial is not None and len(self._partial.tokens) > self._taken:
                return self._rest(self._partial)
            await self._changed.wait()
            self._changed.clear()
        output = self._answer.result()
        return self._rest(output.as_chunk)

    def _rest(self, whole: GenerateChunk) -> GenerateChunk:
        begin, self._taken = self._taken, len(whole.tokens)
        tokens, log_probs = whole.tokens[begin:], whole.log_probs[begin:]
        return replace(whole, tokens=tokens, log_probs=log_probs)


class Flags:
    """Flags in shared memory: one byte for all workers, and one for each."""

    def __init__(self, path: Path) -> None:
        """Map a file that another process's `create` made."""
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path, workers: int) -> Self:
        """Write the file, all flags down, and map it."""
        path.write_bytes(bytes(1 + workers))
        return cls(path)

    @property
    def aborting(self) -> bool:
        """Whether workers must end every request."""
        return self._bytes[0] != 0

    @aborting.setter
    def aborting(self, value: bool) -> None:
        self._bytes[0] = value

    def has_news(self, rank: int) -> bool:
        """Whether the driver has news for a worker."""
        return self._bytes[1 + rank] != 0

    def set_news(self, rank: int, value: bool) -> None:
        """Set or clear the flag of a worker."""
        self._bytes[1 + rank] = value

    def close(self) -> None:
        """Unmap it."""
        self._bytes.close()


@dataclass(slots=True)
class QueuedRequest:
    """A request with the future of its answer."""

    request: GenerateRequest
    answer: asyncio.Future[GenerateOutput]
    watch: Watch | None = None
    """Receives the tokens so far, if given."""

    @property
    def work(self) -> int:
        """Maximum number of tokens that the request needs."""
        return len(self.request.prompt) + self.request.sampling.max_new_tokens


class RequestQueue:
    """The requests of one worker."""

    def __init__(self, group: WorkerGroup, rank: int, flags: Flags) -> None:
        """Start without requests."""
        self.work = 0
        """Maximum number of tokens that all its requests need."""
        self.serving: asyncio.Task[None] | None = None
        """Task that runs turns; ends when no request is left or new ones are held."""
        self._group, self._rank, self._flags = group, rank, flags
        self._waiting: list[QueuedRequest] = []
        self._in_worker: dict[int, QueuedRequest] = {}
        self._numbers = itertools.count()
        self._open = True

    @property
    def running(self) -> int:
        """Number of requests in the worker."""
        return len(self._in_worker)

    def add(self, queued: Sequence[QueuedRequest]) -> None:
        """Queue requests for the next turn; starts one if none is running."""
        self._waiting += queued
        self.work += sum(each.work for each in queued)
        self.wake()

    def hold(self, held: bool) -> None:
        """Hold new requests, or release them."""
        self._open = not held
        self.wake()

    def wake(self) -> None:
        """End the current turn soon because of news, or start a turn."""
        if self.serving is not None:
            self._flags.set_news(self._rank, True)
        elif self._open and self._waiting:
            self.serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while (self._open and self._waiting) or self._in_worker:
                await self._turn()
        except BaseException as error:
            for queued in (*self._in_worker.values(), *self._waiting):
                if not queued.answer.done():
                    queued.answer.set_exception(error)
            self._in_worker, self._waiting, self.work = {}, [], 0
            if not isinstance(error, Exception):
                raise
        finally:
            self.serving = None
        self.wake()

    async def _turn(self) -> None:
        dropped = frozenset(number for number, queued in self._in_worker.items() if queued.answer.done())
        for number in dropped:
            self._end(number)
        admitted = self._admitted()
        watched = frozenset(number for number, queued in self._in_worker.items() if queued.watch is not None)
        turn = Turn(admitted, dropped, watched)
        self._flags.set_news(self._rank, False)
        answers = cast(TurnResult, await self._group.call_one(self._rank, "decode", turn))
        for number, partial in answers.partial.items():
            if (watch := self._in_worker[number].watch) is not None:
                watch.show(partial)
        for number, answer in answers.ended.items():
            queued = self._end(number)
            if queued.answer.done():
                continue  # cancelled meanwhile
            if isinstance(answer, ModelError):
                queued.answer.set_exception(answer)
            else:
                queued.answer.set_result(answer)

    def _admitted(self) -> dict[int, GenerateRequest]:
        if not self._open:
            return {}
        self.work -= sum(queued.work for queued in self._waiting if queued.answer.done())
        admitted = {next(self._numbers): queued for queued in self._waiting if not queued.answer.done()}
        self._waiting = []
        self._in_worker |= admitted
        return {number: queued.request for number, queued in admitted.items()}

    def _end(self, number: int) -> QueuedRequest:
        queued = self._in_worker.pop(number)
        self.work -= queued.work
        return queued
