"""Remote agents against a runtime and S3 on this machine, by boto3: what becomes of a sample, and of its session."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from cloud import Cloud

from slime_agent_openai import remote_agents as module
from slime_agent_openai.aws import Aws
from slime_agent_openai.errors import AgentError
from slime_agent_openai.remote_agents import RemoteAgents
from slime_agent_openai.remote_settings import RemoteSettings
from slime_agent_openai.task import Task, Verdict
from slime_core.sample import Json
from tests.tables import table

ResultT = TypeVar("ResultT")
GOOD = json.dumps({"rewards": 1.0})
THROTTLED: dict[str, Json] = {"status": 429, "code": "ThrottlingException"}


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", 0.01)
    monkeypatch.setattr(module, "CLOSING_S", 5.0)


def made(cloud: Cloud, **changes: object) -> RemoteAgents:
    settings = RemoteSettings.model_validate(cloud.settings(**changes))
    return RemoteAgents(Aws(settings), settings)


def with_agents(
    cloud: Cloud, act: Callable[[RemoteAgents], Awaitable[ResultT]], **changes: object
) -> tuple[ResultT, RemoteAgents]:
    """What a use of some gives, from their start to their close."""

    async def whole() -> tuple[ResultT, RemoteAgents]:
        agents = made(cloud, **changes)
        await agents.start()
        try:
            return await asyncio.wait_for(act(agents), 60), agents
        finally:
            await agents.close()

    return asyncio.run(whole())


def task(prompt: str, **play: Json) -> Task:
    return Task(prompt, "42", "http://127.0.0.1:1/s/key", "key", {"play": play})


def one(cloud: Cloud, asked: Task, *, timeout_s: float = 30.0, **changes: object) -> Verdict:
    return with_agents(cloud, lambda agents: agents.run(asked, timeout_s=timeout_s), **changes)[0]


def failure(cloud: Cloud, asked: Task, *, timeout_s: float = 30.0, **changes: object) -> AgentError:
    with pytest.raises(AgentError) as caught:
        one(cloud, asked, timeout_s=timeout_s, **changes)
    assert len(caught.value.detail) <= 800
    assert not caught.value.shared
    return caught.value


def sessions(cloud: Cloud, prompt: str) -> list[str]:
    """Those that were invoked with a prompt."""
    return [each["session"] for each in cloud.log("invoke") if each["payload"]["prompt"] == prompt]


def stopped(cloud: Cloud, prompt: str) -> list[bool]:
    """Whether the runtime knew the sessions of a prompt when they were stopped."""
    return [each["known"] for name in set(sessions(cloud, prompt)) for each in cloud.log("stop", name)]


def test_remote_failure_names_reason_and_session(cloud: Cloud) -> None:
    result = json.dumps({"status_code": 500, "stop_reason": "no river", "traceback": "KeyError: 'no river'"})
    error = failure(cloud, task("fails", result=result))
    (session,) = sessions(cloud, "fails")
    assert error.reason == "agent_remote_failed"
    assert error.detail == f"no river\nKeyError: 'no river' (runtime session {session})"
    assert stopped(cloud, "fails") == [True]


def test_missing_result_times_out(cloud: Cloud) -> None:
    error = failure(cloud, task("never", never=True), timeout_s=0.3)
    assert error.reason == "agent_remote_timeout"
    assert "there was no result at s3://results/tests/math/" in error.detail
    assert stopped(cloud, "never") == [True]


def test_invocation_time_does_not_count(cloud: Cloud) -> None:
    assert one(cloud, task("cold", result=GOOD, cold_s=0.8), timeout_s=0.5) == 1.0


def test_waiting_for_a_slot_does_not_count(cloud: Cloud) -> None:
    async def act(agents: RemoteAgents) -> list[Verdict]:
        asked = [task("placed", result=GOOD, delay_s=0.3) for _ in range(6)]
        return await asyncio.gather(*(agents.run(each, timeout_s=1.0) for each in asked))

    with Cloud.started() as own:
        verdicts, _ = with_agents(own, act, max_concurrent=2)
        assert verdicts == [1.0] * 6
        assert own.most() == 2


def test_throttled_invocation_is_retried_in_the_same_session(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    asked = task("throttled", result=GOOD, refuse={**THROTTLED, "times": 2})
    verdict, agents = with_agents(cloud, lambda agents: agents.run(asked, timeout_s=30.0))
    assert verdict == 1.0
    assert agents.counts == {"agent_remote_ThrottlingException": 2}
    assert "the runtime refused invocations at first: agent_remote_ThrottlingException 2 times" in caplog.text
    assert len(sessions(cloud, "throttled")) == 3
    assert len(set(sessions(cloud, "throttled"))) == 1


@table("status, code", [(429, "ThrottlingException"), (402, "ServiceQuotaExceededException"), (503, "Unavailable")])
def test_exhausted_retries_fail_the_agent(cloud: Cloud, status: int, code: str) -> None:
    error = failure(cloud, task(code, refuse={"status": status, "code": code}), max_retry_attempts=2)
    assert error.reason == "agent_remote_busy"
    assert "the runtime refused 3 attempts, the last: " in error.detail
    assert code in error.detail
    assert (len(sessions(cloud, code)), stopped(cloud, code)) == (3, [])


@table(
    "status, code, has_begun",
    [
        (403, "AccessDeniedException", False),
        (404, "ResourceNotFoundException", False),
        (424, "RuntimeClientError", True),
        (500, "InternalServerException", True),
    ],
)
def test_errors_are_not_retried(cloud: Cloud, status: int, code: str, *, has_begun: bool) -> None:
    error = failure(cloud, task(code, refuse={"status": status, "code": code, "message": "x" * 2_000}))
    assert error.reason == f"agent_remote_{code}"
    assert len(sessions(cloud, code)) == 1
    assert len(stopped(cloud, code)) == has_begun


def test_read_timeout_is_not_retried(cloud: Cloud) -> None:
    error = failure(cloud, task("hangs", cold_s=5.0), invoke_seconds=0.5)
    assert error.reason == "agent_remote_ReadTimeoutError"
    assert (len(sessions(cloud, "hangs")), stopped(cloud, "hangs")) == (1, [True])


@table("name, cold_s", [("cancelled", 0.0), ("while it is invoked", 0.5)])
def test_cancelled_agent_stops_its_session(cloud: Cloud, name: str, cold_s: float) -> None:
    async def act(agents: RemoteAgents) -> None:
        running = asyncio.create_task(agents.run(task(name, never=True, cold_s=cold_s), timeout_s=60.0))
        await until_invoked(cloud, name)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    with_agents(cloud, act)
    assert stopped(cloud, name) == [True]


async def until_invoked(cloud: Cloud, prompt: str) -> None:
    while not await asyncio.to_thread(sessions, cloud, prompt):
        pass
