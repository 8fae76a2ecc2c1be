"""Jobs: the generations of a server under way: each followed as it is made, aborted by its id, held while it is paused.

Example:

    async for made in jobs.follow(prompt):      # the same object, with more each time
        ...
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from slime_core.roles import FinishReason, GenerateChunk, StreamsTokens
from slime_engine_sglang.serve.bodies import BadRequest, Prompt
from slime_engine_sglang.serve.replies import Made

News = GenerateChunk | Exception | None
"""A part, what ended it, or None: it was aborted."""


class Jobs:
    """What one engine is asked over HTTP."""

    def __init__(self, engine: StreamsTokens) -> None:
        """Nothing is under way."""
        self._engine = engine
        self._news: dict[str, asyncio.Queue[News]] = {}
        self._going = asyncio.Event()
        self._going.set()

    @property
    def count(self) -> int:
        """How many generations are under way or held."""
        return len(self._news)

    def abort(self, rid: str | None = None) -> None:
        """End one, or all, with what there is; one that is not there is passed over."""
        for each in [*self._news] if rid is None else [rid] if rid in self._news else []:
            self._news[each].put_nowait(None)

    def pause(self) -> None:
        """Begin nothing more."""
        self._going.clear()

    def go_on(self) -> None:
        """Begin again."""
        self._going.set()

    async def follow(self, prompt: Prompt) -> AsyncGenerator[Made, None]:
        """Carry one out: what there is so far, each time that it has more; the last has a finish.

        Raises:
            BadRequest: another one with its id is under way.
            SlimeError: the engine's.
        """
        if prompt.rid in self._news:
            raise BadRequest(f"rid {prompt.rid!r} is under way already; give each request one of its own")
        news = self._news[prompt.rid] = asyncio.Queue()
        made, reading = Made(), asyncio.create_task(self._read(prompt, news))
        try:
            while made.finish is None:
                match await news.get():
                    case None:
                        made.finish = FinishReason.ABORT
                    case Exception() as error:
                        raise error
                    case GenerateChunk() as chunk:
                        made.tokens += chunk.tokens
                        made.log_probs += chunk.log_probs
                        made.finish, made.matched, made.extras = chunk.finish, chunk.matched, chunk.extras
                        made.version = chunk.weight_version
                yield made
        finally:
            del self._news[prompt.rid]
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(self, prompt: Prompt, news: "asyncio.Queue[News]") -> None:
        await self._going.wait()
        try:
            async for chunk in self._engine.stream(prompt.request):
                news.put_nowait(chunk)
        except Exception as error:
            news.put_nowait(error)
