"""FleetClient: the worker side of a fleet. It fetches tasks over HTTP, runs them and reports their results.

Example:

    counts = await FleetClient("http://10.0.0.5:8700", token).work(agents, 64)     # until the run ends
"""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

import aiohttp

from slime_agent_openai.errors import AgentError
from slime_agent_openai.generator import Agents
from slime_agent_openai.task import Task, verdict_to_json
from slime_core.errors import ConfigError, WorkerError
from slime_core.sample import Json

WAIT_S = 20.0  # Seconds that a request for a task may wait
RETRY_S = 1.0  # Seconds between attempts to reach a run


class FleetClient:
    """Fetches tasks from one run."""

    def __init__(
        self, url: str, token: str, *, patience_s: float = 120.0, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        """Set the run's `url`; raises ConfigError if that is not a URL.

        An unreachable run is retried for `patience_s` seconds. `tell` gets a line when the connection changes.
        """
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not a URL. Write http://HOST:PORT, as slime agent serve prints it")
        self._url, self._patience_s = url.rstrip("/"), patience_s
        self._headers = {"Authorization": f"Bearer {token}"}
        self._name = f"{socket.gethostname()}/{os.getpid()}"
        self._counts = Counter[str]()
        self._tell = tell
        self._is_connected: bool | None = None

    async def work(self, agents: Agents, most: int) -> Counter[str]:
        """Run up to `most` agents at once until the run ends; returns the number of agents by outcome.

        Raises ConfigError for a wrong token, WorkerError if the run cannot be reached.
        """
        timeout = aiohttp.ClientTimeout(total=WAIT_S + 40)
        connector = aiohttp.TCPConnector(limit=2 * most + 2)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout, connector=connector) as http:
            serving = [asyncio.create_task(self._serve(http, agents)) for _ in range(most)]
            try:
                await asyncio.gather(*serving)
            finally:
                for each in serving:
                    each.cancel()
                await asyncio.wait(serving)
        return self._counts

    def _connect(self, trouble: str = "") -> None:
        is_connected = not trouble
        if is_connected == self._is_connected:
            return
        self._is_connected = is_connected
        if is_connected:
            self._tell(f"connected to {self._url} as {self._name}; waiting for tasks")
        else:
            self._tell(f"cannot reach {self._url}: {trouble}. Retrying for {self._patience_s:g} s")

    async def _serve(self, http: aiohttp.ClientSession, agents: Agents) -> None:
        while True:
            status, job = await self._post(http, "next", {"wait_s": WAIT_S, "worker": self._name})
            if status == 410:
                return
            if status == 200:
                await self._run_task(http, agents, job)

    async def _run_task(self, http: aiohttp.ClientSession, agents: Agents, job: Mapping[str, Json]) -> None:
        key, lease_s, timeout_s = str(job["id"]), float(str(job["lease_s"])), float(str(job["timeout_s"]))
        task = Task(**job["task"])  # type: ignore[arg-type]  # the gateway's own answer
        run = agents.run_alone if job["alone"] else agents.run
        running = asyncio.create_task(run(task, timeout_s=timeout_s))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=lease_s / 4)
                if not running.done() and (await self._post(http, f"{key}/alive", {}))[0] == 410:
                    self._counts["given up"] += 1
                    return
            report, body = _report_of(running)
            status, _ = await self._post(http, f"{key}/{report}", body)
            self._counts[report if status == 200 else "too late"] += 1
        except asyncio.CancelledError:
            with suppress(ConfigError, WorkerError, TimeoutError):  # the task's lease ends anyway
                async with asyncio.timeout(RETRY_S):
                    await self._post(http, f"{key}/back", {})
            raise
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def _post(
        self, http: aiohttp.ClientSession, path: str, body: Mapping[str, Json]
    ) -> tuple[int, Mapping[str, Json]]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while True:
            try:
                async with http.post(f"{self._url}/fleet/{path}", json=body) as answer:
                    if answer.status >= 500:  # from a proxy, while the run is resumed
                        raise aiohttp.ClientError(f"status {answer.status}")
                    status, result = answer.status, await answer.json() if answer.status != 204 else {}
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                if loop.time() > until:
                    text = f"no run is served at {self._url}: {error}. Retried for {self._patience_s:g} s"
                    raise WorkerError(text) from None
                self._connect(str(error) or type(error).__name__)
            else:
                if status in (200, 204):
                    self._connect()
                if status in (200, 204, 410):
                    return status, result
                raise ConfigError(f"{self._url} answered {status}: {_message(result)}")
            await asyncio.sleep(RETRY_S)


def outcomes_line(counts: Mapping[str, int]) -> str:
    """One line with the number of agents by outcome."""
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))


def _report_of(running: "asyncio.Task[object]") -> tuple[str, Mapping[str, Json]]:
    error = running.exception()
    if isinstance(error, AgentError) and error.shared:
        return "back", {}
    if isinstance(error, AgentError):
        return "failed", {"reason": error.reason.removeprefix("agent_"), "detail": error.detail}
    return "done", verdict_to_json(running.result())


def _message(result: Mapping[str, Json]) -> str:
    error = result.get("error")
    return str(error.get("message")) if isinstance(error, dict) else str(result)[:200]
