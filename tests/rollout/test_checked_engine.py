"""What an engine answers is checked before anybody sees it, in parts, too."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import cast

import pytest

from slime_core.errors import ContractError, PluginError
from slime_core.roles import (
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    WeightChannel,
)
from tests.rollout.bench import Checked, checked
from tests.tables import table

REQUEST = GenerateRequest([1, 2], SamplingParams(4), 0)
GOOD = GenerateChunk([5, 6], [-0.5, -0.5], 3)
LAST = GenerateChunk([7], [-0.5], 3, FinishReason.STOP)


class Whole:
    """Answers at once."""

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        return GenerateOutput.joined([GOOD, LAST])

    async def abort(self) -> None: ...

    async def close(self) -> None: ...


class Parts(Whole):
    """Gives what it is told to."""

    def __init__(self, chunks: Sequence[object]) -> None:
        self.chunks = chunks
        self.left = False

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        try:
            for chunk in self.chunks:
                yield chunk  # type: ignore[misc]  # also what is none
        finally:
            self.left = True


def streamed(engine: Whole, taken: list[GenerateChunk]) -> None:
    output = asyncio.run(cast(Checked, checked(engine)).generate(REQUEST, taken.append))
    assert output == GenerateOutput.joined(taken)


def test_good_parts_are_passed_on_as_they_are() -> None:
    taken: list[GenerateChunk] = []
    streamed(engine := Parts([GOOD, LAST]), taken)
    assert taken == [GOOD, LAST]
    assert engine.left


def test_an_engine_that_cannot_stream_gives_one_part() -> None:
    taken: list[GenerateChunk] = []
    streamed(Whole(), taken)
    assert taken == [GenerateChunk([5, 6, 7], [-0.5] * 3, 3, FinishReason.STOP)]


@table(
    "bad, said",
    [
        ("</html>", "expected a GenerateChunk, got str"),
        (replace(GOOD, log_probs=[-0.5]), "1 log_probs for 2 tokens"),
        (replace(GOOD, log_probs=[-0.5, float("inf")]), "log_probs holds NaN, infinity"),
        (GenerateChunk([5, 6, 7], [-0.5] * 3, 3), "5 tokens; max_new_tokens is 4"),
        (GenerateChunk([], [], 3), "a part before the last has no tokens"),
        (replace(GOOD, weight_version="3"), "weight_version: expected an int, got str"),
        (replace(GOOD, finish="stop"), "finish: expected a FinishReason, or None before the end, got str"),
    ],
)
def test_a_bad_part_is_refused_by_the_plugin_s_name_and_not_passed_on(bad: object, said: str) -> None:
    taken: list[GenerateChunk] = []
    with pytest.raises(ContractError) as caught:
        streamed(engine := Parts([GOOD, bad, LAST]), taken)
    assert str(caught.value).startswith("engine of plugin tests (stream)")
    assert said in str(caught.value)
    assert taken == [GOOD]
    assert engine.left


def test_parts_without_an_end_are_no_answer() -> None:
    taken: list[GenerateChunk] = []
    with pytest.raises(ContractError, match="ended after 2 tokens without a finish"):
        streamed(Parts([GOOD]), taken)


class Broken(Whole):
    """Raises at everything."""

    async def _fail(self, *given: object) -> None:
        raise OSError("no port")

    start = load_weights = abort = close = watch = release = resume = _fail


@table(
    "method, given",
    [
        ("start", ()),
        ("load_weights", (WeightChannel("nowhere", ()), 1)),
        ("abort", ()),
        ("close", ()),
        ("watch", ()),
        ("release", (frozenset(),)),
        ("resume", (frozenset(),)),
    ],
)
def test_what_raises_is_named_with_its_method(method: str, given: tuple[object, ...]) -> None:
    engine = cast(Checked, checked(Broken()))
    with pytest.raises(PluginError, match=rf"^engine \({method}\) of plugin tests raised OSError"):
        asyncio.run(engine.call(method, *given))


def test_an_engine_that_was_to_give_up_memory_and_cannot_is_named() -> None:
    with pytest.raises(ContractError, match=r"engine 'mine' of plugin tests has no release\(\), which its spec"):
        asyncio.run(cast(Checked, checked(Whole())).call("release", frozenset()))
