"""SglangEngine: one SGLang server as an engine of a run, after a check that it serves the run's model.

Each request goes to the server at once, with its own id. New weights come from files (`/update_weights_from_disk`) or
from rank 0. Implements `Engine`, `StreamsTokens`, `ServesCheckpoint`, `WatchesWorkers` and `ReleasesMemory`.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Set
from contextlib import aclosing, suppress
from pathlib import Path
from typing import cast

from slime_core.errors import ConfigError, ModelError, SlimeError, WorkerError
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
from slime_core.sample import Json
from slime_engine_sglang.arguments import Release, check_version
from slime_engine_sglang.calls import Calls
from slime_engine_sglang.checkpoint import is_mixture, read_config, vocabulary_size
from slime_engine_sglang.collective.messages import Hello
from slime_engine_sglang.collective.receiver import connect
from slime_engine_sglang.collective.transports import CollectiveChannel
from slime_engine_sglang.generate_api import Facts, context_length
from slime_engine_sglang.publication import Publications
from slime_engine_sglang.requests import Requests
from slime_engine_sglang.router import Fleet
from slime_engine_sglang.server import Server, ServerState, Table, watch_server
from slime_engine_sglang.server_command import check_count, server_command
from slime_engine_sglang.settings import SglangSettings
from slime_engine_sglang.weights import Folder, NewWeights, ServedWeights, ServerMemory, Source, resume_server

SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
"""Config keys that must agree between two models, so that one can load the other's weights and token ids."""


async def check_server(server: Server, setup: EngineSetup) -> Table:
    """A server's `/server_info`. Raises ConfigError: not SGLang, too old, or another model or tokenizer."""
    try:
        info = await server.ask("/server_info")
    except (ModelError, WorkerError) as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise foreign_error(server, f"/server_info: {error}") from error
    if not isinstance(version := info.get("version"), str) or "model_path" not in info:
        raise foreign_error(server, f"/server_info has no version or no model_path: {json.dumps(info)[:200]}")
    try:
        check_version(version, f"at {server.url}")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    about = await server.ask("/model_info")
    if differing := await asyncio.to_thread(lambda: next(_differences({**info, **about}, setup), None)):
        raise ConfigError(
            f"{server.title} serves another model than the run's {setup.hf_checkpoint}: {differing}. Start the server "
            f"with --model-path {setup.hf_checkpoint}, or set the address of a server of that model"
        )
    return info


def foreign_error(server: Server, why: str) -> ConfigError:
    """The error for an address where another kind of server runs."""
    return ConfigError(
        f"{server.url} is not an SGLang server ({why}). Set [engine.sglang] urls to the addresses of servers that "
        "`python -m sglang.launch_server` started, such as http://HOST:PORT, not to a router's address"
    )


def _differences(served: Table, setup: EngineSetup) -> Iterator[str]:
    """Differences between a server's model and the run's, from the server's report and its files on this machine."""
    model, other = setup.hf_checkpoint.absolute(), Path(str(served["model_path"]))
    config = read_config(model)
    for key in ("model_type", "architectures"):
        if served.get(key) and config.get(key) and _raw_config(model).get(key) != served[key]:
            yield f"its {key} is {served[key]}, not {_raw_config(model).get(key)}"
    if other.is_absolute() and other.is_dir() and other.resolve() != model.resolve():
        theirs = read_config(other)
        for key in SHAPE:
            if theirs.get(key) != config.get(key):
                yield f"the {key} of {other} is {theirs.get(key)}, not {config.get(key)}"
        if more := sorted(_end_tokens(other) - _end_tokens(model) - setup.eos_token_ids):
            yield f"it has the additional end tokens {more}"
    tokenizer = Path(str(served.get("tokenizer_path") or other))
    if tokenizer.is_absolute() and _vocabulary(tokenizer) not in (None, _vocabulary(model)):
        yield f"its tokenizer {tokenizer} has another vocabulary"


def _raw_config(model: Path) -> Mapping[str, Json]:
    return _read(model / "config.json")


def _end_tokens(model: Path) -> Set[int]:
    values = [_read(model / name).get("eos_token_id") for name in ("config.json", "generation_config.json")]
    return {each for one in values for each in (one if isinstance(one, list) else [one]) if isinstance(each, int)}


def _vocabulary(model: Path) -> object:
    about = _read(model / "tokenizer.json")
    inner = about.get("model")
    if not isinstance(inner, dict):
        return None
    added = [(each["id"], each["content"]) for each in cast(list[dict[str, Json]], about.get("added_tokens") or [])]
    return inner.get("vocab"), added


def _read(path: Path) -> Mapping[str, Json]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


HOST = "slime_engine_sglang.host:ServerHost"
POLL_S = 0.1
CLOSE_S = 5.0
ATTACH_S = 4.0  # Seconds within which a server that is already running must answer
ABORT_S = 10.0
DEATH_S = 2.0  # Seconds to wait after a broken connection for the news that the server has died


class SglangEngine:
    """Generates on one server, started by the engine or listed in `urls`."""

    def __init__(self, settings: SglangSettings, setup: EngineSetup) -> None:
        self._settings, self._setup = settings, setup
        self._group: WorkerGroup | None = None
        self._server: Server | None = None
        self.fleet = Fleet.of(setup, settings)  # Shared by the run's engines of this model
        self._calls = Calls(self._abort, self.fleet.gate)
        self._requests: Requests | None = None
        self._has_entered = False
        self._publications = Publications(setup.hf_checkpoint, setup.scratch / "published")
        self._weights = ServedWeights(self._calls, Folder(setup.hf_checkpoint), NewWeights(settings.new_weights))
        self._memory = ServerMemory(self._calls, self._weights)
        self._group_watch: asyncio.Task[None] | None = None
        self._health_watch: asyncio.Task[None] | None = None
        self._closed = False

    # --- start and end

    async def start(self) -> None:
        urls, setup = self._settings.urls, self._setup
        if urls:
            check_count(self._settings, setup.count)
        self._has_entered = True
        await self.fleet.enter()
        if urls:
            self._server = Server(urls[setup.number], setup.name)
        else:
            arguments = {"command": server_command(self._settings, setup), "environment": {}}
            spec = WorkerGroupSpec(
                setup.name, 1, HOST, arguments, self._settings.needs, colocate_with=setup.colocate_with
            )
            self._group = await setup.launcher.start(spec)
            self._group_watch = asyncio.create_task(self._group.watch())
            url, pid = cast(tuple[str, int], (await self._group.call("address"))[0])
            self._server = Server(url, f"{setup.name} (pid {pid})")
        await self._until_ready(self._server)
        info = await check_server(self._server, setup)
        if urls:
            await resume_server(self._server)
        facts = await self._read_facts(self._server, info)
        if not facts.release.has_spans:
            self._weights.mode = NewWeights.WAIT  # a response cannot list the weight version of each token
        self._requests = Requests(
            self._server,
            facts,
            setup.eos_token_ids,
            self._calls,
            self.fleet,
            self._weights,
            timeout_s=self._settings.request_timeout_s,
        )
        self._health_watch = asyncio.create_task(watch_server(self._server, self._has_requests))

    async def watch(self) -> None:
        """Wait until the engine is closed. Raises WorkerError: the server or one of its processes has ended."""
        watches = [each for each in (self._group_watch, self._health_watch) if each is not None]
        done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    async def close(self) -> None:
        """End the server, or abort all requests on an external server. Waiting callers get a WorkerError."""
        if self._closed:
            return
        self._closed = True
        if self._health_watch is not None:
            self._health_watch.cancel()
        if self._has_entered:
            await self.fleet.leave(self._server)
        if self._group is not None:
            await self._group.close()
        elif self._calls.is_busy:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._calls.abort_all()
        if self._server is not None:
            await self._server.close()
        await self._calls.close()
        await asyncio.gather(*filter(None, (self._group_watch, self._health_watch)), return_exceptions=True)

    # --- weights

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch to a published version. After a failure or cancellation, restore the previous weights."""
        server = self.server
        if isinstance(channel, CollectiveChannel):
            await asyncio.to_thread(self._publications.check, channel)
            facts = self._started_requests.facts
            channel.check(server.url, facts.replicas)
            hello = Hello(channel.secret, self._setup.number, version, server.url, facts.tp_size)
            async with connect(channel, hello, sessions=facts.release.has_sessions) as sent_version:
                await self._switch(sent_version, version)
        else:
            source = await asyncio.to_thread(self._publications.prepare, channel, version)
            await self._switch(source, version)

    async def load_checkpoint(self) -> None:
        await self._switch(Folder(self._setup.hf_checkpoint), 0)

    async def _switch(self, source: Source, version: int) -> None:
        server = self.server
        self.fleet.set_version(server, None)
        try:
            await self._weights.switch(server, source, version)
        finally:
            self.fleet.set_version(server, self._weights.version)

    # --- memory

    async def release(self, tags: MemoryTags) -> None:
        """Release memory after running requests have ended. Raises WorkerError: the server refused."""
        if MemoryTag.WEIGHTS in tags:
            self.fleet.set_version(self.server, None)
        try:
            await self._memory.release(self.server, tags)
        finally:
            self.fleet.set_version(self.server, None if self._weights.are_lost else self._weights.version)

    async def resume(self, tags: MemoryTags) -> None:
        await self._memory.resume(self.server, tags)

    # --- generation

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        try:
            return await self._started_requests.generate(request)
        except WorkerError as error:
            raise await self._with_log(error) from error

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        try:
            async with aclosing(self._started_requests.stream(request)) as parts:
                async for chunk in parts:
                    yield chunk
        except WorkerError as error:
            raise await self._with_log(error) from error

    async def abort(self) -> None:
        """Abort all requests so far, including requests that the server has not received. Later requests wait."""
        await self._calls.abort_all()

    async def _abort(self, rid: str | None) -> None:
        if self._server is not None:
            body: Table = {"abort_all": True} if rid is None else {"rid": rid}
            servers = [self._server] if self._closed else self.fleet.possible_servers(self._server)
            aborts = [each.ask("/abort_request", body, timeout_s=ABORT_S) for each in servers]
            await asyncio.gather(*aborts, return_exceptions=True)

    async def _with_log(self, error: WorkerError) -> WorkerError:
        """The error with the end of the server's log. Waits briefly for the news that the server has died."""
        if self._closed:
            return WorkerError(f"{self._setup.name} is closed")
        if self._group_watch is None or self._group is None:
            return error
        await asyncio.wait([self._group_watch], timeout=DEATH_S)
        if self._group_watch.done():
            death = self._group_watch.exception()
            return error if death is None else WorkerError(f"{error}; {death}")
        try:
            (lines,) = await self._group.call("last_lines", timeout_s=DEATH_S)
        except SlimeError as worse:
            return WorkerError(f"{error}; {worse}")
        return WorkerError(f"{error}. End of the server's log:\n{lines}")

    # --- the server

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def _started_requests(self) -> Requests:
        _ = self.server
        assert self._requests is not None, "start() has ended"
        return self._requests

    @property
    def server(self) -> Server:
        if self._closed:
            raise WorkerError(f"{self._setup.name} is closed")
        if self._server is None:
            raise RuntimeError("the engine is not started; await engine.start() first")
        return self._server

    async def _until_ready(self, server: Server) -> None:
        """Wait until the server accepts requests or its process ends. An external server must answer soon."""
        began = time.monotonic()
        while (state := await server.state()) is not ServerState.READY:
            waited = time.monotonic() - began
            if self._group is None and state is ServerState.FOREIGN:
                raise foreign_error(server, "it has neither /ready nor /health_generate")
            if self._group is None and state is not ServerState.NOT_YET and waited > ATTACH_S:
                raise WorkerError(f"{server.title} {state.value}. Start the servers in [engine.sglang] urls first")
            if waited > self._settings.start_timeout_s:
                raise WorkerError(
                    f"{server.title} was not ready in {self._settings.start_timeout_s:g} s ([engine.sglang] "
                    f"start_timeout_s): it {state.value}"
                )
            await asyncio.sleep(POLL_S)
            if self._group_watch is not None and self._group_watch.done():
                self._group_watch.result()
                raise WorkerError(f"{self._setup.name} was closed during its start")

    def _has_requests(self) -> bool:
        return self._calls.is_busy and not self._weights.is_switching

    async def _read_facts(self, server: Server, info: Table) -> Facts:
        models = await server.ask("/v1/models")
        context = server.parse("/v1/models", lambda: context_length(models))
        model = self._setup.hf_checkpoint
        return Facts(
            vocabulary_size(model),
            context,
            cast(int, info.get("max_req_input_len") or context),
            seeded=bool(info.get("enable_deterministic_inference")),
            returns_experts=bool(info.get("enable_return_routed_experts")),
            is_mixture=is_mixture(model),
            release=Release.of(cast(str, info["version"])),
            tp_size=cast(int, info.get("tp_size") or 1),
            replicas=cast(int, info.get("dp_size") or 1),
        )
