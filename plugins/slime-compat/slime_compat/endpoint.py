"""serving: a loopback HTTP endpoint that lives as long as one sample's generation.

slime's functions post to `http://{args.sglang_router_ip}:{args.sglang_router_port}/generate`. A port of its own for
each sample is what tells whose request it is.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from aiohttp import web

from slime_compat.call import Call
from slime_compat.wire import WireError, answer_generate

HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def serving(call: Call) -> AsyncIterator[int]:
    """Serve one sample's generation; gives the port."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if (request.method, request.path) != ("POST", "/generate"):
            return web.json_response(
                {"error": f"{request.method} {request.path}: only POST /generate is served"}, status=404
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
