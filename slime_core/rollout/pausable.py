"""PausableEngine: calls of an engine can be interrupted and go on later, with newer weights; generators notice nothing.

An interrupted call is continued from its own tokens with what is left of its budget. Its answer is then of several
versions of the weights: it carries the oldest one, or, where the tokens made before the last interruption are not to
be trained on, the newest one and the number of the stale tokens.

Example:

    engine = PausableEngine(engine, mask_stale=False)
    await engine.pause()                        # every call under way ends, and waits
    await engine.load_weights(channel, 4)
    engine.go_on()
"""

import asyncio
from dataclasses import dataclass, replace

from slime_core.roles import Engine, FinishReason, GenerateOutput, GenerateRequest
from slime_core.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Continued(GenerateOutput):
    """An answer in several parts."""

    stale: int = 0
    """Leading tokens that are not to be trained on."""


class PausableEngine:
    """The `generate` of an engine."""

    def __init__(self, engine: Engine, *, mask_stale: bool) -> None:
        """Wrap an engine; it is open."""
        self.interrupted = 0
        """Calls that were interrupted so far."""
        self._engine = engine
        self._mask_stale = mask_stale
        self._pauses = 0
        self._open = asyncio.Event()
        self._open.set()

    async def pause(self) -> None:
        """Interrupt the calls under way, and hold back new ones."""
        self._open.clear()
        self._pauses += 1
        await self._engine.abort()

    def go_on(self) -> None:
        """Let all calls go on."""
        self._open.set()

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """One continuation, in as many parts as pauses made of it. Errors are the engine's."""
        parts: list[GenerateOutput] = []
        rest = request
        while True:
            await self._open.wait()
            pauses = self._pauses
            part = await self._engine.generate(rest)
            parts.append(part)
            if part.finish is not FinishReason.ABORT or self._pauses == pauses:
                return parts[0] if len(parts) == 1 else self._joined(parts)
            self.interrupted += 1
            rest = _after(request, parts)
            if rest.sampling.max_new_tokens == 0:
                return self._joined([*parts[:-1], replace(part, finish=FinishReason.LENGTH)])

    def _joined(self, parts: list[GenerateOutput]) -> GenerateOutput:
        filled = [part for part in parts if part.tokens] or parts[-1:]
        newest = filled[-1].weight_version
        stale = sum(len(part.tokens) for part in filled if part.weight_version != newest)
        return Continued(
            [token for part in parts for token in part.tokens],
            [each for part in parts for each in part.log_probs],
            parts[-1].finish,
            newest if self._mask_stale else min(part.weight_version for part in filled),
            matched=parts[-1].matched,
            stale=stale if self._mask_stale else 0,
        )


def _after(request: GenerateRequest, parts: list[GenerateOutput]) -> GenerateRequest:
    """The rest of a request; its draws are others than those that were made."""
    made = [token for part in parts for token in part.tokens]
    asked = request.sampling
    left, least = asked.max_new_tokens - len(made), max(0, asked.min_new_tokens - len(made))
    sampling = replace(asked, max_new_tokens=left, min_new_tokens=least)
    seed = derive_seed(request.seed, len(parts))
    prompt = [*request.prompt, *made]
    return replace(request, prompt=prompt, sampling=sampling, seed=seed, made=request.made + len(made))
