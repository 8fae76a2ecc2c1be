"""Routes: SGLang's endpoints before an engine: generation, aborts, health, what it is, and weights from a directory.

Example:

    app = Routes(engine, tokenizer, model).app()        # for aiohttp
    await engine.load_weights(FolderChannel.of(Path("checkpoints/hf")), 3)
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiohttp import web

from slime_core.errors import ModelError, SlimeError
from slime_core.roles import (
    Engine,
    GenerateRequest,
    SamplingParams,
    StreamsTokens,
    Tokenizer,
    WeightChannel,
    WeightDtype,
    WeightReceiver,
    WeightSlot,
)
from slime_core.sample import Json
from slime_engine_sglang.arguments import NEWEST
from slime_engine_sglang.checkpoint import HEAD, config_of, read_header
from slime_engine_sglang.serve.generation import Asked, BadRequest, Jobs, Made, Prompt, parse, result
from slime_engine_sglang.server import decode, encode
from slime_engine_sglang.weights import AS_STARTED

if TYPE_CHECKING:
    import torch

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Of floats, as safetensors files and the core call them."""


@dataclass(frozen=True, slots=True)
class FolderChannel(WeightChannel):
    """One version, in files."""

    files: tuple[Path, ...]  # Safetensors files

    @classmethod
    def of(cls, folder: Path) -> "FolderChannel":
        """What a directory has, but for a tied head. Raises ModelError: it is no model, or has other than floats."""
        if not folder.is_dir():
            raise ModelError(f"no model directory {folder}: model_path must be one that this machine can read")
        files = tuple(sorted(folder.absolute().glob("*.safetensors")))
        if not files:
            raise ModelError(f"{folder} has no *.safetensors")
        tied = bool(config_of(folder).get("tie_word_embeddings"))
        slots = []
        for name, about in ((n, a) for file in files for n, a in read_header(file).items() if n != "__metadata__"):
            if str(about["dtype"]) not in DTYPES:
                raise ModelError(f"{folder}: {name} is of {about['dtype']}; expected one of {', '.join(DTYPES)}")
            if not (tied and name == HEAD):
                shape = tuple(cast(list[int], about["shape"]))
                slots.append(WeightSlot(name, shape, WeightDtype(DTYPES[str(about["dtype"])])))
        return cls("files", tuple(slots), files)

    def receiver(self, engine: int, worker: int = 0) -> WeightReceiver:
        return FolderReceiver(self)


class FolderReceiver:
    """Implements `slime_core.roles.WeightReceiver`."""

    lasting = False

    def __init__(self, channel: FolderChannel) -> None:
        self._channel = channel

    def read(self, version: int) -> "Iterator[tuple[str, torch.Tensor]]":
        from safetensors import safe_open

        wanted = {slot.name for slot in self._channel.slots}
        for file in self._channel.files:
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  # it is not a mapping
                    if name in wanted:
                        yield name, tensors.get_tensor(name)

    def close(self) -> None:
        """Nothing is held."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
POSITIONS = ("max_position_embeddings", "n_positions")
MOST_BYTES = 256 << 20  # Of a request's body


class Routes:
    """What is answered, and what the server knows of itself."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, model: Path) -> None:
        if not isinstance(engine, StreamsTokens):
            raise ModelError("only an engine that streams can be served: it has no stream()")
        self._engine, self._tokenizer, self._model = engine, tokenizer, model.absolute()
        self._jobs = Jobs(engine)
        self._names, self._version = {0: AS_STARTED}, 0
        self._loading = asyncio.Lock()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[_told])
        get: Mapping[str, Handler] = {
            **dict.fromkeys(("/health", "/ready"), self._health),
            "/health_generate": self._health_generate,
            **dict.fromkeys(("/server_info", "/get_server_info"), self._server_info),
            **dict.fromkeys(("/model_info", "/get_model_info"), self._model_info),
            "/v1/models": self._models,
            "/flush_cache": self._flush_cache,
        }
        post: Mapping[str, Handler] = {
            "/generate": self._generate,
            "/abort_request": self._abort_request,
            "/pause_generation": self._pause_generation,
            "/continue_generation": self._continue_generation,
            "/flush_cache": self._flush_cache,
            "/update_weights_from_disk": self._update_weights_from_disk,
            "/update_weight_version": self._update_weight_version,
        }
        app.add_routes([web.get(path, handler) for path, handler in get.items()])
        app.add_routes([web.post(path, handler) for path, handler in post.items()])
        return app

    # --- generation

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        asked = parse(await _body(request), self._tokenizer)
        if asked.stream:
            return await self._streamed(request, asked)
        made = await asyncio.gather(*(self._whole(prompt) for prompt in asked.prompts))
        return _json(made[0] if asked.is_single else list[Json](made))

    async def _whole(self, prompt: Prompt) -> dict[str, Json]:
        async with aclosing(self._jobs.follow(prompt)) as parts:
            *_, made = [each async for each in parts]
        return self._result(prompt, made)

    async def _streamed(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        for index, prompt in enumerate(asked.prompts):
            async with aclosing(self._jobs.follow(prompt)) as parts:
                async for made in parts:
                    told = self._result(prompt, made)
                    if not response.prepared:
                        await response.prepare(request)  # not sooner: an error has a status of its own
                    await response.write(_event(encode(told if asked.is_single else {**told, "index": index})))
        await response.write(_event(b"[DONE]"))
        return response

    def _result(self, prompt: Prompt, made: Made) -> dict[str, Json]:
        version = self._version if made.version is None else made.version
        return result(prompt, made, self._tokenizer, self._names[version])

    @property
    def _weights(self) -> str:
        return self._names[self._version]

    async def _abort_request(self, request: web.Request) -> web.Response:
        body = await _body(request)
        self._jobs.abort(None if body.get("abort_all") else str(body.get("rid") or ""))
        return web.Response()

    async def _pause_generation(self, request: web.Request) -> web.Response:
        mode = (await _body(request)).get("mode", "abort")
        if mode not in ("abort", "retract", "in_place"):
            raise BadRequest(f"mode {mode!r}: expected abort, retract or in_place")
        self._jobs.pause()
        if mode == "abort":
            self._jobs.abort()
        return _json({"message": "Generation paused: nothing begins, what is under way ends.", "status": "ok"})

    async def _continue_generation(self, request: web.Request) -> web.Response:
        self._jobs.go_on()
        return _json({"message": "Generation continued.", "status": "ok"})

    async def _flush_cache(self, request: web.Request) -> web.Response:
        return web.Response(text="There is no cache between requests.\n")

    # --- weights

    async def _update_weights_from_disk(self, request: web.Request) -> web.Response:
        """What is under way ends with the weights that it began with; new requests wait."""
        body = await _body(request)
        if not isinstance(path := body.get("model_path"), str):
            raise BadRequest("model_path: expected a model directory")
        if body.get("abort_all_requests"):
            self._jobs.abort()
        running = self._jobs.count
        async with self._loading:
            channel = await asyncio.to_thread(FolderChannel.of, Path(path))
            number, name = len(self._names), body.get("weight_version")
            self._names[number] = self._weights if name is None else str(name)  # before who is told of it asks
            await self._engine.load_weights(channel, number)
            self._version = number
        said = f"Succeeded to update model weights; version {self._weights}."
        return _json({"success": True, "message": said, "num_paused_requests": running})

    async def _update_weight_version(self, request: web.Request) -> web.Response:
        version = (await _body(request)).get("new_version")
        if not isinstance(version, str):
            raise BadRequest("new_version: expected a text")
        self._names[self._version] = version
        return _json({"success": True, "message": f"Weight version updated to {version}", "new_version": version})

    # --- what it is

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _health_generate(self, request: web.Request) -> web.Response:
        await self._engine.generate(
            GenerateRequest([min(self._tokenizer.eos_token_ids, default=0)], SamplingParams(1), 0)
        )
        return web.Response()

    async def _server_info(self, request: web.Request) -> web.Response:
        return _json(
            {
                "version": NEWEST,
                "backend": "slime-core, engine local",
                "model_path": str(self._model),
                "tokenizer_path": str(self._model),
                "served_model_name": str(self._model),
                "context_length": self._positions(),
                "max_req_input_len": self._positions(),
                "weight_version": self._weights,
                "enable_deterministic_inference": True,
                "tp_size": 1,
                "dp_size": 1,
                "status": "ready",
                "internal_states": [{"num_running_reqs": self._jobs.count}],
            }
        )

    async def _model_info(self, request: web.Request) -> web.Response:
        config, model = config_of(self._model), str(self._model)
        told: dict[str, Json] = {key: config[key] for key in ("model_type", "architectures") if key in config}
        told |= {"model_path": model, "tokenizer_path": model, "is_generation": True, "weight_version": self._weights}
        return _json(told)

    async def _models(self, request: web.Request) -> web.Response:
        card: Json = {
            "id": str(self._model),
            "object": "model",
            "owned_by": "slime",
            "max_model_len": self._positions(),
        }
        return _json({"object": "list", "data": [card]})

    def _positions(self) -> int:
        config = config_of(self._model)
        return next((found for key in POSITIONS if isinstance(found := config.get(key), int)), 1 << 20)


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (BadRequest, ModelError) as error:
        return _json({"object": "error", "message": str(error), "type": "BadRequestError", "code": 400}, 400)
    except SlimeError as error:
        return _json({"object": "error", "message": str(error), "type": "InternalServerError", "code": 500}, 500)


async def _body(request: web.Request) -> Mapping[str, Json]:
    text = await request.read()
    try:
        body = decode(text) if text else {}
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body is not an object")
    return body


def _json(content: Json, status: int = 200) -> web.Response:
    return web.Response(body=encode(content), status=status, content_type="application/json")


def _event(content: bytes) -> bytes:
    return b"data: " + content + b"\n\n"
