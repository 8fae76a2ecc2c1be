"""Generation without a run: an engine that dies ends the requests under way, after the answers before them."""

import asyncio

import pytest

from slime_core.errors import WorkerError
from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, SamplingParams, WeightChannel
from slime_local.generate import PromptBatch, responses
from slime_testing import CharTokenizer


class Echo:
    """Answers with the last letter of the prompt; an x kills it, and a w is never answered."""

    def __init__(self) -> None:
        self.running = 0

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def abort(self) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.running += 1
        letter = chr(request.prompt[-1])
        try:
            for _ in range(19 if letter == "x" else 1):
                await asyncio.sleep(0)
            if letter == "x":
                raise WorkerError("engine 0 died")
            if letter == "w":
                await asyncio.Event().wait()
            return GenerateOutput([ord(letter), 0], [-0.5, -0.5], FinishReason.STOP, 0)
        finally:
            self.running -= 1


def test_what_kills_the_engine_is_raised_and_the_others_end() -> None:
    engine, found, tokenizer = Echo(), list[str](), CharTokenizer()
    asked = PromptBatch([tokenizer.encode(prompt) for prompt in ("pa", "px", "pw")], SamplingParams(8), 1, 0)

    async def read() -> None:
        async for each in responses(engine, tokenizer, asked):
            found.append(each.text)  # what came before the error is wanted, too

    async def go() -> None:
        with pytest.raises(WorkerError, match="engine 0 died"):
            await read()
        assert (found, engine.running) == (["a"], 0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(go())
