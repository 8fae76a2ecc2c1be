"""Watch: one response in parts. A desk shows all that there is so far, a stream takes what is new since it last took.

watch = Watch(answer)                      # the future that the whole response comes by
watch.show(so_far)                         # 40 tokens, and later 90: one part of 90 for a stream that was slow
chunk = await watch.take()
"""

import asyncio
from dataclasses import replace

from slime_core.roles import GenerateChunk, GenerateOutput


class Watch:
    """Between the desk of one request and whoever streams it."""

    def __init__(self, answer: asyncio.Future[GenerateOutput]) -> None:
        """Nothing is there yet."""
        self._answer = answer
        self._so_far: GenerateChunk | None = None
        self._taken = 0
        self._news = asyncio.Event()
        answer.add_done_callback(self._over)

    def show(self, so_far: GenerateChunk) -> None:
        """Put in place of what was there before: all tokens so far."""
        self._so_far = so_far
        self._news.set()

    def _over(self, answer: asyncio.Future[GenerateOutput]) -> None:
        self._news.set()
        if not answer.cancelled():
            answer.exception()  # seen: asyncio complains of an error that nobody took, as after an early end

    async def take(self) -> GenerateChunk:
        """Wait for what is new; the last part has the finish.

        Raises:
            SlimeError: the request's.
        """
        while not self._answer.done():
            if self._so_far is not None and len(self._so_far.tokens) > self._taken:
                return self._rest(self._so_far)
            await self._news.wait()
            self._news.clear()
        output = self._answer.result()
        return self._rest(output.as_chunk)

    def _rest(self, whole: GenerateChunk) -> GenerateChunk:
        begin, self._taken = self._taken, len(whole.tokens)
        tokens, log_probs = whole.tokens[begin:], whole.log_probs[begin:]
        return replace(whole, tokens=tokens, log_probs=log_probs)
