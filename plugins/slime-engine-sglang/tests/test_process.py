"""A server as a process of the run: its start, detection of its end, and cleanup."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from fake_server_engines import engine_of
from servers import stub_python

from slime_core.errors import WorkerError
from slime_core.roles import GenerateRequest, SamplingParams
from slime_engine_sglang.host import ServerProcesses, reserve_port

REQUEST = GenerateRequest([5, 6, 7], SamplingParams(4), 0)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return stub_python(tmp_path / "servers")


def test_process_seen_once_is_not_reported_lost() -> None:
    processes = ServerProcesses()
    assert [processes.lost(each) for each in ({1}, {1, 7}, {1}, {1, 2}, {1, 2})] == [set()] * 5
    assert processes.lost({2}) == {1}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_server_starts_and_ends_with_the_engine(tmp_path: Path, python: Path) -> None:
    async with engine_of(tmp_path, python=str(python), server={"watchdog_timeout": 77.0}) as engine:
        await engine.start()
        info = await engine.server.ask("/server_info")
        argv = info["argv"]
        assert argv[argv.index("--model-path") + 1] == str(tmp_path / "model")
        assert argv[argv.index("--dtype") + 1] == "float32"
        assert "--sleep-on-idle" in argv
        assert argv[argv.index("--watchdog-timeout") + 1] == "77.0"
        assert "--enable-deterministic-inference" not in argv
        assert engine.url.endswith(f":{argv[argv.index('--port') + 1]}")
        pid = int(engine.server.title.partition("pid ")[2].partition(")")[0])
        assert not gone(pid)
        await engine.close()
        assert gone(pid)
        assert not await asyncio.to_thread(Path(str(info["tmpdir"])).exists)


async def test_failed_server_start_shows_its_log(tmp_path: Path, python: Path) -> None:
    async with engine_of(tmp_path, python=str(python), server={"fail": True}) as engine:
        with pytest.raises(WorkerError, match=r"(?s)there is no such model.*ended with code 3"):
            await engine.start()


async def test_server_death_is_reported_with_its_log(tmp_path: Path, python: Path) -> None:
    async with engine_of(tmp_path, python=str(python), server={"die": True}) as engine:
        await engine.start()
        watching = asyncio.create_task(engine.watch())
        with pytest.raises(WorkerError, match=r"(?s)engine \(pid \d+\), http.*the last words of a server.*code 7"):
            await engine.generate(REQUEST)
        with pytest.raises(WorkerError, match=r"(?s)the last words of a server.*code 7"):
            await watching


async def test_stopped_server_is_replaced(tmp_path: Path, python: Path) -> None:
    async with engine_of(tmp_path, python=str(python)) as engine:
        await engine.start()
        pid = int(engine.server.title.partition("pid ")[2].partition(")")[0])
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerError, match=f"is stopped: its process {pid} has not run for 5 s"):
            await asyncio.wait_for(engine.watch(), 60)
        async with asyncio.timeout(30):
            while not gone(pid):  # noqa: ASYNC110  # nothing tells when
                await asyncio.sleep(0.05)


def test_reserved_port_goes_to_its_server() -> None:
    with reserve_port("127.0.0.1", 0) as kept:
        address = kept.getsockname()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with socket.create_server(address), reserve_port(*address) as another:  # a server sets SO_REUSEADDR
            assert another.getsockname() != address
