import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp
import pytest

from slime_agent_openai.errors import AgentError
from slime_agent_openai.fleet import Fleet
from slime_agent_openai.fleet_client import FleetClient
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.task import Result, Task, Verdict
from slime_core.errors import ConfigError, WorkerError
from tests.tables import table

TASK = Task("What is 17 + 25?", "42", "http://127.0.0.1:1/s/KEY", "KEY", {"level": 3})
TOKEN = "the token of this fleet"


class There:
    """A fleet behind a gateway, and a worker's requests to it."""

    def __init__(self, fleet: Fleet, url: str, http: aiohttp.ClientSession) -> None:
        self.fleet, self.url, self._http = fleet, url, http

    async def post(self, path: str, body: object = None, token: str = TOKEN) -> tuple[int, dict[str, object]]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._http.post(f"{self.url}/fleet/{path}", json=body or {}, headers=headers) as answer:
            return answer.status, {} if answer.status == 204 else await answer.json()

    async def taken(self) -> dict[str, object]:
        status, given = await self.post("next", {"wait_s": 5})
        assert status == 200, given
        return given


@asynccontextmanager
async def there(lease_s: float = 30.0) -> AsyncIterator[There]:
    fleet = Fleet(TOKEN, lease_s=lease_s)
    gateway = Gateway(extra_routes=fleet.routes)
    await gateway.start()
    try:
        async with aiohttp.ClientSession() as http:
            yield There(fleet, gateway.url, http)
    finally:
        await fleet.close()
        await gateway.close()


@pytest.fixture
def here() -> AbstractAsyncContextManager[There]:
    return there()


async def test_fleet_worker_receives_a_task_and_reports(here: There) -> None:
    running = asyncio.create_task(here.fleet.run(TASK, timeout_s=60.0))
    given = await here.taken()
    assert Task(**given["task"]) == TASK  # type: ignore[arg-type]
    assert (given["timeout_s"], given["lease_s"], given["alone"]) == (60.0, 30.0, False)
    assert (await here.post(f"{given['id']}/alive"))[0] == 200
    said = {"reward": {"right": 1, "brief": 0.5}, "turn_rewards": [0.5, 1], "metadata": {"tools": 2}}
    assert (await here.post(f"{given['id']}/done", said))[0] == 200
    assert await running == Result({"right": 1.0, "brief": 0.5}, (0.5, 1.0), metadata={"tools": 2})


@table(
    "said, why",
    [
        ({"reward": "much"}, "expected a number"),
        ({"reward": float("nan")}, "finite"),
        ({"score": 1.0}, "unknown field 'score' in the result"),
    ],
)
async def test_invalid_report_can_be_repeated(said: dict[str, object], why: str) -> None:
    async with there() as here:
        running = asyncio.create_task(here.fleet.run(TASK, timeout_s=60.0))
        given = await here.taken()
        status, answer = await here.post(f"{given['id']}/done", said)
        assert status == 400
        assert why in str(answer)
        await here.post(f"{given['id']}/done", {"reward": None})
        assert await running is None


async def test_silent_worker_loses_its_lease() -> None:
    async with there(lease_s=0.2) as here:
        running = asyncio.create_task(here.fleet.run(TASK, timeout_s=60.0))
        given = await here.taken()
        with pytest.raises(AgentError, match="sent no report for") as caught:
            await running
        assert caught.value.shared
        assert (await here.post(f"{given['id']}/alive"))[0] == 410
        assert (await here.post(f"{given['id']}/done", {"reward": 1.0}))[0] == 410


async def test_waiting_for_a_worker_does_not_count() -> None:
    async with there(lease_s=0.2) as here:
        running = asyncio.create_task(here.fleet.run(TASK, timeout_s=0.01))
        await asyncio.sleep(0.6)
        assert not running.done()
        given = await here.taken()
        while not running.done():
            await here.post(f"{given['id']}/alive")
            await asyncio.wait({running}, timeout=0.05)
        with pytest.raises(AgentError, match=r"limit of 0\.01 s") as caught:
            await running
        assert caught.value.reason == "agent_timeout"


async def test_fleet_without_workers_is_logged(
    here: There, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("slime_agent_openai.fleet.QUIET_S", 0.05)
    here.fleet.announce(here.url)
    await here.fleet.start()
    waiting = [asyncio.create_task(here.fleet.run(TASK, timeout_s=60.0)) for _ in range(3)]
    while len(caplog.records) < 3:  # said again, after twice as long  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    said = [record.message for record in caplog.records]
    assert said[0].startswith("the fleet is served at http://127.0.0.1:")
    assert said[1] == said[2]
    assert "no worker is connected. Start one: slime agent work http://127.0.0.1:" in said[1]


def test_fleet_client_logs_an_unreachable_run() -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match="not a URL"):
        FleetClient("localhost", TOKEN)
    with pytest.raises(WorkerError, match=r"no run is served at http://127\.0\.0\.1:9"):
        asyncio.run(FleetClient("http://127.0.0.1:9/", TOKEN, patience_s=0.5, tell=said.append).work(Doing(), 2))
    assert len(said) == 1
    assert said[0].startswith("cannot reach http://127.0.0.1:9: ")


async def test_wrong_fleet_token_is_refused(here: There) -> None:
    assert (await here.post("next", token="another"))[0] == 401
    with pytest.raises(ConfigError, match=r"wrong bearer token\. .* the same SLIME_FLEET_TOKEN as slime agent serve"):
        await FleetClient(here.url, "another").work(Doing(), 2)


class Doing:
    """Agents that do as their task's label says."""

    def __init__(self) -> None:
        self.cancelled, self.alone = 0, 0

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        match task.label:
            case "fail":
                raise AgentError("agent_KeyError", "as it was told")
            case "die":
                raise AgentError("agent_killed", "with others", shared=True)
            case "wait":
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled += 1
        return 1.0

    async def run_alone(self, task: Task, *, timeout_s: float) -> Verdict:
        self.alone += 1
        return 0.5


def task(label: str) -> Task:
    return Task("?", label, "http://127.0.0.1:1/s/KEY", "KEY")


async def test_fleet_client_counts_outcomes(here: There) -> None:
    client = asyncio.create_task(FleetClient(here.url, TOKEN).work(Doing(), 4))
    asked = [here.fleet.run(task(label), timeout_s=60.0) for label in ("fail", *["right"] * 10)]
    failed, *made = await asyncio.gather(*asked, return_exceptions=True)
    await here.fleet.close()
    assert made == [1.0] * 10
    assert isinstance(failed, AgentError)
    assert (failed.reason, failed.detail, failed.shared) == ("agent_KeyError", "as it was told", False)
    assert await client == {"done": 10, "failed": 1}


async def test_shared_death_is_returned_and_run_alone(here: There) -> None:
    doing = Doing()
    client = asyncio.create_task(FleetClient(here.url, TOKEN).work(doing, 1))
    with pytest.raises(AgentError, match="returned it unfinished") as caught:
        await here.fleet.run(task("die"), timeout_s=60.0)
    assert (caught.value.reason, caught.value.shared) == ("agent_lost", True)  # and is run again, alone
    assert await here.fleet.run_alone(task("die"), timeout_s=60.0) == 0.5
    await here.fleet.close()
    assert await client == {"back": 1, "done": 1}
    assert doing.alone == 1


async def test_fleet_client_drops_expired_tasks() -> None:
    async with there(lease_s=0.2) as here:
        doing = Doing()
        client = asyncio.create_task(FleetClient(here.url, TOKEN).work(doing, 1))
        waiting = asyncio.create_task(here.fleet.run(task("wait"), timeout_s=60.0))
        await asyncio.sleep(0.5)
        waiting.cancel()
        assert await here.fleet.run(task("right"), timeout_s=60.0) == 1.0  # its one place is free again
        await here.fleet.close()
        assert await client == {"given up": 1, "done": 1}
        assert doing.cancelled == 1


async def test_stopped_fleet_client_returns_its_tasks(here: There) -> None:
    doing = Doing()
    client = asyncio.create_task(FleetClient(here.url, TOKEN).work(doing, 2))
    waiting = asyncio.create_task(here.fleet.run(task("wait"), timeout_s=60.0))
    await asyncio.sleep(0.3)
    client.cancel()
    with pytest.raises(AgentError, match="returned it unfinished"):
        await waiting
    assert doing.cancelled == 1
