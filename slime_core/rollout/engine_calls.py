"""Wrappers of an engine: checks of its answers, pause and resume of running calls, streamed text, single-turn calls.

A paused call continues later from its own tokens, with newer weights. Generators do not see the pause; the answer
records which version made which tokens.

Example:

    engine = PausableEngine(CheckedEngine(Used("local", "slime-core", LocalEngine(settings, setup))))
    await engine.pause()                        # interrupts every running call, which then waits
    await engine.load_weights(channel, 4)
    engine.go_on()
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from slime_core.catalog.catalog import Used
from slime_core.catalog.checks import blaming, check_chunk, check_output
from slime_core.data.rendering import Renderer
from slime_core.data.rows import read_messages, read_tools, refuse_media
from slime_core.errors import ContractError, DataError
from slime_core.roles import (
    Engine,
    EngineExtras,
    FinishReason,
    GenerateChunk,
    GenerateContext,
    GenerateOutput,
    GenerateRequest,
    MemoryTags,
    NoticesDeath,
    ReleasesMemory,
    SamplingParams,
    ServesCheckpoint,
    Tokenizer,
    WeightChannel,
)
from slime_core.rollout.policy import parts_of
from slime_core.sample import Sample, Status
from slime_core.seeds import derive_seed

# CheckedEngine: a run's engine, its answers checked and its errors named.


class CheckedEngine:
    """Implements `slime_core.roles.Engine` and `StreamsTokens`."""

    def __init__(self, use: Used[Engine]) -> None:
        """Wrap an engine."""
        self._use = use

    async def start(self) -> None:
        """Start it."""
        await self._named("start", self._use.part.start())

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch to a version."""
        await self._named("load_weights", self._use.part.load_weights(channel, version))

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """One continuation; what it raises costs one sample, under its own name.

        Raises:
            ContractError: the answer breaks the contract.
        """
        return check_output(await self._use.part.generate(request), plugin=self._use.plugin, request=request)

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """The same in parts, each checked before it is passed on; one part of an engine that cannot stream.

        Raises:
            ContractError: a part, or the whole, breaks the contract.
        """
        plugin, chunks, before = self._use.plugin, list[GenerateChunk](), 0
        async with aclosing(parts_of(self._use.part, request)) as parts:
            async for part in parts:
                chunk = check_chunk(part, plugin=plugin, request=request, before=before)
                chunks.append(chunk)
                before += len(chunk.tokens)
                if chunk.finish is not None:
                    check_output(GenerateOutput.joined(chunks), plugin=plugin, request=request)
                    yield chunk
                    return
                yield chunk
        raise ContractError(f"engine of plugin {plugin} (stream): it ended after {before} tokens without a finish")

    async def release(self, tags: MemoryTags) -> None:
        """Have it give memory up."""
        await self._named("release", self._releasing.release(tags))

    async def resume(self, tags: MemoryTags) -> None:
        """Have it take memory back."""
        await self._named("resume", self._releasing.resume(tags))

    @property
    def _releasing(self) -> ReleasesMemory:
        if not isinstance(self._use.part, ReleasesMemory):
            raise ContractError(
                f"engine {self._use.name!r} of plugin {self._use.plugin}: its spec says what it releases, but it has "
                "no release and resume (slime_core.roles.ReleasesMemory)"
            )
        return self._use.part

    async def watch(self) -> None:
        """Wait for its end; for ever, if it cannot tell of it."""
        if isinstance(self._use.part, NoticesDeath):
            await self._named("watch", self._use.part.watch())
        else:
            await asyncio.Event().wait()

    async def abort(self) -> None:
        """Interrupt what runs."""
        await self._named("abort", self._use.part.abort())

    async def close(self) -> None:
        """Stop it."""
        await self._named("close", self._use.part.close())

    async def _named(self, method: str, call: Awaitable[None]) -> None:
        with blaming(f"engine ({method})", self._use.plugin):
            await call


class CheckpointEngine(CheckedEngine):
    """The same without a trainer: an engine that is a `ServesCheckpoint`, and whatever is published, it serves that."""

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Serve the weights of the model directory."""
        await self._named("load_checkpoint", cast(ServesCheckpoint, self._use.part).load_checkpoint())


# PausableEngine: calls of an engine can be interrupted and go on later, with newer weights; generators notice
# nothing.


class PausableEngine:
    """The `generate` and `stream` of an engine."""

    def __init__(self, engine: Engine) -> None:
        """Wrap an engine; it is open."""
        self.interrupted = 0
        """Calls that were interrupted so far."""
        self._engine = engine
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
                return _joined(parts)
            self.interrupted += 1
            rest = _after(request, parts)
            if rest.sampling.max_new_tokens == 0:
                return _joined([*parts[:-1], replace(part, finish=FinishReason.LENGTH)])

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """The same in parts; the last one says which weights made which tokens. Errors are the engine's."""
        parts: list[GenerateOutput] = []
        rest = request
        while True:
            await self._open.wait()
            pauses = self._pauses
            chunks: list[GenerateChunk] = []
            async with aclosing(parts_of(self._engine, rest)) as made:
                async for chunk in made:
                    chunks.append(chunk)
                    if chunk.finish is None:
                        yield chunk
            parts.append(GenerateOutput.joined(chunks))
            last = chunks[-1] if len(parts) == 1 else replace(chunks[-1], extras=_extras(parts))
            if last.finish is not FinishReason.ABORT or self._pauses == pauses:
                yield last
                return
            self.interrupted += 1
            rest = _after(request, parts)
            if rest.sampling.max_new_tokens == 0:
                yield replace(last, finish=FinishReason.LENGTH)
                return
            if len(last.tokens):
                yield replace(last, finish=None, extras=None)


def _joined(parts: list[GenerateOutput]) -> GenerateOutput:
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    return GenerateOutput(
        [token for part in parts for token in part.tokens],
        [each for part in parts for each in part.log_probs],
        last.finish,
        min((version for part in parts for _, version in part.versions), default=last.weight_version),
        last.matched,
        _extras(parts),
    )


def _extras(parts: Sequence[GenerateOutput]) -> EngineExtras | None:
    return EngineExtras.joined([(part.extras, len(part.tokens), part.weight_version) for part in parts])


def _after(request: GenerateRequest, parts: list[GenerateOutput]) -> GenerateRequest:
    """The rest of a request; its draws are others than those that were made."""
    made = [token for part in parts for token in part.tokens]
    asked = request.sampling
    left, least = asked.max_new_tokens - len(made), max(0, asked.min_new_tokens - len(made))
    sampling = replace(asked, max_new_tokens=left, min_new_tokens=least)
    seed = derive_seed(request.seed, len(parts))
    prompt = [*request.prompt, *made]
    return replace(request, prompt=prompt, sampling=sampling, seed=seed, made=request.made + len(made))


# SingleTurn: the default generator: encode the prompt, one engine call, decode the response.

STATUS_OF_FINISH = {
    FinishReason.STOP: Status.COMPLETED,
    FinishReason.LENGTH: Status.TRUNCATED,
    FinishReason.ABORT: Status.ABORTED,
}
"""What a response's end makes of its sample."""


def response_text(tokenizer: Tokenizer, output: GenerateOutput, sampling: SamplingParams) -> str:
    """The text of a response, with or without special tokens and the stop text that ended it, as was asked."""
    text = text_of(tokenizer, output.tokens, sampling)
    if isinstance(output.matched, str) and not sampling.no_stop_trim:
        text = text.partition(output.matched)[0]
    return text


def text_of(tokenizer: Tokenizer, tokens: Sequence[int], sampling: SamplingParams) -> str:
    """Tokens as text, special ones left out or not, as was asked."""
    if sampling.skip_special_tokens:
        return tokenizer.decode(tokens)
    return tokenizer.decode(tokens, skip_special_tokens=False)


class SingleTurn:
    """Implements `slime_core.roles.Generator`."""

    CACHED_PROMPTS = 1024

    def __init__(self) -> None:
        """Nothing is encoded yet."""
        self._ids: dict[str, Sequence[int]] = {}
        self._tokenizer: Tokenizer | None = None
        self._renderer: Renderer | None = None

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """One response to `sample.prompt`, text or messages."""
        prompt = self._encode(sample, ctx.tokenizer)
        output = await ctx.generate(prompt, ctx.sampling)
        sample.tokens = prompt
        sample.append_response_tokens(output=output, text=response_text(ctx.tokenizer, output, ctx.sampling))
        sample.status = STATUS_OF_FINISH[output.finish]
        return [sample]

    def _encode(self, sample: Sample, tokenizer: Tokenizer) -> Sequence[int]:
        """Ids of the prompt; the samples of a group share one encoding."""
        text = self.prompt_text(sample, tokenizer)
        if tokenizer is not self._tokenizer or len(self._ids) >= self.CACHED_PROMPTS:
            self._ids, self._tokenizer = {}, tokenizer
        ids = self._ids.get(text)
        if ids is None:
            ids = self._ids[text] = tuple(tokenizer.encode(text))
        return ids

    def prompt_text(self, sample: Sample, tokenizer: Tokenizer) -> str:
        """What the model continues: a text prompt as it is, messages rendered.

        Raises:
            DataError: the messages cannot be used, as those of a row that is rendered when it is read.
            ModelError: the model has no chat template.
        """
        messages = sample.prompt
        if isinstance(messages, str):
            return messages
        kwargs = sample.apply_chat_template_kwargs
        if self._renderer is None or not self._renderer.is_of(tokenizer, kwargs):
            self._renderer = Renderer(tokenizer, kwargs)
        read, tools = read_messages([*messages], "prompt"), read_tools(sample.metadata.get("tools"), "tools")
        if read and read[-1]["role"] == "assistant":
            raise DataError("the prompt ends with an assistant message: remove it, or make the prompt a text")
        refuse_media(read)
        return self._renderer.prompt(read, tools).text


# StreamedText: the text of a response that comes in parts, as far as nothing that is still to come can change it.

CUT = "\ufffd"
"""What a tokenizer makes of bytes that are not a character, or not yet."""


class StreamedText:
    """The text of one response."""

    def __init__(self, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        """Nothing has come yet."""
        self._tokenizer, self._sampling = tokenizer, sampling
        self._stops = () if sampling.no_stop_trim else sampling.stop
        self._chunks: list[GenerateChunk] = []
        self._shown = ""

    def add(self, chunk: GenerateChunk) -> str:
        """What is to be shown after this part, and was not before; after the last one, all that is left.

        A tokenizer whose text of more tokens does not begin with that of fewer has the whole text on a new line then.
        """
        self._chunks.append(chunk)
        if chunk.finish is not None:
            text = response_text(self._tokenizer, GenerateOutput.joined(self._chunks), self._sampling)
            return text[len(self._shown) :] if text.startswith(self._shown) else f"\n{text}"
        tokens = [token for each in self._chunks for token in each.tokens]
        text = before_stops(text_of(self._tokenizer, tokens, self._sampling).rstrip(CUT), self._stops)
        if not text.startswith(self._shown):
            return ""
        new, self._shown = text[len(self._shown) :], text
        return new


def before_stops(text: str, stops: Sequence[str]) -> str:
    """The text up to the first of the texts that it holds, or to the longest end that one of them begins with."""
    ends = [len(text)]
    for stop in stops:
        ends += [found] if (found := text.find(stop)) >= 0 else []
        ends += [len(text) - size for size in range(1, len(stop)) if text.endswith(stop[:size])]
    return text[: min(ends)]
