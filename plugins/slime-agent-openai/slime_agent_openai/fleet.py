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
from slime_agent_openai.errors import AgentError, ApiError, timeout_message
from slime_agent_openai.task import Result, Task, Verdict, verdict_from_json, verdict_to_json
from slime_core.sample import Json

QUIET_S = 15.0  # Seconds before the first warning that tasks wait without a worker; doubles each time
MAX_WAIT_S = 60.0  # Seconds that a request for work may wait: proxies cut longer ones
MAX_NAME = 100  # Most characters of a worker's name
LOST, TIMEOUT = "agent_lost", "agent_timeout"  # Failure reasons: two workers lost the task, or it took too long

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Job:
    """A task for a worker."""

    task: Task
    timeout_s: float
    is_alone: bool  # Whether a worker lost it before: its agent must run alone
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    result: asyncio.Future[Verdict] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    started_at: float | None = None
    last_report_at: float = 0.0


class Fleet:
    """Implements `slime_agent_openai.generator.Agents`; the gateway serves its routes."""

    def __init__(self, token: str, *, lease_s: float) -> None:
        self._token, self._lease_s = token, lease_s
        self._waiting: dict[str, _Job] = {}
        self._running: dict[str, _Job] = {}
        self._changed = asyncio.Condition()
        self._is_closed = False
        self._names: set[str] = set()  # Names of workers that have asked
        self._polling = 0  # Requests for work that are waiting
        self._command = ""
        self._warner: asyncio.Task[None] | None = None

    @property
    def routes(self) -> list[web.RouteDef]:
        return [web.post("/fleet/next", self._next), web.post("/fleet/{key}/{report}", self._report)]

    async def start(self) -> None:
        self._warner = asyncio.create_task(self._warn_of_waiting())

    def announce(self, url: str) -> None:
        """Log the URL for workers, as a warning since a run shows only warnings."""
        self._command = f"slime agent work {url} FILE.py:FUNCTION"
        log.warning("the fleet is served at %s; start workers on other machines: %s", url, self._command)

    async def _warn_of_waiting(self) -> None:
        """Warn while tasks wait and no worker is connected; the interval doubles each time."""
        quiet_s = QUIET_S
        while True:
            await asyncio.sleep(quiet_s)
            if self._waiting and not (self._polling or self._running):
                log.warning("tasks are waiting, but no worker is connected. Start one: %s", self._command)
                quiet_s *= 2
            else:
                quiet_s = QUIET_S

    async def close(self) -> None:
        if self._warner is not None:
            self._warner.cancel()
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for job in [*self._waiting.values(), *self._running.values()]:
            _fail(job, AgentError("agent_stopped", "the run has ended", shared=True))

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        """Run one task on a worker. Its time limit does not include the wait for a worker."""
        return await self._run_job(_Job(task, timeout_s, is_alone=False))

    async def run_alone(self, task: Task, *, timeout_s: float) -> Verdict:
        return await self._run_job(_Job(task, timeout_s, is_alone=True))

    async def _run_job(self, job: _Job) -> Verdict:
        if self._is_closed:
            raise AgentError("agent_stopped", "the run has ended", shared=True)
        async with self._changed:
            self._waiting[job.key] = job
            self._changed.notify()
        try:
            while not job.result.done():
                await asyncio.wait({job.result}, timeout=self._lease_s / 4)
                self._check_lease(job)
            return job.result.result()
        finally:
            self._waiting.pop(job.key, None)
            self._running.pop(job.key, None)

    def _check_lease(self, job: _Job) -> None:
        now = asyncio.get_running_loop().time()
        if job.started_at is None:
            return
        if now - job.last_report_at > self._lease_s:
            _requeue(job, f"its worker sent no report for {self._lease_s:g} s")
        elif now - job.started_at > job.timeout_s + self._lease_s:  # one lease later than the worker's own check
            _fail(job, AgentError(TIMEOUT, timeout_message(job.timeout_s)))

    async def _next(self, request: web.Request) -> web.Response:
        self._check(request)
        body = await _read_body(request)
        wait_s, worker = body.get("wait_s", 20.0), str(body.get("worker") or request.remote)[:MAX_NAME]
        if not isinstance(wait_s, int | float) or not 0 <= wait_s <= MAX_WAIT_S:
            raise _error(web.HTTPBadRequest, f"wait_s is {wait_s!r:.80}; expected 0 to {MAX_WAIT_S:g}")
        if worker not in self._names:
            self._names.add(worker)
            log.warning("worker %s joined the fleet (%d so far)", worker, len(self._names))
        self._polling += 1
        try:
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    raise _error(web.HTTPGone, "the run has ended: there is no more work")
                key = next(iter(self._waiting))
                job = self._running[key] = self._waiting.pop(key)
                job.started_at = job.last_report_at = asyncio.get_running_loop().time()
        except TimeoutError:
            return web.Response(status=204)
        finally:
            self._polling -= 1
        times = {"timeout_s": job.timeout_s, "lease_s": self._lease_s}
        return web.json_response({"id": key, "task": job.task.to_json(), "alone": job.is_alone, **times})

    async def _report(self, request: web.Request) -> web.Response:
        self._check(request)
        job = self._running.get(request.match_info["key"])
        if job is None or job.result.done():
            raise _error(
                web.HTTPGone, "this task is no longer open: it exceeded its time limit, or another worker has it"
            )
        job.last_report_at = asyncio.get_running_loop().time()
        match request.match_info["report"]:
            case "alive":
                pass
            case "done":
                job.result.set_result(_verdict(await _read_body(request)))
            case "failed":
                body = await _read_body(request)
                reason, detail = str(body.get("reason", "failed")), str(body.get("detail", ""))
                _fail(job, AgentError(f"agent_{'_'.join(reason.split())[:60]}", detail))
            case "back":
                _requeue(job, "its worker returned it unfinished")
            case other:
                raise _error(web.HTTPNotFound, f"unknown task report {other!r}; expected alive, done, failed or back")
        return web.json_response({})

    def _check(self, request: web.Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise _error(
                web.HTTPUnauthorized,
                "wrong bearer token. Start the worker with the same SLIME_FLEET_TOKEN as slime agent serve",
            )


def _fail(job: _Job, error: AgentError) -> None:
    if not job.result.done():
        job.result.set_exception(error)


def _requeue(job: _Job, detail: str) -> None:
    """Requeue a task for another worker; a task that was lost before fails as its agent's fault."""
    _fail(job, AgentError(LOST, detail, shared=not job.is_alone))


async def _read_body(request: web.Request) -> Mapping[str, Json]:
    try:
        body = json.loads(await read_body(request) or b"{}")
    except ApiError as error:
        raise _error(web.HTTPBadRequest, error.message) from None
    except (ValueError, RecursionError) as error:
        raise _error(web.HTTPBadRequest, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise _error(web.HTTPBadRequest, f"the body is a {type(body).__name__}; expected an object")
    return body


def _verdict(body: Mapping[str, Json]) -> Verdict:
    unknown = sorted(set(body) - {"reward", "turn_rewards", "agents", "metadata"})
    if unknown:
        text = f"unknown field {unknown[0]!r} in the result; expected reward, turn_rewards, agents or metadata"
        raise _error(web.HTTPBadRequest, text)
    try:
        if set(body) <= {"reward"}:
            return verdict_from_json(verdict_to_json(body.get("reward")))
        result = Result(**body)  # type: ignore[arg-type]  # verdict_to_json looks at what it is
        return verdict_from_json(verdict_to_json(result))
    except (TypeError, ValueError) as error:
        raise _error(web.HTTPBadRequest, str(error)) from None


def _error(kind: type[web.HTTPException], text: str) -> web.HTTPException:
    return kind(text=json.dumps({"error": {"message": text}}), content_type="application/json")
