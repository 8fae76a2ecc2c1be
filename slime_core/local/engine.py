"""The local engine, driver side: batches whatever is asked in one tick of the loop and deals it to worker processes.

Requests with one prompt stay together (the prompt is computed once), and which worker gets a prompt depends on the
order of the requests alone, so a wave of requests is dealt the same way in every run.
"""

import asyncio
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from slime_core.local.settings import LocalEngineSettings
from slime_core.roles import (
    EngineSetup,
    GenerateOutput,
    GenerateRequest,
    WeightChannel,
    WorkerGroup,
    WorkerGroupSpec,
)

WORKER = "slime_core.local.engine_worker:EngineWorker"


@dataclass(slots=True)
class Asked:
    """A request and where its answer goes."""

    request: GenerateRequest
    answer: asyncio.Future[GenerateOutput]


class LocalEngine:
    """Generates in worker processes from the weights in the shared buffer."""

    def __init__(self, settings: LocalEngineSettings, setup: EngineSetup) -> None:
        """Remember what to start."""
        self._settings = settings
        self._setup = setup
        self._group: WorkerGroup | None = None
        self._waiting: list[Asked] = []
        self._batches: set[asyncio.Task[None]] = set()
        self._abort_flag = setup.scratch / "engine.abort"

    async def start(self) -> None:
        """Start the workers, each with the model built and no weights yet."""
        self._abort_flag.write_bytes(b"\0")
        arguments = {
            "hf_checkpoint": self._setup.hf_checkpoint,
            "eos_token_ids": self._setup.eos_token_ids,
            "abort_flag": self._abort_flag,
            "float32_matmul_precision": self._setup.float32_matmul_precision,
        }
        spec = WorkerGroupSpec(self._setup.name, self._settings.workers, WORKER, arguments)
        self._group = await self._setup.launcher.start(spec)

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch every worker to a published version; waits for batches under way."""
        await self._workers.call("load_weights", [(channel, version)] * self._workers.size)

    async def load_checkpoint(self) -> None:
        """Let every worker read the weights of its model directory, as version 0."""
        await self._workers.call("load_checkpoint")

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Queue one request; all that are queued in one tick make a batch."""
        if self._group is None:
            raise RuntimeError("the engine was not started: await engine.start() first")
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._dispatch)
        asked = Asked(request, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        return await asked.answer

    async def abort(self) -> None:
        """Let running batches, and requests queued in this very tick, end at their next token."""
        _write_flag(self._abort_flag, 1)
        while self._batches or self._waiting:
            await asyncio.sleep(0)
            if self._batches:
                await asyncio.wait(self._batches)
        _write_flag(self._abort_flag, 0)

    async def close(self) -> None:
        """Stop the workers; requests under way end with a WorkerError, which says so."""
        if self._group is not None:
            await self._group.close()
        await asyncio.gather(*self._batches, return_exceptions=True)

    @property
    def _workers(self) -> WorkerGroup:
        if self._group is None:
            raise RuntimeError("the engine was not started: await engine.start() first")
        return self._group

    def _dispatch(self) -> None:
        waiting, self._waiting = self._waiting, []
        for rank, share in enumerate(deal(waiting, self._workers.size)):
            if share:
                batch = asyncio.create_task(self._run(rank, share))
                self._batches.add(batch)
                batch.add_done_callback(self._batches.discard)

    async def _run(self, rank: int, share: Sequence[Asked]) -> None:
        try:
            requests = [asked.request for asked in share]
            outputs = cast(list[GenerateOutput], await self._workers.call_one(rank, "generate", requests))
        except BaseException as error:
            for asked in share:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for asked, output in zip(share, outputs, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(output)


def deal(waiting: Sequence[Asked], workers: int) -> list[list[Asked]]:
    """Split requests over workers: prompts in order of appearance, each to the worker with the least tokens to make."""
    by_prompt: dict[tuple[int, ...], list[Asked]] = {}
    for asked in waiting:
        by_prompt.setdefault(tuple(asked.request.prompt), []).append(asked)
    shares: list[list[Asked]] = [[] for _ in range(workers)]
    load = [0] * workers
    for prompt, group in by_prompt.items():
        least = load.index(min(load))
        shares[least] += group
        load[least] += len(prompt) + sum(asked.request.sampling.max_new_tokens for asked in group)
    return shares


def _write_flag(path: Path, value: int) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1) as view:
        view[0] = value
