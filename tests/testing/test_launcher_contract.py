"""The launcher contract: the core's own launcher keeps it, and launchers that are bad in one way each do not."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.errors import WorkerError
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import LauncherSetup, LauncherSpec, Needs, Place, WorkerGroup, WorkerGroupSpec
from slime_testing import CheckStatus, LauncherContract

Arguments = Sequence[object] | None


class Around:
    """A group that passes everything on."""

    def __init__(self, group: WorkerGroup) -> None:
        self.group = group

    @property
    def size(self) -> int:
        return self.group.size

    @property
    def places(self) -> Sequence[Place]:
        return self.group.places

    def unanswered(self) -> Mapping[int, str]:
        return self.group.unanswered()

    async def watch(self) -> None:
        await self.group.watch()

    async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
        return await self.group.call(method, arguments, **limit)

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        return await self.group.call_one(rank, method, argument, timeout_s=timeout_s)

    async def close(self) -> None:
        await self.group.close()


class Good:
    """A launcher around the core's own."""

    around = Around

    def __init__(self, settings: object, setup: LauncherSetup) -> None:
        self.own = LocalLauncher(setup)

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        return self.around(await self.own.start(spec, timeout_s=timeout_s))

    async def close(self) -> None:
        await self.own.close()


class NotAsync(Good):
    def close(self) -> None:  # type: ignore[override]
        pass


class Backwards(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            answers = await super().call(method, arguments, **limit)
            return answers[::-1] if method == "who" else answers


class FirstArgumentForAll(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            same = [arguments[0]] * len(arguments) if arguments else None
            return await super().call(method, same, **limit)


class Tightlipped(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            try:
                return await super().call(method, arguments, **limit)
            except WorkerError:
                raise WorkerError("a worker failed") from None


class WaitsForTheDead(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            try:
                return await super().call(method, arguments, **limit)
            except WorkerError:
                if method == "die":
                    await asyncio.sleep(3600)
                raise


class Patient(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            return await super().call(method, arguments)


class StartsAnyway(Good):
    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        try:
            return await super().start(spec, timeout_s=timeout_s)
        except WorkerError:
            return await super().start(replace(spec, arguments={"start": 0}))


class LeavesThemRunning(Good):
    class around(Around):  # noqa: N801
        async def close(self) -> None:
            """The launcher's own close is skipped too."""

    async def close(self) -> None:
        if not hasattr(self, "closed"):
            self.closed = True
            LEFT.append(self.own)


class Blocking(Good):
    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        time.sleep(0.4)  # noqa: ASYNC251
        return await super().start(spec, timeout_s=timeout_s)


class TakesAnything(Good):
    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        return await super().start(replace(spec, needs=Needs()), timeout_s=timeout_s)


class Forgetful(Good):
    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        return await super().start(replace(spec, environment={}), timeout_s=timeout_s)


class Lost(Good):
    class around(Around):  # noqa: N801
        @property
        def places(self) -> Sequence[Place]:
            return [Place(0), Place(0)]


class LooksAway(Good):
    class around(Around):  # noqa: N801
        async def watch(self) -> None:
            await asyncio.Event().wait()


class LeavesServers(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            answers = await super().call(method, arguments, **limit)
            return [*answers, [left_running()]] if method == "spawn" and self.is_it else answers

        @property
        def is_it(self) -> bool:
            return os.getpid() == TESTS


class DiesAlone(Good):
    class around(LeavesServers.around):  # noqa: N801
        @property
        def is_it(self) -> bool:
            return os.getpid() != TESTS


class Truncates(Good):
    class around(Around):  # noqa: N801
        async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
            answer = await super().call_one(rank, method, argument, timeout_s=timeout_s)
            return answer[: 1 << 20] if isinstance(answer, bytes) else answer


class Chatty(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            os.write(1, str(arguments)[:100].encode())
            return await super().call(method, arguments, **limit)


class Abrupt(Good):
    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        return await super().start(
            replace(spec, arguments={**spec.arguments, "marker_folder": None}), timeout_s=timeout_s
        )


class Elsewhere(Good):
    class around(Around):  # noqa: N801
        async def call(self, method: str, arguments: Arguments = None, **limit: float | None) -> list[object]:
            answers = await super().call(method, arguments, **limit)
            return ["/", *answers[1:]] if method == "folder" else answers


class BlamesAll(Good):
    class around(Around):  # noqa: N801
        def unanswered(self) -> Mapping[int, str]:
            return dict.fromkeys(range(self.size), "at work") if super().unanswered() else {}


def left_running() -> int:
    """A process that nobody ends but the test."""
    pid = os.posix_spawnp("sleep", ["sleep", "600"], os.environ, setsid=True)
    with Path(os.environ["SLIME_STRAYS"]).open("a") as strays:
        strays.write(f"{pid} ")
    return pid


# The driver of LCH-015 is a new process, which imports this file and has this one's variables.
TESTS = int(os.environ.setdefault("SLIME_TESTS", str(os.getpid())))
GOOD = LauncherSpec("good", Good)
DIES_ALONE = LauncherSpec("dies-alone", DiesAlone)
LEFT: list[LocalLauncher] = []
BAD: dict[str, type] = {
    "LCH-001": NotAsync,
    "LCH-002": Backwards,
    "LCH-003": FirstArgumentForAll,
    "LCH-004": Tightlipped,
    "LCH-005": WaitsForTheDead,
    "LCH-006": Patient,
    "LCH-007": StartsAnyway,
    "LCH-008": LeavesThemRunning,
    "LCH-009": Blocking,
    "LCH-010": TakesAnything,
    "LCH-011": Forgetful,
    "LCH-012": Lost,
    "LCH-013": LooksAway,
    "LCH-014": LeavesServers,
    "LCH-015": DiesAlone,
    "LCH-016": Truncates,
    "LCH-017": Chatty,
    "LCH-018": Abrupt,
    "LCH-019": Elsewhere,
    "LCH-020": BlamesAll,
}


def contract_of(launcher: type, limit: float = 60.0) -> type[LauncherContract]:
    placed = {each.factory: each for each in (GOOD, DIES_ALONE)}

    class Subject(LauncherContract):
        choice = placed.get(launcher) or LauncherSpec("subject", launcher)
        limit_s = limit

    return Subject


def failing(contract: type[LauncherContract]) -> dict[str, str]:
    return {result.identity: result.detail for result in contract.report() if result.status is CheckStatus.FAILED}


def test_the_local_launcher_keeps_the_contract() -> None:
    assert {result.status for result in contract_of(Good).report()} == {CheckStatus.PASSED}


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == LauncherContract.checks().keys()


@pytest.mark.long
@pytest.mark.parametrize("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    strays = tmp_path / "strays"
    strays.touch()
    monkeypatch.setenv("SLIME_STRAYS", str(strays))
    if identity != "LCH-016":
        monkeypatch.setattr("slime_testing.launcher.LARGE", 1000)
    limit = 8.0 if identity in ("LCH-005", "LCH-006", "LCH-008") else 60.0
    try:
        assert list(found := failing(contract_of(BAD[identity], limit))) == [identity], found
    finally:
        while LEFT:
            asyncio.run(LEFT.pop().close())
        for pid in strays.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(int(pid), 0)
