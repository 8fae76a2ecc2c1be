"""slime's HTTP helpers, with the retries of errors that may pass: slime's own repeat even a 400, sixty times."""

import asyncio
from collections.abc import Mapping
from typing import cast

import aiohttp

from slime_core.sample import Json

FIRST_CLIENT_ERROR, FIRST_SERVER_ERROR = 400, 500


async def post(
    url: str, payload: Mapping[str, Json], max_retries: int = 60, headers: Mapping[str, str] | None = None
) -> Json:
    """POST JSON and return the JSON answer.

    Raises:
        RuntimeError: the server refuses the request (4xx), or still fails after `max_retries` repetitions.
    """
    return await _request("POST", url, payload, max_retries, headers)


async def get(url: str) -> Json:
    """GET JSON.

    Raises:
        RuntimeError: the server refuses or fails.
    """
    return await _request("GET", url, None, 0, None)


async def _request(
    method: str, url: str, payload: Mapping[str, Json] | None, max_retries: int, headers: Mapping[str, str] | None
) -> Json:
    for attempt in range(max_retries + 1):
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, url, json=payload, headers=headers) as response,
            ):
                if response.status < FIRST_CLIENT_ERROR:
                    return cast(Json, await response.json(content_type=None))
                problem = f"{method} {url} answered {response.status}: {await response.text()}"
                refused = response.status < FIRST_SERVER_ERROR
        except aiohttp.ClientError as error:
            problem, refused = f"{method} {url}: {error}", False
        if refused or attempt == max_retries:
            break
        await asyncio.sleep(1.0)
    raise RuntimeError(problem)
