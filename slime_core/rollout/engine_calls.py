"""Wrappers of an engine: checks of its answers, pause and resume of running calls, single-turn calls.

An answer is told in parts while it is made, if its caller gives `tell`.

A paused call continues later from its own tokens, with newer weights. Generators do not see the pause; the answer
records which version made which tokens.

Example:

    engine = PausableEngine(CheckedEngine(Used("local", "slime-core", LocalEngine(settings, setup))))
    await engine.pause()                        # interrupts every running call, which then waits
    engine.go_on()
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, TypeAlias, cast

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
    StreamsTokens,
    Tokenizer,
    WeightChannel,
)
from slime_core.sample import Sample, Status
from slime_core.seeds import derive_seed

Tell: TypeAlias = Callable[[GenerateChunk], None]
"""Called with each part of an answer as it comes; what it raises ends the call."""


class Answers(Protocol):
    """`Engine.generate` as the core's own engines have it."""

    async def generate(self, request: GenerateRequest, tell: Tell | None = None) -> GenerateOutput: ...


class CheckedEngine:
    """An engine whose answers are checked and whose errors name its plugin. Implements `Engine` and `Answers`.

    Errors of `generate` cost one sample and keep their own type.
    """

    def __init__(self, use: Used[Engine]) -> None:
        self._use = use

    async def start(self) -> None:
        await self._named("start", self._use.part.start())

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        await self._named("load_weights", self._use.part.load_weights(channel, version))

    async def generate(self, request: GenerateRequest, tell: Tell | None = None) -> GenerateOutput:
        """One continuation; each part is checked before it is told. An engine that cannot stream gives one part.

        Raises:
            ContractError: a part, or the whole, breaks the contract.
        """
        engine, plugin = self._use.part, self._use.plugin
        if tell is None or not isinstance(engine, StreamsTokens):
            output = check_output(await engine.generate(request), plugin=plugin, request=request)
            if tell is not None:
                tell(output.as_chunk)
            return output
        chunks, before = list[GenerateChunk](), 0
        async with aclosing(engine.stream(request)) as parts:
            async for part in parts:
                chunk = check_chunk(part, plugin=plugin, request=request, before=before)
                chunks.append(chunk)
                before += len(chunk.tokens)
                if chunk.finish is not None:
                    output = check_output(GenerateOutput.joined(chunks), plugin=plugin, request=request)
                    tell(chunk)
                    return output
                tell(chunk)
        raise ContractError(f"engine of plugin {plugin} (stream): it ended after {before} tokens without a finish")

    async def release(self, tags: MemoryTags) -> None:
        await self._named("release", self._releasing.release(tags))

    async def resume(self, tags: MemoryTags) -> None:
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
        """Raise when the engine dies; wait forever if it cannot notice."""
        if isinstance(self._use.part, NoticesDeath):
            await self._named("watch", self._use.part.watch())
        else:
            await asyncio.Event().wait()

    async def abort(self) -> None:
        await self._named("abort", self._use.part.abort())

    async def close(self) -> None:
        await self._named("close", self._use.part.close())

    async def _named(self, method: str, call: Awaitable[None]) -> None:
        with blaming(f"engine ({method})", self._use.plugin):
            await call


class CheckpointEngine(CheckedEngine):
    """An engine without a trainer: a `ServesCheckpoint` that serves its model directory, whatever is published."""

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        await self._named("load_checkpoint", cast(ServesCheckpoint, self._use.part).load_checkpoint())


class PausableEngine:
    """The `generate` of an engine, whose calls can be paused."""

    def __init__(self, engine: Engine) -> None:
        """`engine` takes `tell` as well, if any call does; see `Answers`."""
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

    async def generate(self, request: GenerateRequest, tell: Tell | None = None) -> GenerateOutput:
        """One continuation, joined from those between pauses. Errors are the engine's."""
        parts, rest, last = list[GenerateOutput](), request, list[GenerateChunk]()

        def hear(chunk: GenerateChunk) -> None:
            if chunk.finish is not None:
                last[:] = [chunk]  # whether the answer ends with it shows only then
            elif tell is not None:
                tell(chunk)

        while True:
            await self._open.wait()
            pauses = self._pauses
            if tell is None:
                part = await self._engine.generate(rest)
            else:
                part = await cast(Answers, self._engine).generate(rest, hear)
            parts.append(part)
            finish: FinishReason | None = part.finish
            if finish is FinishReason.ABORT and self._pauses != pauses:
                self.interrupted += 1
                rest = _after(request, parts)
                finish = None if rest.sampling.max_new_tokens else FinishReason.LENGTH
            if tell is not None and (finish is not None or len(last[0].tokens)):
                extras = last[0].extras if len(parts) == 1 else _extras(parts)
                tell(replace(last[0], finish=finish, extras=None if finish is None else extras))
            if finish is not None:
                return _joined(parts, finish)


def _joined(parts: list[GenerateOutput], finish: FinishReason) -> GenerateOutput:
    if len(parts) == 1:
        return parts[0] if parts[0].finish is finish else replace(parts[0], finish=finish)
    last = parts[-1]
    return GenerateOutput(
        [token for part in parts for token in part.tokens],
        [each for part in parts for each in part.log_probs],
        finish,
        min((version for part in parts for _, version in part.versions), default=last.weight_version),
        last.matched,
        _extras(parts),
    )


def _extras(parts: Sequence[GenerateOutput]) -> EngineExtras | None:
    return EngineExtras.joined([(part.extras, len(part.tokens), part.weight_version) for part in parts])


def _after(request: GenerateRequest, parts: list[GenerateOutput]) -> GenerateRequest:
    """The rest of a request; it draws with another seed."""
    made = [token for part in parts for token in part.tokens]
    asked = request.sampling
    left, least = asked.max_new_tokens - len(made), max(0, asked.min_new_tokens - len(made))
    sampling = replace(asked, max_new_tokens=left, min_new_tokens=least)
    seed = derive_seed(request.seed, len(parts))
    prompt = [*request.prompt, *made]
    return replace(request, prompt=prompt, sampling=sampling, seed=seed, made=request.made + len(made))


STATUS_OF_FINISH = {
    FinishReason.STOP: Status.COMPLETED,
    FinishReason.LENGTH: Status.TRUNCATED,
    FinishReason.ABORT: Status.ABORTED,
}
"""Status of a sample by the finish of its response."""


def response_text(tokenizer: Tokenizer, output: GenerateOutput, sampling: SamplingParams) -> str:
    """The text of a response; `sampling` says whether special tokens and the stop text stay."""
    keep = {} if sampling.skip_special_tokens else {"skip_special_tokens": False}
    text = tokenizer.decode(output.tokens, **keep)
    if isinstance(output.matched, str) and not sampling.no_stop_trim:
        text = text.partition(output.matched)[0]
    return text


class SingleTurn:
    """The default generator: one engine call for the prompt. Implements `slime_core.roles.Generator`."""

    CACHED_PROMPTS = 1024

    def __init__(self) -> None:
        self._ids: dict[str, Sequence[int]] = {}
        self._tokenizer: Tokenizer | None = None
        self._renderer: Renderer | None = None

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        prompt = self._encode(sample, ctx.tokenizer)
        output = await ctx.generate(prompt, ctx.sampling)
        sample.tokens = prompt
        sample.append_response_tokens(output=output, text=response_text(ctx.tokenizer, output, ctx.sampling))
        sample.status = STATUS_OF_FINISH[output.finish]
        return [sample]

    def _encode(self, sample: Sample, tokenizer: Tokenizer) -> Sequence[int]:
        # The samples of a group share one encoding.
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
            DataError: the messages cannot be used.
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
