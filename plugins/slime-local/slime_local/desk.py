"""Desk: the requests of one worker, on the driver's side: what waits, what is under way, what nobody wants any more.

A worker is called for a turn at a time: it is told what is new, goes on decoding, and answers what has ended, and how
far those are that are watched. What comes meanwhile waits for the next turn, which a flag brings about soon.
"""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from slime_core.errors import ModelError
from slime_core.roles import GenerateOutput, GenerateRequest, WorkerGroup
from slime_local.flags import Flags
from slime_local.turn import Answers, Turn
from slime_local.watch import Watch


@dataclass(slots=True)
class Asked:
    """A request and where its answer goes."""

    request: GenerateRequest
    answer: asyncio.Future[GenerateOutput]
    watch: Watch | None = None
    """Shown what there is so far, if given."""

    @property
    def work(self) -> int:
        """Tokens that it may cost."""
        return len(self.request.prompt) + self.request.sampling.max_new_tokens


class Desk:
    """What one worker is asked."""

    def __init__(self, group: WorkerGroup, rank: int, flags: Flags) -> None:
        """Nothing is asked yet."""
        self.work = 0
        """Tokens that what is asked may cost."""
        self.serving: asyncio.Task[None] | None = None
        """Ends when nothing is under way any more, and nothing may begin."""
        self._group, self._rank, self._flags = group, rank, flags
        self._waiting: list[Asked] = []
        self._under_way: dict[int, Asked] = {}
        self._numbers = itertools.count()
        self._open = True

    @property
    def running(self) -> int:
        """Requests that the worker is at."""
        return len(self._under_way)

    def add(self, asked: Sequence[Asked]) -> None:
        """Have some more decoded, at once or after the turn under way."""
        self._waiting += asked
        self.work += sum(each.work for each in asked)
        self.wake()

    def hold(self, held: bool) -> None:
        """Begin nothing new, or go on."""
        self._open = not held
        self.wake()

    def wake(self) -> None:
        """Something is new: end the turn under way soon, or begin one."""
        if self.serving is not None:
            self._flags.set_news(self._rank, True)
        elif self._open and self._waiting:
            self.serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while (self._open and self._waiting) or self._under_way:
                await self._turn()
        except BaseException as error:
            for asked in (*self._under_way.values(), *self._waiting):
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            self._under_way, self._waiting, self.work = {}, [], 0
            if not isinstance(error, Exception):
                raise
        finally:
            self.serving = None
        self.wake()

    async def _turn(self) -> None:
        dropped = frozenset(number for number, asked in self._under_way.items() if asked.answer.done())
        for number in dropped:
            self._end(number)
        admitted = self._admitted()
        watched = frozenset(number for number, asked in self._under_way.items() if asked.watch is not None)
        turn = Turn(admitted, dropped, watched)
        self._flags.set_news(self._rank, False)
        answers = cast(Answers, await self._group.call_one(self._rank, "decode", turn))
        for number, so_far in answers.so_far.items():
            if (watch := self._under_way[number].watch) is not None:
                watch.show(so_far)
        for number, answer in answers.ended.items():
            asked = self._end(number)
            if asked.answer.done():
                continue  # cancelled meanwhile
            if isinstance(answer, ModelError):
                asked.answer.set_exception(answer)
            else:
                asked.answer.set_result(answer)

    def _admitted(self) -> dict[int, GenerateRequest]:
        if not self._open:
            return {}
        self.work -= sum(asked.work for asked in self._waiting if asked.answer.done())
        admitted = {next(self._numbers): asked for asked in self._waiting if not asked.answer.done()}
        self._waiting = []
        self._under_way |= admitted
        return {number: asked.request for number, asked in admitted.items()}

    def _end(self, number: int) -> Asked:
        asked = self._under_way.pop(number)
        self.work -= asked.work
        return asked
