"""Guard: access control. Every request must carry the token: first in the link, then in a cookie, or in a header.

The pages show text from a model. So every response has a content security policy: a browser runs only this package's
scripts, loads nothing from other hosts, and lets no other page frame it.

Example:

    app = Guard(app, token="...", cookie="slime_view_8650")
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from html import escape
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
ASK = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>slime view</title></head><body><h1>slime view</h1>
<p>Open the link that <code>slime view</code> printed, or enter its token.</p>
<form method="get" action="{action}">{hidden}<label>Token <input name="token" autofocus></label>
<button>Open</button></form></body></html>
"""


class Guard:
    """An ASGI middleware that passes on only requests with the token."""

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        await (self._refusal(request) or self._app)(scope, receive, marked)

    def _refusal(self, request: Request) -> Response | None:
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            kept = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
            answer = RedirectResponse(_address(request, kept), 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="lax")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(request.cookies.get(self._cookie, "")) or self._is_token(bearer):
            return None
        if request.url.path.startswith("/api/"):
            return Response('{"error":"the token is missing or wrong: open the link that slime view printed"}', 401)
        kept = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
        hidden = "".join(f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in kept)
        return HTMLResponse(ASK.format(action=escape(request.url.path), hidden=hidden), 401)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def digest(text: str) -> str:
    """The content-security-policy source of a script or style in a page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _address(request: Request, query: Iterable[tuple[str, str]]) -> str:
    """The path on this server; strips leading slashes, because `//` would name another host."""
    path = "/" + request.url.path.lstrip("/\\")
    text = urlencode(list(query))
    return f"{path}?{text}" if text else path
