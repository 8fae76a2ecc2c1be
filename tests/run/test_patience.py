"""Waiting for ranks: who is waited for is reported, and a call has a limit, on real worker processes."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, cast

import pytest

from slime_core.errors import WorkerError
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import LauncherSetup, WorkerGroup, WorkerGroupSpec
from slime_core.run.trainer import Patience
from slime_testing.launcher import TARGET

T = TypeVar("T")


def with_group(scratch: Path, use: Callable[[WorkerGroup], Awaitable[T]]) -> T:
    async def main() -> T:
        launcher = LocalLauncher(LauncherSetup(_nothing, 0, scratch=scratch))
        try:
            return await use(await launcher.start(WorkerGroupSpec("trainer", 2, TARGET, {"start": 0})))
        finally:
            await launcher.close()

    return asyncio.run(main())


def _nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def test_a_rank_that_was_stopped_is_named_with_its_process(tmp_path: Path) -> None:
    said: list[str] = []

    async def use(group: WorkerGroup) -> int:
        pid = cast(tuple[int, int, int], (await group.call("who"))[1])[2]
        os.kill(pid, signal.SIGSTOP)
        patience = Patience(group, 60.0, said.append, first_told_s=0.2)
        asked = asyncio.create_task(patience.step("add", [1, 1]))
        while len(said) < 2:  # noqa: ASYNC110  # told again after twice as long
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGCONT)
        assert await asked == [1, 1]
        told = len(said)
        await asyncio.sleep(0.5)
        assert len(said) == told
        return pid

    pid = with_group(tmp_path, use)
    assert f"; waiting for rank 1 (pid {pid}, stopped)" in said[0]
    assert said[0].startswith("trainer: add has taken 0 s")


def test_what_is_no_longer_than_usual_is_not_told(tmp_path: Path) -> None:
    said: list[str] = []

    async def use(group: WorkerGroup) -> None:
        patience = Patience(group, 60.0, said.append, first_told_s=0.1)
        await patience.step("sleep", [0.4, 0.0])
        told = len(said)
        assert told > 0
        await patience.step("sleep", [0.4, 0.0])
        assert len(said) == told

    with_group(tmp_path, use)


def test_the_limit_ends_a_call_of_one_step_and_is_longer_for_several(tmp_path: Path) -> None:
    async def use(group: WorkerGroup) -> None:
        with pytest.raises(WorkerError, match=r"trainer 0 did not answer sleep\(\) within 0.2 s"):
            await Patience(group, 0.2, [].append).step("sleep", [30.0, 0.0])

    async def use_several(group: WorkerGroup) -> None:
        await Patience(group, 0.2, [].append).step("sleep", [0.5, 0.0], steps=50)

    with_group(tmp_path, use)
    with_group(tmp_path, use_several)
