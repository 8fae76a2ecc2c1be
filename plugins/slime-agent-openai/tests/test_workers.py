import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slime_agent_openai import workers as running
from slime_agent_openai.errors import AgentError
from slime_agent_openai.task import Task
from slime_agent_openai.workers import Workers, environment
from slime_core.errors import ConfigError

HERE = Path(__file__).parent


def task(prompt: str = "", label: object = None) -> Task:
    return Task(prompt, label, "http://127.0.0.1:1/s/key", "key")  # type: ignore[arg-type]


@asynccontextmanager
async def at_work(name: str, *, workers: int = 1, at_once: int = 64, memory_mb: int = 2048) -> AsyncIterator[Workers]:
    """Some workers, which end with the block."""
    made = Workers(
        f"{HERE}/misbehaving_agents.py:{name}", workers=workers, agents_per_worker=at_once, memory_mb=memory_mb
    )
    await made.start()
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        await made.close()


async def test_shared_worker_death_is_attributed_by_running_alone() -> None:
    async with at_work("exits_where_asked") as workers:
        tasks = [task("exit"), task(), task()]
        together = await asyncio.gather(*(workers.run(each, timeout_s=30) for each in tasks), return_exceptions=True)
        assert [(error.reason, error.shared) for error in together] == [("agent_exit_3", True)] * 3  # type: ignore[union-attr]
        assert await workers.run(task(), timeout_s=30) == 1.0  # the next one runs in another process
        alone = (workers.run_alone(each, timeout_s=30) for each in tasks[:2])
        guilty, *others = await asyncio.gather(*alone, return_exceptions=True)
    assert others == [1.0]
    assert (guilty.reason, guilty.shared) == ("agent_exit_3", False)


async def test_hanging_agent_does_not_affect_its_neighbours() -> None:
    async with at_work("hangs") as workers:
        hanging = asyncio.create_task(workers.run(task("hang"), timeout_s=0.3))
        sharing = asyncio.create_task(workers.run(task("4"), timeout_s=30))
        await asyncio.wait({hanging})
        after = await workers.run(task(), timeout_s=30)
        old = await sharing
        late, lives = hanging.exception(), await asyncio.to_thread(_lives, int(float(str(old))))
    assert (late.reason, late.shared) == ("agent_timeout", False)
    assert old != after
    assert not lives


async def test_cancelled_agent_has_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LEAVING_S", 1.2)
    async with at_work("hangs") as workers:
        pids = [await workers.run(task(), timeout_s=30)]
        for away in ("0.5", "hang"):
            left = asyncio.create_task(workers.run(task(away), timeout_s=30))
            await asyncio.sleep(0.2)
            left.cancel()
            await asyncio.wait({left}, timeout=0.1)
            assert left.cancelled()  # at once
            await asyncio.sleep(1.5)
            pids.append(await workers.run(task(), timeout_s=30))
        first, then, last = pids
    assert first == then != last


async def test_blocked_event_loop_is_a_shared_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BLOCKED_S", 1.0)
    monkeypatch.setattr(running, "GRACE_S", 0.5)
    async with at_work("ends_as_asked") as workers:
        tasks = [task("wait"), task("block"), task("wait")]
        times = [0.6, 30.0, 30.0]
        asked = [workers.run(each, timeout_s=time_s) for each, time_s in zip(tasks, times, strict=True)]
        made = await asyncio.gather(*asked, return_exceptions=True)
    assert [error.shared for error in made] == [True] * 3  # type: ignore[attr-defined]
    assert [error.reason for error in made] == ["agent_timeout", "agent_blocked", "agent_blocked"]  # type: ignore[attr-defined]


async def test_many_agents_run_per_process() -> None:
    async with at_work("counts_itself", workers=2, at_once=100) as workers:
        made = await asyncio.gather(*(workers.run(task(), timeout_s=30) for _ in range(200)))
    assert made == [100.0] * 200


async def test_memory_limit_is_a_shared_failure() -> None:
    async with at_work("fills_memory", memory_mb=400) as workers:
        with pytest.raises(AgentError, match="agent_timeout"):
            await workers.run(task(), timeout_s=0.05)
        with pytest.raises(AgentError, match="agent_memory") as caught:
            await workers.run(task(), timeout_s=30)
    assert caught.value.shared is True


async def test_closing_ends_all_agents(tmp_path: Path) -> None:
    async with at_work("forks", at_once=1) as workers:
        paths = [tmp_path / name for name in ("place", "alone")]
        tasks = [task(str(path)) for path in paths]
        asked = [
            asyncio.create_task(workers.run(tasks[0], timeout_s=60)),
            asyncio.create_task(workers.run_alone(tasks[1], timeout_s=60)),
            asyncio.create_task(workers.run(tasks[0], timeout_s=60)),  # waits for a place
        ]
        while not all(path.exists() and path.read_text() for path in paths):  # noqa: ASYNC110  # other processes
            await asyncio.sleep(0.05)
        await workers.close()
        assert not any(_lives(int(path.read_text())) for path in paths)
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [(error.reason, error.shared) for error in ended] == [("agent_stopped", True)] * 3  # type: ignore[attr-defined]


def test_gateway_bypasses_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example")
    monkeypatch.setenv("NO_PROXY", "inner.example")
    monkeypatch.delenv("no_proxy", raising=False)
    env = environment()
    assert env["HTTP_PROXY"] == "http://proxy.example"
    assert env["NO_PROXY"] == env["no_proxy"] == "inner.example,127.0.0.1,localhost,::1"


def test_failing_agent_import_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module\n\n\nasync def solve(task):\n    return 1.0\n")

    async def start() -> None:
        workers = Workers(f"{tmp_path}/broken.py:solve", workers=2, agents_per_worker=1, memory_mb=1024)
        try:
            await workers.start()
        finally:
            await workers.close()

    with pytest.raises(ConfigError, match=r"(?s)broken\.py.*line 1.*no_such_module"):
        asyncio.run(start())


def _lives(pid: int) -> bool:
    """Whether a process does not end within some seconds."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return True
