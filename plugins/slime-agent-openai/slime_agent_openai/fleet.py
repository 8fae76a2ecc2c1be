"""Fleet: agents on other machines that fetch tasks over HTTP. The run needs no route to those machines.

A worker fetches a task, reports regularly that it is alive, queries the model at the task's URL, and posts the result.
A worker that sends no report within the lease loses its task; the next worker runs the task again, once.

    POST /fleet/next  {"wait_s": 20, "worker": "a name"} 200 and a task; 204: try again; 410: the run has ended
    POST /fleet/ID/alive                                 200; 410: the task is no longer needed
    POST /fleet/ID/done  {"reward": 1.0}                 200; 410; 400 if the result is invalid
    POST /fleet/ID/failed  {"reason": "KeyError", "detail": "..."}
    POST /fleet/ID/back                                  returned unfinished: another worker runs it
"""

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from slime_agent_openai.connections import read_body
from slime_agent_openai.errors import AgentError, ApiError, late
from slime_agent_openai.task import Result, Task, Verdict, said_of, verdict_of
from slime_core.sample import Json

QUIET_S = 15.0  # Seconds before the first warning that tasks wait without a worker; doubles each time
LONGEST_WAIT_S = 60.0  # Seconds that a request for work may wait: proxies cut longer ones
LONGEST_NAME = 100  # Most characters of a worker's name
LOST, TIMEOUT = "agent_lost", "agent_timeout"  # Failure reasons: two workers lost the task, or it took too long

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Job:
    """A task for a worker."""

    task: Task
    timeout_s: float
    is_alone: bool  # Whether a worker lost it before: its agent must run alone
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    ended: asyncio.Future[Verdict] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    taken_at: float | None = None
    heard_at: float = 0.0


class Fleet:
    """Implements `slime_agent_openai.generator.Agents`; the gateway serves its routes."""

    def __init__(self, token: str, *, lease_s: float) -> None:
        self._token, self._lease_s = token, lease_s
        self._waiting: dict[str, _Job] = {}
        self._taken: dict[str, _Job] = {}
        self._news = asyncio.Condition()
        self._is_closed = False
        self._names: set[str] = set()  # Names of workers that have asked
        self._asking = 0  # Requests for work that are waiting
        self._command = ""
        self._telling: asyncio.Task[None] | None = None

    @property
    def routes(self) -> list[web.RouteDef]:
        return [web.post("/fleet/next", self._next), web.post("/fleet/{key}/{said}", self._told)]

    async def start(self) -> None:
        self._telling = asyncio.create_task(self._tell_of_waiting())

    def announce(self, url: str) -> None:
        """Log the URL for workers, as a warning since a run shows only warnings."""
        self._command = f"slime agent work {url} FILE.py:FUNCTION"
        log.warning("the fleet is served at %s; start workers on other machines: %s", url, self._command)

    async def _tell_of_waiting(self) -> None:
        """Warn while tasks wait and no worker is connected; the interval doubles each time."""
        quiet_s = QUIET_S
        while True:
            await asyncio.sleep(quiet_s)
            if self._waiting and not (self._asking or self._taken):
                log.warning("tasks are waiting, but no worker is connected. Start one: %s", self._command)
                quiet_s *= 2
            else:
                quiet_s = QUIET_S

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        async with self._news:
            self._is_closed = True
            self._news.notify_all()
        for job in [*self._waiting.values(), *self._taken.values()]:
            _fail(job, AgentError("agent_stopped", "the run has ended", shared=True))

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one task on a worker. Its time limit does not include the wait for a worker."""
        return await self._done(_Job(task, timeout_s, is_alone=False))

    async def run_alone(self, task: Task, *, timeout_s: float) -> Verdict:
        return await self._done(_Job(task, timeout_s, is_alone=True))

    async def _done(self, job: _Job) -> Verdict:
        if self._is_closed:
            raise AgentError("agent_stopped", "the run has ended", shared=True)
        async with self._news:
            self._waiting[job.key] = job
            self._news.notify()
        try:
            while not job.ended.done():
                await asyncio.wait({job.ended}, timeout=self._lease_s / 4)
                self._see_to(job)
            return job.ended.result()
        finally:
            self._waiting.pop(job.key, None)
            self._taken.pop(job.key, None)

    def _see_to(self, job: _Job) -> None:
        now = asyncio.get_running_loop().time()
        if job.taken_at is None:
            return
        if now - job.heard_at > self._lease_s:
            _lose(job, f"its worker sent no report for {self._lease_s:g} s")
        elif now - job.taken_at > job.timeout_s + self._lease_s:  # one lease later than the worker's own check
            _fail(job, AgentError(TIMEOUT, late(job.timeout_s)))

    async def _next(self, request: web.Request) -> web.Response:
        self._check(request)
        said = await _said(request)
        wait_s, worker = said.get("wait_s", 20.0), str(said.get("worker") or request.remote)[:LONGEST_NAME]
        if not isinstance(wait_s, int | float) or not 0 <= wait_s <= LONGEST_WAIT_S:
            raise _error(web.HTTPBadRequest, f"wait_s is {wait_s!r:.80}; expected 0 to {LONGEST_WAIT_S:g}")
        if worker not in self._names:
            self._names.add(worker)
            log.warning("worker %s joined the fleet (%d so far)", worker, len(self._names))
        self._asking += 1
        try:
            async with asyncio.timeout(wait_s), self._news:
                await self._news.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    raise _error(web.HTTPGone, "the run has ended: there is no more work")
                key = next(iter(self._waiting))
                job = self._taken[key] = self._waiting.pop(key)
                job.taken_at = job.heard_at = asyncio.get_running_loop().time()
        except TimeoutError:
            return web.Response(status=204)
        finally:
            self._asking -= 1
        times = {"timeout_s": job.timeout_s, "lease_s": self._lease_s}
        return web.json_response({"id": key, "task": job.task.to_json(), "alone": job.is_alone, **times})

    async def _told(self, request: web.Request) -> web.Response:
        self._check(request)
        job = self._taken.get(request.match_info["key"])
        if job is None or job.ended.done():
            raise _error(
                web.HTTPGone, "this task is no longer open: it exceeded its time limit, or another worker has it"
            )
        job.heard_at = asyncio.get_running_loop().time()
        match request.match_info["said"]:
            case "alive":
                pass
            case "done":
                job.ended.set_result(_verdict(await _said(request)))
            case "failed":
                said = await _said(request)
                reason, detail = str(said.get("reason", "failed")), str(said.get("detail", ""))
                _fail(job, AgentError(f"agent_{'_'.join(reason.split())[:60]}", detail))
            case "back":
                _lose(job, "its worker returned it unfinished")
            case other:
                raise _error(web.HTTPNotFound, f"unknown task report {other!r}; expected alive, done, failed or back")
        return web.json_response({})

    def _check(self, request: web.Request) -> None:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(shown.encode(), self._token.encode()):
            raise _error(
                web.HTTPUnauthorized,
                "wrong bearer token. Start the worker with the same SLIME_FLEET_TOKEN as slime agent serve",
            )


def _fail(job: _Job, error: AgentError) -> None:
    if not job.ended.done():
        job.ended.set_exception(error)


def _lose(job: _Job, detail: str) -> None:
    """Requeue a task for another worker; a task that was lost before fails as its agent's fault."""
    _fail(job, AgentError(LOST, detail, shared=not job.is_alone))


async def _said(request: web.Request) -> Mapping[str, Json]:
    try:
        body = json.loads(await read_body(request) or b"{}")
    except ApiError as error:
        raise _error(web.HTTPBadRequest, error.message) from None
    except (ValueError, RecursionError) as error:
        raise _error(web.HTTPBadRequest, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise _error(web.HTTPBadRequest, f"the body is a {type(body).__name__}; expected an object")
    return body


def _verdict(said: Mapping[str, Json]) -> Verdict:
    unknown = sorted(set(said) - {"reward", "turn_rewards", "agents", "metadata"})
    if unknown:
        text = f"unknown field {unknown[0]!r} in the result; expected reward, turn_rewards, agents or metadata"
        raise _error(web.HTTPBadRequest, text)
    try:
        if set(said) <= {"reward"}:
            return verdict_of(said_of(said.get("reward")))
        made = Result(**said)  # type: ignore[arg-type]  # said_of looks at what it is
        return verdict_of(said_of(made))
    except (TypeError, ValueError) as error:
        raise _error(web.HTTPBadRequest, str(error)) from None


def _error(kind: type[web.HTTPException], text: str) -> web.HTTPException:
    return kind(text=json.dumps({"error": {"message": text}}), content_type="application/json")
