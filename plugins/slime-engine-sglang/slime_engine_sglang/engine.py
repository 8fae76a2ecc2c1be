"""SglangEngine: one SGLang server as an engine of a run.

Requests go to the server as they come, each under an id of its own; new weights come from files, by
`/update_weights_from_disk`. Implements `Engine`, `StreamsTokens`, `ServesCheckpoint`, `NoticesDeath` and
`ReleasesMemory`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import cast

from slime_core.errors import SlimeError, WorkerError
from slime_core.roles import (
    EngineSetup,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    MemoryTag,
    MemoryTags,
    WeightChannel,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_engine_sglang.answers import context_of
from slime_engine_sglang.asking import Facts
from slime_engine_sglang.calls import Calls
from slime_engine_sglang.checkpoint import is_mixture, vocabulary_of
from slime_engine_sglang.checks import check_count
from slime_engine_sglang.command import server_command
from slime_engine_sglang.fleet import Fleet
from slime_engine_sglang.health import look_after
from slime_engine_sglang.installed import Release
from slime_engine_sglang.meeting.channel import MeetingChannel
from slime_engine_sglang.meeting.receiving import Visit, met
from slime_engine_sglang.memory import Occupation
from slime_engine_sglang.publication import Publications
from slime_engine_sglang.recognition import foreign, recognised
from slime_engine_sglang.requests import Requests
from slime_engine_sglang.server import Server, ServerState, Table
from slime_engine_sglang.settings import SglangSettings
from slime_engine_sglang.weights import Folder, NewWeights, ServedWeights, Source, put_right

HOST = "slime_engine_sglang.host:ServerHost"
POLL_S = 0.1
CLOSE_S = 5.0
ATTACH_S = 4.0
"""Seconds in which a server that runs already has to answer."""
ABORT_S = 10.0
DEATH_S = 2.0
"""Seconds in which the end of a server that has broken off is known, if it has ended."""


class SglangEngine:
    """Generates on one server, which it has started or was told of."""

    def __init__(self, settings: SglangSettings, setup: EngineSetup) -> None:
        """Remember what to start."""
        self._settings, self._setup = settings, setup
        self._group: WorkerGroup | None = None
        self._server: Server | None = None
        self.fleet = Fleet.of(setup, settings)
        """Shared by the run's engines of this model."""
        self._calls = Calls(self._abort, self.fleet.gate)
        self._requests: Requests | None = None
        self._has_entered = False
        verified = settings.verify_weights == "checksum"
        self._publications = Publications(setup.hf_checkpoint, setup.scratch / "published", verified=verified)
        self._weights = ServedWeights(self._calls, Folder(setup.hf_checkpoint), NewWeights(settings.new_weights))
        self._occupation = Occupation(self._calls, self._weights)
        self._life: asyncio.Task[None] | None = None
        self._health: asyncio.Task[None] | None = None
        self._closed = False

    # --- its life

    async def start(self) -> None:
        """Start the server, or find the one that runs already, and wait until it takes requests.

        Raises:
            ConfigError: `urls` names more or fewer servers than the run has engines, one that is not an SGLang, or one
                with another model.
            WorkerError: the server ended, or was not ready in time.
        """
        urls, setup = self._settings.urls, self._setup
        if urls:
            check_count(self._settings, setup.count)
        self._has_entered = True
        await self.fleet.enter()
        if urls:
            self._server = Server(urls[setup.number], setup.name)
        else:
            arguments = {"command": server_command(self._settings, setup), "environment": {}}
            spec = WorkerGroupSpec(setup.name, 1, HOST, arguments, self._settings.needs, beside=setup.beside)
            self._group = await setup.launcher.start(spec)
            self._life = asyncio.create_task(self._group.watch())
            url, pid = cast(tuple[str, int], (await self._group.call("address"))[0])
            self._server = Server(url, f"{setup.name} (pid {pid})")
        await self._until_ready(self._server)
        info = await recognised(self._server, setup)
        if urls:
            await put_right(self._server)
        facts = await self._learnt(self._server, info)
        if not facts.release.has_spans:
            self._weights.mode = NewWeights.WAIT  # an answer could not say which tokens the new weights made
        self._requests = Requests(
            self._server,
            facts,
            setup.eos_token_ids,
            self._calls,
            self.fleet,
            self._weights,
            within_s=self._settings.request_timeout_s,
        )
        self._health = asyncio.create_task(look_after(self._server, self._is_asked))

    async def watch(self) -> None:
        """Wait until the engine is closed.

        Raises:
            WorkerError: the server has ended, or one of its processes; with the last lines of its log.
        """
        looking = [each for each in (self._life, self._health) if each is not None]
        done, _ = await asyncio.wait(looking, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    async def close(self) -> None:
        """End the server, or leave nothing running on one that is not ours; whoever waits gets a WorkerError."""
        if self._closed:
            return
        self._closed = True
        if self._health is not None:
            self._health.cancel()
        if self._has_entered:
            await self.fleet.leave(self._server)
        if self._group is not None:
            await self._group.close()
        elif self._calls.busy:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._calls.abort_all()
        if self._server is not None:
            await self._server.close()
        await self._calls.close()
        await asyncio.gather(*filter(None, (self._life, self._health)), return_exceptions=True)

    # --- weights

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch to a published version; if that fails or is stopped half-way, back to what was served.

        Raises:
            ModelError: the channel's weights are not the model's, or are in no file.
            WorkerError: the server could not load them.
        """
        server = self.server
        if isinstance(channel, MeetingChannel):
            checksums = await asyncio.to_thread(self._publications.check, channel)
            facts, weights = self._asking.facts, self._weights
            channel.check(server.url, facts.replicas)
            holds = None if weights.are_lost or weights.version < 0 else weights.version
            sessions = facts.release.has_sessions
            visit = Visit(self._setup.number, version, server.url, facts.tp_size, holds, sessions)
            async with met(channel, visit, checksums) as arrival:
                await self._switch(arrival, version)
        else:
            source = await asyncio.to_thread(self._publications.prepare, channel, version)
            await self._switch(source, version)

    async def load_checkpoint(self) -> None:
        """Serve the weights of the model directory, as version 0."""
        await self._switch(Folder(self._setup.hf_checkpoint), 0)

    async def _switch(self, source: Source, version: int) -> None:
        server = self.server
        self.fleet.serves(server, None)
        try:
            await self._weights.switch(server, source, version)
        finally:
            self.fleet.serves(server, self._weights.version)

    # --- memory

    async def release(self, tags: MemoryTags) -> None:
        """Give memory up, what is under way having ended.

        Raises:
            WorkerError: the server did not.
        """
        if MemoryTag.WEIGHTS in tags:
            self.fleet.serves(self.server, None)
        try:
            await self._occupation.release(self.server, tags)
        finally:
            self.fleet.serves(self.server, None if self._weights.are_lost else self._weights.version)

    async def resume(self, tags: MemoryTags) -> None:
        """Take it back; weights that were given up are loaded again before they are used.

        Raises:
            WorkerError: the server could not.
        """
        await self._occupation.resume(self.server, tags)

    # --- generation

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Ask the server for one response.

        Raises:
            ModelError: it does not do what is asked for; names what.
            WorkerError: it cannot be reached, or broke off.
        """
        try:
            return await self._asking.answer(request)
        except WorkerError as error:
            raise await self._explained(error) from error

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """Ask the server for one response, in parts as it sends them.

        Raises:
            ModelError, WorkerError: as `generate` does.
        """
        try:
            async with aclosing(self._asking.parts(request)) as parts:
                async for chunk in parts:
                    yield chunk
        except WorkerError as error:
            raise await self._explained(error) from error

    async def abort(self) -> None:
        """End all that was asked so far, arrived at the server or not; what comes later waits until that is done."""
        await self._calls.abort_all()

    async def _abort(self, rid: str | None) -> None:
        if self._server is not None:
            body: Table = {"abort_all": True} if rid is None else {"rid": rid}
            servers = [self._server] if self._closed else self.fleet.may_be_at(self._server)
            asked = [each.ask("/abort_request", body, within_s=ABORT_S) for each in servers]
            await asyncio.gather(*asked, return_exceptions=True)

    async def _explained(self, error: WorkerError) -> WorkerError:
        """The same with the end of the server's log; if it has died, that is known a moment later."""
        if self._closed:
            return WorkerError(f"{self._setup.name} is closed")
        if self._life is None or self._group is None:
            return error
        await asyncio.wait([self._life], timeout=DEATH_S)
        if self._life.done():
            death = self._life.exception()
            return error if death is None else WorkerError(f"{error}; {death}")
        try:
            (lines,) = await self._group.call("last_lines", timeout_s=DEATH_S)
        except SlimeError as worse:
            return WorkerError(f"{error}; {worse}")
        return WorkerError(f"{error}; the end of its log:\n{lines}")

    # --- the server

    @property
    def url(self) -> str:
        """Where the server is."""
        return self.server.url

    @property
    def _asking(self) -> Requests:
        _ = self.server
        assert self._requests is not None, "a server that runs has been asked what it is"
        return self._requests

    @property
    def server(self) -> Server:
        """The server that runs.

        Raises:
            WorkerError: the engine is closed.
            RuntimeError: the engine was not started.
        """
        if self._closed:
            raise WorkerError(f"{self._setup.name} is closed")
        if self._server is None:
            raise RuntimeError("the engine was not started: await engine.start() first")
        return self._server

    async def _until_ready(self, server: Server) -> None:
        """Wait until it takes requests, or its process ends; one that runs already is there at once, or soon."""
        began = time.monotonic()
        while (state := await server.state()) is not ServerState.READY:
            waited = time.monotonic() - began
            if self._group is None and state is ServerState.FOREIGN:
                raise foreign(server, "it knows neither /ready nor /health_generate")
            if self._group is None and state is not ServerState.NOT_YET and waited > ATTACH_S:
                raise WorkerError(f"{server.title} {state.value}; [engine.sglang] urls names servers that run already")
            if waited > self._settings.start_timeout_s:
                raise WorkerError(
                    f"{server.title} was not ready in {self._settings.start_timeout_s:g} s: it {state.value}"
                )
            await asyncio.sleep(POLL_S)
            if self._life is not None and self._life.done():
                self._life.result()
                raise WorkerError(f"{self._setup.name} was closed while it started")

    def _is_asked(self) -> bool:
        """Whether an answer is to be expected of the server."""
        return self._calls.busy and not self._weights.is_switching

    async def _learnt(self, server: Server, info: Table) -> Facts:
        """What the server and the model directory say of themselves."""
        models = await server.ask("/v1/models")
        context = server.understood("/v1/models", lambda: context_of(models))
        model = self._setup.hf_checkpoint
        return Facts(
            vocabulary_of(model),
            context,
            cast(int, info.get("max_req_input_len") or context),
            seeded=bool(info.get("enable_deterministic_inference")),
            tells_experts=bool(info.get("enable_return_routed_experts")),
            is_mixture=is_mixture(model),
            release=Release.of(cast(str, info["version"])),
            tp_size=cast(int, info.get("tp_size") or 1),
            replicas=cast(int, info.get("dp_size") or 1),
        )
