"""The web application: one HTML file with its scripts; their data comes as JSON from `/api/`.

Example:

    app = make_app(OpenRun.all([Path("runs/first")]), token="...", hosts=["127.0.0.1"])
"""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import click
import uvicorn
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from slime_core.errors import ConfigError, SlimeError
from slime_core.sample import Json
from slime_view.comparison import Comparison
from slime_view.guard import Guard, digest
from slime_view.index import Query
from slime_view.runs import OpenRun
from slime_view.samples import Shard

STATIC = Path(__file__).with_name("static")
PAGES = ("/", "/samples", "/sample", "/group", "/compare")
LOOK_S = 1.0
"""Seconds between two reads of the folders."""
NAMES = ["127.0.0.1", "localhost", "[::1]"]
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def make_app(runs: Sequence[OpenRun], token: str, hosts: Sequence[str], cookie: str = "slime_view") -> ASGIApp:
    """The application for some runs.

    Args:
        runs: the runs to show.
        token: the token that a browser must send.
        hosts: allowed host names, which protect against DNS rebinding; `*` allows any.
        cookie: name of the cookie that holds the token.
    """

    @asynccontextmanager
    async def following(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(_follow(runs))
        yield
        task.cancel()

    api = Api(runs)
    routes: list[Route | Mount] = [Route(path, _page) for path in PAGES]
    routes += [Route(f"/api/{name}", _json(answer)) for name, answer in api.answers.items()]
    routes.append(Route("/conversations", api.conversations))
    routes.append(Mount("/static", StaticFiles(directory=STATIC)))
    app = Starlette(routes=routes, lifespan=following)
    return TrustedHostMiddleware(Guard(app, token, cookie), allowed_hosts=list(hosts))


async def _follow(runs: Sequence[OpenRun]) -> None:
    while True:
        more = [await asyncio.to_thread(run.refresh) for run in runs]
        await asyncio.sleep(0.01 if any(more) else LOOK_S)


def _page(_: Request) -> Response:
    return FileResponse(STATIC / "index.html")


def _json(answer: Callable[[Request], Json]) -> Callable[[Request], Response]:
    """A JSON endpoint, with errors as status 400 or 404. JSON escapes keep half of a surrogate pair."""

    def endpoint(request: Request) -> Response:
        try:
            found, status = answer(request), 200
        except ConfigError as error:
            found, status = {"error": str(error)}, 400
        except SlimeError as error:
            found, status = {"error": str(error)}, 404
        return Response(json.dumps(found, separators=(",", ":")), status, media_type="application/json")

    return endpoint


class Api:
    """Endpoints for the pages."""

    def __init__(self, runs: Sequence[OpenRun]) -> None:
        self._runs = runs
        self.answers: dict[str, Callable[[Request], Json]] = {
            "runs": self.runs,
            "curves": self.curves,
            "choices": lambda request: self._run(request).choices(),
            "samples": self.samples,
            "sample": self.sample,
            "group": lambda request: self._run(request).group(_given(request, "group")),
            "life": lambda request: self._run(request).life(_given(request, "group")),
            "compare": self.compare,
        }

    def runs(self, _: Request) -> Json:
        """The state of each run."""
        return [{**run.state(), "conversations": there_are_agents()} for run in self._runs]

    def conversations(self, request: Request) -> Response:
        """A separate page, which runs no script; its policy allows its style by digest."""
        try:
            text, policy = conversations(self._run(request), _given(request, "group"))
        except SlimeError as error:
            return Response(str(error), 404, media_type="text/plain")
        return HTMLResponse(text, headers={"content-security-policy": policy})

    def curves(self, request: Request) -> Json:
        """Some metrics of a run, starting at a row."""
        curves = self._run(request).curves
        row = request.query_params.get("after", "0")
        if not row.isdecimal():
            raise ConfigError(f"after = {row!r} is not the number of a row")
        return curves.after(int(row), request.query_params.getlist("name"))

    def samples(self, request: Request) -> Json:
        """A page of the table."""
        given = {name: value for name, value in request.query_params.items() if name != "run"}
        return self._run(request).table(Query.parse(given))

    def sample(self, request: Request) -> Json:
        """One sample."""
        run = self._run(request)
        return run.sample(run.place(_given(request, "file"), _given(request, "row")))

    def compare(self, request: Request) -> Json:
        """Two runs, as `slime diff` compares them."""
        return Comparison.of(self._run(request).folder, self._run(request, "with").folder).shown()

    def _run(self, request: Request, key: str = "run") -> OpenRun:
        name = request.query_params.get(key, self._runs[0].name)
        for run in self._runs:
            if run.name == name:
                return run
        raise ConfigError(f"no run {name!r} is open; open runs are {', '.join(run.name for run in self._runs)}")


def _given(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if value is None:
        raise ConfigError(f"{request.url.path} needs the parameter {name}=")
    return value


def there_are_agents() -> bool:
    """Whether the package that draws the forest is installed."""
    return find_spec("slime_agent_openai") is not None


def conversations(run: OpenRun, group: str) -> tuple[str, str]:
    """The page of a group, and the content security policy that allows its style and nothing else.

    Raises:
        ConfigError: the package is not installed, or the run keeps no samples of that group.
        RunFolderError: a file cannot be read.
    """
    if not there_are_agents():
        raise ConfigError("conversations need slime-agent-openai, which is not installed")
    from slime_agent_openai.conversations import executions_of, page

    path = run.file_of(group)
    if path is None:
        raise ConfigError(f"{run.name} keeps no samples of a group {group!r}")
    found = Shard(path).groups([group])
    shown = [*executions_of(found.kept), *executions_of(found.failed, "failed, and its group continued without it")]
    for each in found.dropped:
        shown += executions_of([each], found.reasons[each.id])
    text = page(f"{run.name}, {group}", shown, run.tokenizer)
    styles = " ".join(map(digest, _STYLE.findall(text)))
    return text, f"default-src 'none'; style-src {styles}; base-uri 'none'; frame-ancestors 'none'"


def serve(runs: Sequence[OpenRun], listening: socket.socket, token: str) -> None:
    """Print the address, and serve until interrupted."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    names = [*NAMES, shown] if shown in NAMES else ["*"]
    app = make_app(runs, token, names, f"slime_view_{port}")
    click.echo(f"http://{shown}:{port}/?token={token}")
    click.echo(f"shows {', '.join(run.name for run in runs)}, updated live; Ctrl-C ends it", err=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])
