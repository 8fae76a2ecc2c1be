"""Generation without a run: who is asked what, in which order answers come, and what is left when nobody wants more."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

import pytest

from slime_core.errors import WorkerError
from slime_core.roles import (
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from slime_core.sample import GroupId, Json, Message
from slime_local.generate import Asked, Response, responses, text_parts


class Letters:
    """A tokenizer: each id is a letter, and 2 ends a text."""

    eos_token_ids = frozenset({2})

    def encode(self, text: str) -> list[int]:
        return [ord(each) for each in text]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(chr(each) for each in tokens if each not in self.eos_token_ids)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        raise NotImplementedError


class Echo:
    """Answers with the last letter of the prompt, the earlier ones later; an x kills it."""

    def __init__(self) -> None:
        self.requests: list[GenerateRequest] = []
        self.running = 0
        self.left = False

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def abort(self) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.requests.append(request)
        self.running += 1
        try:
            for _ in range(20 - len(self.requests)):
                await asyncio.sleep(0)
            if request.prompt[-1] == ord("x"):
                raise WorkerError("engine 0 died")
            if request.prompt[-1] == ord("w"):
                await asyncio.Event().wait()
            return GenerateOutput([request.prompt[-1], 2], [-0.5, -0.5], FinishReason.STOP, 0)
        finally:
            self.running -= 1

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        self.requests.append(request)
        try:
            yield GenerateChunk([ord("a"), ord("b")], [-0.5, -0.5], 0)
            yield GenerateChunk([ord("c")], [-0.5], 0)
            yield GenerateChunk([2], [-0.5], 0, FinishReason.STOP)
        finally:
            self.left = True


def asked(*prompts: str, samples: int = 1, seed: int = 0) -> Asked:
    return Asked([[ord(each) for each in prompt] for prompt in prompts], SamplingParams(8), samples, seed)


def answers(engine: Echo, of: Asked) -> list[Response]:
    async def go() -> list[Response]:
        return [each async for each in responses(engine, Letters(), of)]

    return asyncio.run(go())


def test_answers_come_in_order_whoever_is_first() -> None:
    engine = Echo()
    found = answers(engine, asked("pa", "pb", samples=2))
    assert [(each.prompt, each.sample, each.text) for each in found] == [
        (0, 0, "a"),
        (0, 1, "a"),
        (1, 0, "b"),
        (1, 1, "b"),
    ]
    assert list(found[0].output.tokens) == [ord("a"), 2]
    assert [list(each.prompt) for each in engine.requests] == [[ord("p"), ord(each)] for each in "aabb"]
    assert [each.group for each in engine.requests] == [GroupId("generate", 0, row, row) for row in (0, 0, 1, 1)]


def test_every_draw_has_a_seed_of_its_own_and_the_same_the_next_time() -> None:
    one, other, third = Echo(), Echo(), Echo()
    answers(one, asked("pa", "pb", samples=2, seed=7))
    answers(other, asked("pa", "pb", samples=2, seed=7))
    answers(third, asked("pa", "pb", samples=2, seed=8))
    seeds = [[each.seed for each in engine.requests] for engine in (one, other, third)]
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 8


def test_what_kills_the_engine_is_raised_and_the_others_end() -> None:
    engine = Echo()

    found: list[str] = []

    async def read() -> None:
        async for each in responses(engine, Letters(), asked("pa", "px", "pw")):
            found.append(each.text)  # noqa: PERF401  # what came before the error is wanted, too

    async def go() -> None:
        with pytest.raises(WorkerError, match="engine 0 died"):
            await read()
        assert (found, engine.running) == (["a"], 0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(go())


def test_a_text_comes_in_parts_with_the_tokens_so_far() -> None:
    engine = Echo()

    async def go() -> None:
        parts = [each async for each in text_parts(engine, Letters(), asked("pa", "pb", samples=3, seed=7))]
        assert "".join(each.text for each in parts) == "abc"
        assert [(each.tokens, each.finish) for each in parts] == [(2, None), (3, None), (4, FinishReason.STOP)]
        assert engine.left

    asyncio.run(go())
    whole = Echo()
    answers(whole, asked("pa", seed=7))
    assert engine.requests == whole.requests
