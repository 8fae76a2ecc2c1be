import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from slime_agent_openai import remote_agents as module
from slime_agent_openai.aws import NotTaken
from slime_agent_openai.errors import AgentError
from slime_agent_openai.remote_agents import Leaving, RemoteSession, backoff_s

BUSY = NotTaken("agent_remote_ThrottlingException", "slow down", again=True)
GONE = NotTaken("agent_remote_ResourceNotFoundException", "no such session", again=False)
DENIED = NotTaken("agent_remote_AccessDeniedException", "you may not", again=False)


class Stops:
    """What stops sessions, and meets some errors first."""

    def __init__(self, *errors: AgentError) -> None:
        self.errors, self.asked = list(errors), list[str]()

    async def __call__(self, session_id: str) -> None:
        self.asked.append(session_id)
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)


def used(stop: Callable[[str], Awaitable[None]], act: Callable[[Leaving], Awaitable[None]]) -> None:
    async def whole() -> None:
        leaving = Leaving(stop, attempts=2)
        leaving.start()
        await act(leaving)
        await leaving.close()

    asyncio.run(whole())


def invoked(session: RemoteSession, *, is_answered: bool = True) -> RemoteSession:
    session.invocation = asyncio.get_running_loop().create_future()
    if is_answered:
        session.invocation.set_result(b"{}")
    return session


def test_a_session_keeps_its_place_until_it_has_ended() -> None:
    happened = list[str]()

    async def stop(session_id: str) -> None:
        await asyncio.sleep(0.01)
        happened.append("stopped")

    async def act(leaving: Leaving) -> None:
        leaving.add(invoked(RemoteSession(lambda: happened.append("released"))))
        assert happened == []

    used(stop, act)
    assert happened == ["stopped", "released"]


def test_what_was_never_invoked_is_not_stopped_and_gives_its_place_at_once() -> None:
    stop, released = Stops(), list[bool]()

    async def act(leaving: Leaving) -> None:
        leaving.add(RemoteSession(lambda: released.append(True)))
        assert released == [True]

    used(stop, act)
    assert stop.asked == []


def test_one_whose_invocation_is_on_its_way_is_stopped_after_its_answer() -> None:
    stop = Stops()

    async def act(leaving: Leaving) -> None:
        session = invoked(RemoteSession(lambda: None), is_answered=False)
        leaving.add(session)
        await asyncio.sleep(0.01)
        assert stop.asked == []
        assert session.invocation is not None
        session.invocation.set_result(b"{}")

    used(stop, act)
    assert len(stop.asked) == 1


@pytest.mark.parametrize(
    ("errors", "asked", "warned"),
    [
        ([BUSY, BUSY], 3, ""),
        ([BUSY, BUSY, BUSY], 3, "slow down"),
        ([GONE], 1, ""),
        ([DENIED], 1, "you may not"),
        ([AgentError("agent_remote_InternalServerException", "oh")], 1, "oh"),
    ],
)
def test_only_a_busy_runtime_is_asked_again(
    errors: list[AgentError], asked: int, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop, released = Stops(*errors), list[bool]()

    async def act(leaving: Leaving) -> None:
        leaving.add(invoked(RemoteSession(lambda: released.append(True))))

    with caplog.at_level(logging.WARNING):
        used(stop, act)
    assert (len(stop.asked), released) == (asked, [True])
    assert (warned in caplog.text) if warned else not caplog.records


def test_a_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "CLOSING_S", 0.05)
    released = list[bool]()

    async def stop(session_id: str) -> None:
        await asyncio.sleep(600)

    async def act(leaving: Leaving) -> None:
        for _ in range(6):
            leaving.add(invoked(RemoteSession(lambda: released.append(True))))

    with caplog.at_level(logging.WARNING):
        used(stop, act)
    assert "6 sessions of the runtime were not ended" in caplog.text
    assert len(released) == 4  # the others had nobody yet


def test_the_wait_between_attempts_grows_to_a_limit() -> None:
    assert [backoff_s(attempt) for attempt in (0, 1, 2, 40)] == [0.001, 0.002, 0.004, 20.0]
