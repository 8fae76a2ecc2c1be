"""EngineHandle: one engine of a pool, with its checks, limits and requests.

A request raises `EngineReplaced` when its engine is taken out; another engine must then answer it.

Example:

    handle = EngineHandle(0, BuiltChoice("local", "slime-local", engine), Limits.of(spec, silence_s=300.0))
    await handle.call("start", limit_s=600.0)
    output = await handle.generate(request)
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias

from slime_core.aio import Cancellation
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import check_chunk, check_output, plugin_errors
from slime_core.errors import ContractError, WorkerError
from slime_core.roles import (
    Engine,
    EngineSpec,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    StreamsTokens,
    WeightChannel,
)
from slime_core.rollout.calls import OnChunk

LEAST_START_S = 600.0
"""Minimum start timeout of an engine in seconds; a spec may allow more."""
Cause: TypeAlias = Literal["died", "hung", "garbage", "errors", "stale"]
"""Why an engine was taken out, as named in metrics."""


class EngineFailure(WorkerError):
    """The engine failed and must be replaced."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail.strip())
        self.cause = cause


class EngineReplaced(Exception):
    """The engine of a request was taken out before it answered; another engine must answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of engines, in seconds."""

    silence_s: float
    """Time without any answer while there are requests; also the limit of an abort."""
    restart_s: float
    """Time without a serving engine after which the run ends."""
    probe_s: float
    """Time for the first answer of a restarted engine."""
    load_s: float
    """Time to load weights, counted from the end of the requests in progress."""

    @classmethod
    def of(cls, spec: EngineSpec, silence_s: float) -> Self:
        """Limits that the spec of an engine states."""
        return cls(silence_s, spec.restart_s, spec.probe_s, spec.load_s)

    @property
    def start_s(self) -> float:
        """Time to start an engine."""
        return max(LEAST_START_S, self.restart_s)


class _Attempt(Cancellation):
    """A request at one engine; cancelled when the engine is taken out."""

    __slots__ = ("requested_version", "version")

    def __init__(self, version: int, requested_version: int) -> None:
        super().__init__()
        self.version = version
        """Version of the engine's weights when the request began."""
        self.requested_version = requested_version
        """Version that the engine was last asked to load, at that time."""


@dataclass(slots=True, eq=False)
class EngineHandle:
    """One engine of a pool, from start to close. Checks its answers, and names its plugin in errors."""

    number: int
    """Its index in the pool, from 0."""
    use: BuiltChoice[Engine]
    """The engine and its plugin."""
    limits: Limits
    """Its time limits."""
    loads_checkpoint: bool = False
    """Whether it is a `ServesCheckpoint`, which serves its model directory instead of published weights."""
    failure: EngineFailure | None = None
    """Why it was taken out; None while it serves."""
    failures: int = 0
    """How many times in a row the engine with this number was taken out or failed to start."""
    restart_error: str = ""
    """Why its last replacement could not serve."""
    since: float = 0.0
    """Loop time at which it began to serve."""
    attempts: dict[_Attempt, None] = field(default_factory=dict)
    """Its requests in progress."""
    work: int = 0
    """Most tokens that these requests may still make it compute."""
    errors_in_a_row: int = 0
    """Requests in a row that failed on it."""
    last_progress: float = 0.0
    """Loop time at which it last made progress."""
    version: int = -1
    """Version of its weights."""
    requested_version: int = sys.maxsize
    """Version that it was last asked to load."""
    answers: int = 0
    """Answers since the last metrics."""
    tokens: int = 0
    """Tokens of these answers."""
    _loading: asyncio.Timeout | None = None

    async def call(self, method: str, *arguments: object, limit_s: float | None = None) -> None:
        """Call a method of the engine other than `generate`, with a time limit.

        Raises:
            EngineFailure: it took too long.
            ContractError: the engine has no such method.
            PluginError: it raised.
        """
        call: Callable[..., Awaitable[None]] | None = getattr(self.use.part, method, None)
        if call is None:
            raise ContractError(
                f"engine {self.use.name!r} of plugin {self.use.plugin} has no {method}(), which its spec promises"
            )
        try:
            async with asyncio.timeout(limit_s):
                with plugin_errors(f"engine ({method})", self.use.plugin):
                    await call(*arguments)
        except TimeoutError:
            raise EngineFailure("hung", f"it did not answer {method}() within {limit_s:g} s") from None

    async def generate(self, request: GenerateRequest, on_chunk: OnChunk | None = None) -> GenerateOutput:
        """Return one checked answer; each part counts as progress. `on_chunk` gets an unstreamed answer as one part.

        Raises:
            EngineReplaced: the engine was taken out before it answered. Another engine must answer.
            EngineFailure: the answer was made with weights that the engine must not serve any more, or not yet.
            ContractError: a part, or the whole, breaks the contract.
        """
        work = len(request.prompt) + request.sampling.max_new_tokens
        attempt = _Attempt(self.version, self.requested_version)
        if not self.attempts:
            self.last_progress = attempt.task.get_loop().time()
        self.attempts[attempt] = None
        self.work += work
        try:
            output, last = await self._answer(request, attempt, on_chunk)
        except asyncio.CancelledError:
            if attempt.undo():
                raise EngineReplaced from None
            raise
        except Exception:
            self._check(attempt)
            raise
        finally:
            del self.attempts[attempt]
            self.work -= work
        self._check(attempt)
        self.errors_in_a_row = 0
        self.answers += 1
        self.tokens += len(output.tokens)
        self._check_version(output.weight_version, attempt.version)
        for _, version in output.extras.versions if output.extras is not None else ():
            self._check_version(version, attempt.version)
        if on_chunk is not None:
            on_chunk(last or output.as_chunk)
        return output

    async def _answer(
        self, request: GenerateRequest, attempt: _Attempt, on_chunk: OnChunk | None
    ) -> tuple[GenerateOutput, GenerateChunk | None]:
        """The checked answer, and its last part if it was streamed. Earlier parts go to `on_chunk`."""
        engine, plugin = self.use.part, self.use.plugin
        if on_chunk is None or not isinstance(engine, StreamsTokens):
            return check_output(await engine.generate(request), plugin=plugin, request=request), None
        chunks, tokens_before = list[GenerateChunk](), 0
        async with aclosing(engine.stream(request)) as parts:
            async for part in parts:
                self._check(attempt)
                chunk = check_chunk(part, plugin=plugin, request=request, tokens_before=tokens_before)
                self._check_version(chunk.weight_version, attempt.version)
                chunks.append(chunk)
                tokens_before += len(chunk.tokens)
                if chunk.finish is not None:
                    return check_output(GenerateOutput.joined(chunks), plugin=plugin, request=request), chunk
                on_chunk(chunk)
        raise ContractError(
            f"engine of plugin {plugin} (stream): it ended after {tokens_before} tokens without a finish"
        )

    def _check(self, attempt: _Attempt) -> None:
        """Record progress; raises if the engine was taken out, since nothing it returns or raises afterwards counts."""
        if self.failure is not None:
            attempt.undo()
            raise EngineReplaced from None
        self.last_progress = attempt.task.get_loop().time()

    def _check_version(self, version: int, oldest: int) -> None:
        if not oldest <= version <= self.requested_version:
            expected = f"{oldest}" if oldest == self.requested_version else f"{oldest} to {self.requested_version}"
            raise EngineFailure("stale", f"it answered with weights of version {version}, expected {expected}")

    async def load(self, channel: WeightChannel, version: int) -> None:
        """Load weights. The time limit starts when the requests in progress have ended.

        Raises:
            EngineFailure: it took too long.
            Exception: what the engine raises.
        """
        self.requested_version = version
        try:
            async with asyncio.timeout(None) as self._loading:
                self.limit_load()
                if self.loads_checkpoint:
                    await self.call("load_checkpoint")
                else:
                    await self.call("load_weights", channel, version)
        except TimeoutError:
            raise EngineFailure(
                "hung", f"it did not answer load_weights({version}) within {self.limits.load_s:g} s"
            ) from None
        finally:
            if self.is_loading:  # requests that it held back are waiting from now on
                self.last_progress = asyncio.get_running_loop().time()
            self._loading = None
        self.version = version

    def limit_load(self) -> None:
        """Start the time limit of a load, if the earlier requests have ended."""
        limit = self._loading
        if not limit or limit.when() is not None:
            return
        if all(each.requested_version == self.requested_version for each in self.attempts):
            limit.reschedule(asyncio.get_running_loop().time() + self.limits.load_s)

    @property
    def is_loading(self) -> bool:
        """Whether it is loading weights within the load's time limit, and may hold requests back."""
        return self._loading is not None and self._loading.when() is not None

    def cancel_requests(self) -> None:
        """Make all requests in progress raise `EngineReplaced`."""
        for attempt in tuple(self.attempts):
            attempt.cancel()

    def silent_for(self, now: float) -> float:
        """Seconds since it last made progress on a request."""
        return now - self.last_progress if self.attempts and not self.is_loading else 0.0
