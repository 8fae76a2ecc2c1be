"""Checks of engines that stream, ENG-022 and ENG-023; a part of `EngineContract`. Others are passed over."""

import asyncio
import inspect
import tempfile
from contextlib import aclosing
from pathlib import Path
from unittest import SkipTest

from slime_core.roles import GenerateChunk, GenerateOutput, SamplingParams, StreamsTokens
from slime_testing._engine_runs import GREEDY, ONE, SAME_LOG_PROB, SAMPLED, EngineRuns
from slime_testing._play import Play
from slime_testing.contract import check, require
from slime_testing.held import SETTLE_S


class StreamingChecks(EngineRuns):
    """Responses in parts."""

    @check("ENG-022", needs=("ENG-001", "ENG-007"))
    def test_the_parts_of_a_response_are_the_whole(self) -> None:
        """`stream` is optional; its chunks, joined, are what `generate` answers, and only the last one has a finish.

        Each but the last has at least one token, each as many log-probs as tokens, and the version that is loaded. One
        chunk may be all: a reader wants to see what there is, and a fast engine has it at once.
        """
        self._needs_streaming()
        asked = (SAMPLED, GREEDY, SamplingParams(self.busy_tokens))

        async def use(play: Play) -> list[tuple[list[GenerateChunk], GenerateOutput]]:
            return [(await play.stream(each), await play.ask(each)) for each in asked]

        for chunks, whole in self._run(use):
            require(chunks, "stream() gave no chunk")
            finishes = [chunk.finish for chunk in chunks]
            require(finishes[-1] is not None, "the last chunk has no finish")
            require(not any(finishes[:-1]), f"chunks before the last have a finish: {finishes}")
            sizes = [len(chunk.tokens) for chunk in chunks]
            require(all(sizes[:-1]), f"chunks before the last are empty; they have {sizes} tokens")
            log_probs = [len(chunk.log_probs) for chunk in chunks]
            require(sizes == log_probs, f"the chunks have {sizes} tokens and {log_probs} log-probs")
            versions = {chunk.weight_version for chunk in chunks}
            require(versions == {0}, f"version 0 is loaded, the chunks say {sorted(versions)}")
            if self.deterministic:
                _require_same(GenerateOutput.joined(chunks), whole)

    @check("ENG-023", needs=("ENG-001", "ENG-014", "ENG-022"))
    def test_a_stream_that_is_left_is_not_carried_on(self) -> None:
        """`aclose` on the iterator, or cancelling who waits for it, drops the request: clean up in a `finally`."""
        self._needs_streaming()
        sampling = SamplingParams(self.busy_tokens)

        async def use(play: Play) -> tuple[int, int, int]:
            await play.ask(ONE)
            before = asyncio.all_tasks()
            async with aclosing(play.open_stream(sampling)) as chunks:
                await play.limited(anext(chunks), "the first chunk of stream()")
            asked = await play.keep_streaming(self.busy_tokens)
            return await self._cancelled(play, asked, before)

        going_on, tasks, running = self._run(use)
        require(going_on == 0, f"{going_on} streams go on {SETTLE_S:g} s after they were cancelled")
        require(tasks == 0, f"{tasks} tasks are left {SETTLE_S:g} s after their streams were")
        require(running == 0, f"{running} requests are running {SETTLE_S:g} s after their streams were left")

    def _needs_streaming(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            setup = self.make_setup(Path(scratch))
            engine = self._build(setup)
            asyncio.run(setup.launcher.close())
        if not isinstance(engine, StreamsTokens):
            raise SkipTest("it has no stream(), which is optional")
        awaited = inspect.iscoroutinefunction(engine.stream)
        require(not awaited, "stream() must be awaited for its iterator; write `async def` with `yield`")


def _require_same(joined: GenerateOutput, whole: GenerateOutput) -> None:
    tokens, expected = list(joined.tokens), list(whole.tokens)
    require(tokens == expected, f"the chunks hold tokens {tokens}, generate() answers {expected}")
    apart = max((abs(one - other) for one, other in zip(joined.log_probs, whole.log_probs, strict=True)), default=0.0)
    require(apart < SAME_LOG_PROB, f"log-probs of the chunks are up to {apart:g} from those that generate() answers")
    ends = [(each.finish, each.matched) for each in (joined, whole)]
    require(ends[0] == ends[1], f"the last chunk says {ends[0]}, generate() answers {ends[1]}")
