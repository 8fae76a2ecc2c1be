"""SGLang's endpoints for monitoring and control."""

import asyncio
import json
from pathlib import Path

from slime_core.sample import Json
from slime_testing._fake_engine.http import (
    TEXT,
    AbortBody,
    DiskBody,
    MemoryBody,
    PauseBody,
    Refused,
    Reply,
    Request,
    VersionBody,
    parse,
)
from slime_testing._fake_engine.state import State

SGLANG = "0.5.23"
"""The SGLang release whose API the fake engine implements."""
MODEL = "fake"
DRAIN_S = 60.0
"""Seconds that an update waits for running generations."""


async def health(state: State, request: Request) -> Reply:
    return Reply(200, b"")


async def model_info(state: State, request: Request) -> Reply:
    return _json(
        {
            "model_path": MODEL,
            "tokenizer_path": MODEL,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": state.weight_version,
        }
    )


async def server_info(state: State, request: Request) -> Reply:
    """GET /server_info: only the keys that clients read, of hundreds."""
    return _json(
        {
            "model_path": MODEL,
            "served_model_name": MODEL,
            "context_length": state.context_length,
            "weight_version": state.weight_version,
            "tp_size": 1,
            "dp_size": 1,
            "pp_size": 1,
            "status": "ready",
            "max_total_num_tokens": 32 * state.context_length,
            "max_req_input_len": state.context_length - 1,
            "internal_states": [{"num_running_reqs": len(state.jobs)}],
            "enable_deterministic_inference": True,
            "version": SGLANG,
        }
    )


async def models(state: State, request: Request) -> Reply:
    return _json({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": state.context_length}]})


async def abort_request(state: State, request: Request) -> Reply:
    """POST /abort_request: returns an empty reply, even for an unknown request."""
    body = parse(AbortBody, request)
    state.abort(body.abort_message or "Aborted", rid=None if body.abort_all else body.rid)
    return Reply(200, b"")


async def pause_generation(state: State, request: Request) -> Reply:
    state.pause(parse(PauseBody, request).mode)
    return _json({"message": "Generation paused successfully.", "status": "ok"})


async def continue_generation(state: State, request: Request) -> Reply:
    state.pause_mode = None
    return _json({"message": "Generation continued successfully.", "status": "ok"})


async def flush_cache(state: State, request: Request) -> Reply:
    """GET or POST /flush_cache?timeout=s: fails while generations run."""
    timeout = request.query.get("timeout", "0")
    if not timeout.replace(".", "", 1).isdecimal():
        raise Refused(400, f"timeout={timeout}: expected seconds")
    await state.drained(float(timeout))
    if not state.may_flush:
        return Reply(400, b"Flush cache failed.\n", TEXT)
    return Reply(200, b"Cache flushed.\n", TEXT)


async def update_weights_from_disk(state: State, request: Request) -> Reply:
    """POST /update_weights_from_disk: waits for running generations, unless they are paused or aborted."""
    body = parse(DiskBody, request)
    if body.abort_all_requests:
        state.abort()
    running = len(state.jobs)
    if state.pause_mode is None or body.abort_all_requests:
        await state.drained(DRAIN_S)
    if not await asyncio.to_thread(Path(body.model_path).is_dir):
        return _update(False, f"Failed to get model config: no directory {body.model_path}.", running)
    if body.flush_cache and not state.may_flush:
        return _update(False, "Weights were updated, but the cache was not flushed: generations are running.", running)
    if body.weight_version is not None:
        state.weight_version = body.weight_version
    return _update(True, f"Succeeded to update model weights; version {state.weight_version}.", running)


async def update_weight_version(state: State, request: Request) -> Reply:
    body = parse(VersionBody, request)
    if body.abort_all_requests:
        state.abort()
    state.weight_version = body.new_version
    message = f"Weight version updated to {body.new_version}"
    return _json({"success": True, "message": message, "new_version": body.new_version})


async def release_memory_occupation(state: State, request: Request) -> Reply:
    """POST /release_memory_occupation: fails while a request runs, like SGLang."""
    tags = parse(MemoryBody, request).kinds
    if state.jobs and state.pause_mode is None:
        return Reply(500, b"release_memory_occupation should be called only when server is idle.\n", TEXT)
    state.released |= tags
    return _json(None)


async def resume_memory_occupation(state: State, request: Request) -> Reply:
    """POST /resume_memory_occupation: fails for memory that was not released."""
    tags = parse(MemoryBody, request).kinds
    if missing := sorted(tags - state.released):
        return Reply(500, f"KeyError: {missing[0]!r}\n".encode(), TEXT)
    state.released -= tags
    return _json(None)


def _update(success: bool, message: str, paused: int) -> Reply:
    return _json({"success": success, "message": message, "num_paused_requests": paused}, 200 if success else 400)


def _json(content: Json, status: int = 200) -> Reply:
    return Reply(status, json.dumps(content).encode())
