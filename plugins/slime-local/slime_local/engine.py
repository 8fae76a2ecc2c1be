"""The local engine, driver side: distributes the requests of one event-loop tick over worker processes.

Workers decode continuously and admit new requests between two tokens. Each request is answered when it ends; streamed
ones in parts. Requests of one tick with the same prompt go to one worker, which computes the prompt once.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from slime_core.errors import ModelError, WorkerError
from slime_core.roles import (
    EngineSetup,
    Extra,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    MemoryTags,
    WeightChannel,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_local.request_queue import Flags, QueuedRequest, RequestQueue, Watch
from slime_local.settings import LocalEngineSettings

WORKER = "slime_local.engine_worker:EngineWorker"
PRELOAD = ("slime_local._preload",)


class LocalEngine:
    """Engine that generates in worker processes with the weights that they receive."""

    def __init__(self, settings: LocalEngineSettings, setup: EngineSetup) -> None:
        """Store the settings; starts nothing."""
        self._settings = settings
        self._setup = setup
        self._group: WorkerGroup | None = None
        self._flags: Flags | None = None
        self._closed = False
        self._queues: list[RequestQueue] = []
        self._waiting: list[QueuedRequest] = []
        self._switching = asyncio.Lock()

    async def start(self) -> None:
        """Start the workers, each with the model built and no weights yet."""
        path = self._setup.scratch / "engine.flags"
        self._flags = Flags.create(path, self._settings.workers)
        arguments = {
            "hf_checkpoint": self._setup.hf_checkpoint,
            "eos_token_ids": self._setup.eos_token_ids,
            "number": self._setup.number,
            "flags": path,
            "float32_matmul_precision": self._setup.float32_matmul_precision,
            "bf16": self._setup.bf16,
            "device": self._settings.device,
            "max_total_tokens": self._settings.max_total_tokens,
        }
        spec = WorkerGroupSpec(
            self._setup.name,
            self._settings.workers,
            WORKER,
            arguments,
            self._settings.needs,
            colocate_with=self._setup.colocate_with,
            preload=PRELOAD,
        )
        self._group = await self._setup.launcher.start(spec)
        self._queues = [RequestQueue(self._group, rank, self._flags) for rank in range(self._group.size)]

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch every worker to a published version: running requests end with the old one, new requests wait.

        Raises:
            ModelError: the channel's weights are not the model's; names the first that does not fit.
        """
        async with self._idle():
            await self._workers.call("load_weights", [(channel, version)] * self._workers.size)

    async def load_checkpoint(self) -> None:
        """Let every worker read the weights of its model directory, as version 0."""
        async with self._idle():
            await self._workers.call("load_checkpoint")

    async def release(self, tags: MemoryTags) -> None:
        """Free every worker's keys and values after running requests have ended."""
        async with self._idle():
            await self._workers.call("release", [tags] * self._workers.size)

    async def resume(self, tags: MemoryTags) -> None:
        """Do nothing: memory for keys and values is allocated on use."""

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Queue one request; all that are queued in one tick are admitted together.

        Raises:
            ModelError: no tokens in the prompt, or ids that the model does not have.
        """
        queued = self._enqueue(request)
        try:
            return await queued.answer
        finally:
            if queued.answer.cancelled():
                asyncio.get_running_loop().call_soon(self._wake)

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """Stream one request: a part about every `TURN_S`, or every token if a token takes longer.

        Raises:
            ModelError: as `generate` does.
        """
        queued = self._enqueue(request)
        queued.watch = watch = Watch(queued.answer)
        try:
            while True:
                chunk = await watch.take()
                yield chunk
                if chunk.finish is not None:
                    return
        finally:
            if queued.answer.cancel():
                asyncio.get_running_loop().call_soon(self._wake)

    async def abort(self) -> None:
        """End running requests, and requests queued in this tick, at their next token."""
        if self._flags is None:
            return
        self._flags.aborting = True
        while self._waiting or self._serving():
            await asyncio.sleep(0)
            if serving := self._serving():
                await asyncio.wait(serving)
        self._flags.aborting = False

    async def watch(self) -> None:
        """Wait until the engine is closed.

        Raises:
            WorkerError: a worker died between two turns.
        """
        await self._workers.watch()

    async def close(self) -> None:
        """Stop the workers; running requests end with a WorkerError."""
        if self._group is not None:
            await self._group.close()
        await asyncio.gather(*self._serving(), return_exceptions=True)
        self._closed = True
        if self._flags is not None:
            self._flags.close()
            self._flags = None

    def _enqueue(self, request: GenerateRequest) -> QueuedRequest:
        """Queue one request; all that are queued in one tick are admitted together."""
        if self._group is None:
            raise RuntimeError("the engine was not started: await engine.start() first")
        if self._closed:
            raise WorkerError(f"{self._setup.name} is closed")
        if refused := request.unsupported(Extra.PROMPT_LOG_PROBS):
            raise ModelError(
                f"the local engine does not support {', '.join(refused)}; remove it, or choose another engine"
            )
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._dispatch)
        queued = QueuedRequest(request, asyncio.get_running_loop().create_future())
        self._waiting.append(queued)
        return queued

    @property
    def running(self) -> int:
        """Number of requests in the workers."""
        return sum(queue.running for queue in self._queues)

    @property
    def _workers(self) -> WorkerGroup:
        if self._group is None:
            raise RuntimeError("the engine was not started: await engine.start() first")
        return self._group

    def _serving(self) -> "list[asyncio.Task[None]]":
        return [queue.serving for queue in self._queues if queue.serving is not None]

    def _wake(self) -> None:
        for queue in self._queues:
            queue.wake()

    @asynccontextmanager
    async def _idle(self) -> AsyncIterator[None]:
        async with self._switching:
            for queue in self._queues:
                queue.hold(True)
            try:
                while serving := self._serving():
                    await asyncio.wait(serving)
                yield
            finally:
                for queue in self._queues:
                    queue.hold(False)

    def _dispatch(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._closed:
            for queued in waiting:
                if not queued.answer.done():
                    queued.answer.set_exception(WorkerError(f"{self._setup.name} is closed"))
            return
        shares = deal(
            [queued for queued in waiting if not queued.answer.done()], [queue.work for queue in self._queues]
        )
        for queue, share in zip(self._queues, shares, strict=True):
            if share:
                queue.add(share)


def deal(waiting: Sequence[QueuedRequest], work: Sequence[int]) -> list[list[QueuedRequest]]:
    """Split requests over workers: prompts in order of appearance, each to the worker with the least work.

    Args:
        waiting: the requests.
        work: tokens that each worker still has to generate.
    """
    by_prompt: dict[tuple[int, ...], list[QueuedRequest]] = {}
    for queued in waiting:
        by_prompt.setdefault(tuple(queued.request.prompt), []).append(queued)
    shares: list[list[QueuedRequest]] = [[] for _ in work]
    load = list(work)
    for prompt, group in by_prompt.items():
        least = load.index(min(load))
        shares[least] += group
        load[least] += len(prompt) + sum(queued.request.sampling.max_new_tokens for queued in group)
    return shares
