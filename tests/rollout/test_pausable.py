"""Interrupted calls go on with what they have made, as far as their settings count it."""

import asyncio
from dataclasses import replace

from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, SamplingParams, WeightChannel
from slime_core.rollout.pausable import PausableEngine


class Halting:
    """Ends every call with an abort after three tokens, but the last one."""

    def __init__(self) -> None:
        self.requests: list[GenerateRequest] = []
        self.pausable: PausableEngine | None = None

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def close(self) -> None: ...

    async def abort(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.requests.append(request)
        number = len(self.requests)
        tokens = [10 * number, 10 * number + 1, 10 * number + 2]
        if number == 3:
            return GenerateOutput(tokens, [-1.0] * 3, FinishReason.STOP, number, "END")
        assert self.pausable is not None
        await self.pausable.pause()
        self.pausable.go_on()
        return GenerateOutput(tokens, [-1.0] * 3, FinishReason.ABORT, number)


def test_penalties_stops_and_the_least_length_count_what_was_made_before() -> None:
    engine = Halting()
    engine.pausable = PausableEngine(engine, mask_stale=False)
    sampling = SamplingParams(20, min_new_tokens=5, presence_penalty=1.0, stop=("END",))
    output = asyncio.run(engine.pausable.generate(GenerateRequest([1, 2], sampling, 7)))
    assert list(output.tokens) == [10, 11, 12, 20, 21, 22, 30, 31, 32]
    assert (output.finish, output.matched, output.weight_version) == (FinishReason.STOP, "END", 1)
    first, second, third = engine.requests
    assert (first.made, second.made, third.made) == (0, 3, 6)
    assert list(third.prompt) == [1, 2, 10, 11, 12, 20, 21, 22]
    assert second.sampling == replace(sampling, max_new_tokens=17, min_new_tokens=2)
    assert third.sampling == replace(sampling, max_new_tokens=14, min_new_tokens=0)
