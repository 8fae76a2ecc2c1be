"""Serving: a gateway with one open session, whose model says what a rule makes of it.

async with served(talker) as there:
    there.url                   # "http://127.0.0.1:41234/s/KEY"
    there.session.forest        # what happened
"""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from talker import Talker

from slime_agent_openai.bridge import Bridge
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.parsers.families import HERMES
from slime_agent_openai.session import Session, SessionLimits


@dataclass(frozen=True, slots=True)
class There:
    """An open session, and how to ask it."""

    url: str
    session: Session
    http: aiohttp.ClientSession

    async def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, object]]:
        """Status and body of a request."""
        async with self.http.post(f"{self.url}/v1/{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> tuple[int, dict[str, object]]:
        """The same of a GET."""
        async with self.http.get(f"{self.url}/v1/{path}") as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def served(
    talker: Talker, limits: SessionLimits | None = None, gateway: Gateway | None = None, **context: object
) -> AsyncIterator[There]:
    """Serve one session for as long as the block lasts."""
    gateway = gateway or Gateway()
    await gateway.start()
    made = talker.context(**context)  # type: ignore[arg-type]
    session = Session(made, limits or SessionLimits(), Bridge(talker.tokenizer), HERMES)
    try:
        async with gateway.open_session(session) as url, aiohttp.ClientSession() as http:
            yield There(url, session, http)
    finally:
        await gateway.close()


def free_port() -> int:
    """One of this machine that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
