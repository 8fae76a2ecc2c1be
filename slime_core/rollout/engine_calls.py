"""Wrappers of an engine: checked answers, calls that can be paused, its state in a pool, the default generator.

An answer is told in parts while it is made, if its caller gives `tell`.

A paused call continues later from its own tokens, with newer weights. Generators do not see the pause; the answer
records which version made which tokens.

Example:

    engine = PausableEngine(CheckedEngine(Used("local", "slime-core", LocalEngine(settings, setup))))
    await engine.pause()                        # interrupts every running call, which then waits
    engine.go_on()
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol, Self, TypeAlias, cast

from slime_core.aio import Cancellation
from slime_core.catalog.catalog import Used
from slime_core.catalog.checks import blaming, check_chunk, check_output
from slime_core.data.rendering import Renderer
from slime_core.data.rows import read_messages, read_tools, refuse_media
from slime_core.errors import ContractError, DataError, WorkerError
from slime_core.roles import (
    Engine,
    EngineExtras,
    EngineSpec,
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


# EngineHandle: one engine of a pool. A request at an engine that is taken out raises `Withdrawn`: another engine must
# answer it. An answer of weights that the engine should no longer, or not yet, serve raises `Lost`.

LEAST_START_S = 600.0
"""Seconds that any engine has to start; the others serve meanwhile."""
Cause: TypeAlias = Literal["died", "hung", "garbage", "errors", "stale"]
"""Why an engine was taken out, as metrics name it."""


class Lost(WorkerError):
    """An engine must be replaced."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail.strip())
        self.cause = cause


class Withdrawn(Exception):
    """The engine of a request was taken out meanwhile; another engine must answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many seconds engines may take."""

    silence_s: float
    """Without any answer while there are requests; also for an abort."""
    restart_s: float
    """Without any engine that serves, until the run ends."""
    probe_s: float
    """For the first answer of an engine that was restarted."""
    load_s: float
    """For loading weights, from the end of the requests that were under way."""

    @classmethod
    def of(cls, spec: EngineSpec, silence_s: float) -> Self:
        """Those that the spec of an engine states."""
        return cls(silence_s, spec.restart_s, spec.probe_s, spec.load_s)

    @property
    def start_s(self) -> float:
        """For starting an engine."""
        return max(LEAST_START_S, self.restart_s)


class _Attempt(Cancellation):
    """A request at an engine that has weights of a version; cancelled when the engine is taken out."""

    __slots__ = ("version",)

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = version


@dataclass(slots=True, eq=False)
class EngineHandle:
    """One engine from its start to its end."""

    number: int
    """Its place in the pool, from 0."""
    engine: Engine
    """Checked."""
    limits: Limits
    """How long it may take."""
    lost: Lost | None = None
    """Why it was taken out; None while it serves."""
    falls: int = 0
    """How often in a row the engine of this number was taken out or failed to start."""
    restart_error: str = ""
    """Why the last engine that was started in its place could not serve."""
    since: float = 0.0
    """Loop time at which it began to serve."""
    attempts: dict[_Attempt, None] = field(default_factory=dict)
    """Its requests under way."""
    work: int = 0
    """Tokens that these may have it compute."""
    strikes: int = 0
    """Requests in a row that it failed."""
    sign: float = 0.0
    """Loop time of its last sign of life."""
    version: int = -1
    """Version of its weights."""
    newest: int = sys.maxsize
    """Version that it was last told to load."""
    answers: int = 0
    """Answers since the last metrics."""
    tokens: int = 0
    """Tokens of these."""
    _earlier: set[_Attempt] = field(default_factory=set)
    """Requests from before `load` that are still under way."""
    _loading: asyncio.Timeout | None = None

    async def generate(self, request: GenerateRequest, tell: Tell | None = None) -> GenerateOutput:
        """One answer; each part is a sign of life, and is told.

        Raises:
            Withdrawn: the engine was taken out meanwhile.
            Lost: the answer was made with the wrong weights.
        """
        work, attempt = len(request.prompt) + request.sampling.max_new_tokens, _Attempt(self.version)
        if not self.attempts:
            self.sign = attempt.task.get_loop().time()
        self.attempts[attempt] = None
        self.work += work
        last: list[GenerateChunk] = []
        try:
            if tell is None:
                output = await self.engine.generate(request)
            else:
                hear = partial(self._hear, attempt, tell, last)
                output = await cast(Answers, self.engine).generate(request, hear)
        except asyncio.CancelledError:
            if attempt.undo():
                raise Withdrawn from None
            raise
        except Exception:
            self._check(attempt)
            raise
        finally:
            del self.attempts[attempt]
            self.work -= work
            self._earlier.discard(attempt)
            self._limit_load()
        self._check(attempt)
        self.strikes = 0
        self.answers += 1
        self.tokens += len(output.tokens)
        self._check_version(output.weight_version, attempt.version)
        for _, version in output.extras.versions if output.extras is not None else ():
            self._check_version(version, attempt.version)
        if tell is not None:
            tell(last[0])
        return output

    def _hear(self, attempt: _Attempt, tell: Tell, last: list[GenerateChunk], chunk: GenerateChunk) -> None:
        self._check(attempt)
        self._check_version(chunk.weight_version, attempt.version)
        if chunk.finish is None:
            tell(chunk)
        else:
            last.append(chunk)  # told once the whole is checked

    def _check(self, attempt: _Attempt) -> None:
        """Note a sign of life. What an engine returns or raises after it was taken out is no answer."""
        if self.lost is not None:
            attempt.undo()
            raise Withdrawn from None
        self.sign = attempt.task.get_loop().time()

    def _check_version(self, version: int, oldest: int) -> None:
        if not oldest <= version <= self.newest:
            expected = f"{oldest}" if oldest == self.newest else f"{oldest} to {self.newest}"
            raise Lost("stale", f"it answered with weights of version {version}, expected {expected}")

    async def load(self, channel: WeightChannel, version: int) -> None:
        """Load weights. The time limit starts when the requests that were under way have ended.

        Raises:
            Lost: it took too long.
            Exception: what the engine raises.
        """
        self.newest, self._earlier = version, set(self.attempts)
        try:
            async with asyncio.timeout(None) as limit:
                self._loading = limit
                self._limit_load()
                await self.engine.load_weights(channel, version)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _hung(f"load_weights({version})", self.limits.load_s) from None
        finally:
            if self.is_loading:  # requests that it held back wait for an answer from now on
                self.sign = asyncio.get_running_loop().time()
            self._loading = None
        self.version = version

    @property
    def is_loading(self) -> bool:
        """Whether it loads weights under their own time limit, and may hold requests back."""
        return self._loading is not None and self._loading.when() is not None

    def _limit_load(self) -> None:
        if self._loading is not None and not self._earlier and self._loading.when() is None:
            self._loading.reschedule(asyncio.get_running_loop().time() + self.limits.load_s)

    def withdraw(self) -> None:
        """Have all requests under way raise `Withdrawn`."""
        for attempt in tuple(self.attempts):
            attempt.cancel()

    def silent_for(self, now: float) -> float:
        """Seconds for which it has answered none of its requests."""
        return now - self.sign if self.attempts and not self.is_loading else 0.0


async def within_s(seconds: float, call: Awaitable[object], what: str) -> None:
    """Await a call of an engine.

    Raises:
        Lost: it took too long.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            await call
    except TimeoutError:
        if not limit.expired():
            raise
        raise _hung(what, seconds) from None


def _hung(what: str, seconds: float) -> Lost:
    return Lost("hung", f"it did not answer {what} within {seconds:g} s")


# SingleTurn: the default generator.

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
