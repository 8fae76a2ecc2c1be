"""SGLang's `POST /generate` for slime's functions, served by the run's engine.

slime's functions post to `http://{args.sglang_router_ip}:{args.sglang_router_port}/generate`. Each sample's generation
has its own loopback endpoint; the port identifies the sample.

Example:

    answer = await answer_generate(call, {"input_ids": [1, 5], "sampling_params": {"max_new_tokens": 8}})
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import cast

from aiohttp import web

from slime_compat.function import Call
from slime_core.roles import GenerateOutput, SamplingParams
from slime_core.sample import Json

IGNORED = frozenset({"spaces_between_special_tokens", "sampling_seed", "n"})
"""Sampling keys that are ignored; seeds derive from the sample's identity."""

SAME = (
    "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "min_new_tokens", "ignore_eos", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "skip_special_tokens", "no_stop_trim",
)  # fmt: skip
"""Sampling keys with the same names and values in the core."""


class WireError(ValueError):
    """A request that the engine role cannot serve."""


async def answer_generate(call: Call, payload: Mapping[str, Json]) -> dict[str, Json]:
    """Serve one request; returns a response in SGLang's format.

    Raises:
        WireError: the request needs a feature that the engine role does not support.
    """
    if payload.get("stream"):
        raise WireError("stream = true is not supported; leave it out")
    prompt = payload.get("input_ids")
    if isinstance(prompt, list):
        ids = [int(cast(int, token)) for token in prompt]
    elif isinstance(text := payload.get("text"), str):
        ids = call.ctx.tokenizer.encode(text)
    else:
        raise WireError("expected input_ids, a list of ints, or text, a string")
    params = payload.get("sampling_params") or {}
    if not isinstance(params, dict):
        raise WireError(f"sampling_params is a {type(params).__name__}; expected an object")
    sampling = sampling_of(params, call.ctx.sampling)
    return _answer(call, ids, sampling, await call.generate(ids, sampling))


def sampling_of(given: Mapping[str, Json], default: SamplingParams) -> SamplingParams:
    """SGLang's sampling parameters as the core's.

    Raises:
        WireError: a key is not supported by the engine role, or a value is out of range.
    """
    known = {*SAME, "stop_token_ids", "stop", "logit_bias"}
    if unknown := sorted(given.keys() - known - IGNORED):
        raise WireError(f"sampling_params {', '.join(unknown)} not supported; supported: {', '.join(sorted(known))}")
    changes: dict[str, object] = {name: given[name] for name in SAME if given.get(name) is not None}
    if (ids := cast("list[int] | None", given.get("stop_token_ids"))) is not None:
        changes["stop_token_ids"] = frozenset(ids)
    if (stop := cast("list[str] | str | None", given.get("stop"))) is not None:
        changes["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    if (bias := cast("dict[str, float] | None", given.get("logit_bias"))) is not None:
        changes["logit_bias"] = {int(token): value for token, value in bias.items()}
    try:
        return replace(default, **changes)  # type: ignore[arg-type]  # fields of that class, by their names
    except (TypeError, ValueError) as error:
        raise WireError(f"sampling_params: {error}") from None


def sampling_params(sampling: SamplingParams) -> dict[str, Json]:
    """The core's sampling parameters as the dict that slime passes to a custom generate function."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_new_tokens": sampling.max_new_tokens,
        "stop": list[Json](sampling.stop) or None,
        "stop_token_ids": list[Json](sorted(sampling.stop_token_ids)),
        "skip_special_tokens": sampling.skip_special_tokens,
        "no_stop_trim": sampling.no_stop_trim,
        "spaces_between_special_tokens": False,
    }


def _answer(call: Call, prompt: list[int], sampling: SamplingParams, output: GenerateOutput) -> dict[str, Json]:
    pairs: list[Json] = [
        [log_prob, token, None] for log_prob, token in zip(output.log_probs, output.tokens, strict=True)
    ]
    finish: dict[str, Json] = {"type": output.finish.value}
    if output.matched is not None:
        finish["matched"] = output.matched
    return {
        "text": _text(call, output, sampling),
        "output_ids": list(output.tokens),
        "meta_info": {
            "finish_reason": finish,
            "prompt_tokens": len(prompt),
            "completion_tokens": len(output.tokens),
            "cached_tokens": 0,
            "weight_version": str(output.weight_version),
            "output_token_logprobs": pairs,
        },
    }


def _text(call: Call, output: GenerateOutput, sampling: SamplingParams) -> str:
    """The response as SGLang returns it: without the stop text, unless the request keeps it."""
    text = call.ctx.tokenizer.decode(output.tokens, skip_special_tokens=sampling.skip_special_tokens)
    trims = isinstance(output.matched, str) and not sampling.no_stop_trim
    return text.partition(str(output.matched))[0] if trims else text


HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def serving(call: Call) -> AsyncIterator[int]:
    """Context manager: serves one sample's generation; yields the port."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if (request.method, request.path) != ("POST", "/generate"):
            return web.json_response(
                {"error": f"{request.method} {request.path}: only POST /generate is supported"}, status=404
            )
        try:
            return web.json_response(await answer_generate(call, await request.json()))
        except (WireError, json.JSONDecodeError) as error:
            return web.json_response({"error": str(error)}, status=400)

    handler = web.Server(handle, access_log=None)
    server = await asyncio.get_running_loop().create_server(handler, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await handler.shutdown(timeout=0.1)
        await server.wait_closed()
