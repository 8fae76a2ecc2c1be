"""The launcher contract: the core's own launcher keeps it, and launchers that are bad in one way each do not."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from slime_core.errors import WorkerError
from slime_core.local.launcher import LocalLauncher
from slime_core.roles import Launcher, LauncherSetup, LauncherSpec, WorkerGroup, WorkerGroupSpec
from slime_core.testing import CheckStatus, LauncherContract


class Around:
    """A group that passes everything on."""

    def __init__(self, group: WorkerGroup) -> None:
        self.group = group

    @property
    def size(self) -> int:
        return self.group.size

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        return await self.group.call(method, arguments, timeout_s=timeout_s)

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        return await self.group.call_one(rank, method, argument, timeout_s=timeout_s)

    async def close(self) -> None:
        await self.group.close()


class Good:
    """A launcher around the core's own."""

    around = Around

    def __init__(self, settings: object, setup: LauncherSetup) -> None:
        self.own = LocalLauncher(setup)

    async def start(self, spec: WorkerGroupSpec) -> WorkerGroup:
        return self.around(await self.own.start(spec))

    async def close(self) -> None:
        await self.own.close()


class NotAsync(Good):
    def close(self) -> None:  # type: ignore[override]
        pass


class Backwards(Good):
    class around(Around):  # noqa: N801
        async def call(
            self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
        ) -> list[object]:
            answers = await super().call(method, arguments, timeout_s=timeout_s)
            return answers[::-1] if method == "who" else answers


class FirstArgumentForAll(Good):
    class around(Around):  # noqa: N801
        async def call(
            self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
        ) -> list[object]:
            same = [arguments[0]] * len(arguments) if arguments else None
            return await super().call(method, same, timeout_s=timeout_s)


class Tightlipped(Good):
    class around(Around):  # noqa: N801
        async def call(
            self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
        ) -> list[object]:
            try:
                return await super().call(method, arguments, timeout_s=timeout_s)
            except WorkerError:
                raise WorkerError("a worker failed") from None


class WaitsForTheDead(Good):
    class around(Around):  # noqa: N801
        async def call(
            self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
        ) -> list[object]:
            try:
                return await super().call(method, arguments, timeout_s=timeout_s)
            except WorkerError:
                if method == "die":
                    await asyncio.sleep(3600)
                raise


class Patient(Good):
    class around(Around):  # noqa: N801
        async def call(
            self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
        ) -> list[object]:
            return await super().call(method, arguments)


class StartsAnyway(Good):
    async def start(self, spec: WorkerGroupSpec) -> WorkerGroup:
        try:
            return await super().start(spec)
        except WorkerError:
            return await super().start(WorkerGroupSpec(spec.name, spec.size, spec.target, {"start": 0}))


class LeavesThemRunning(Good):
    class around(Around):  # noqa: N801
        async def close(self) -> None:
            """The launcher's own close is skipped too."""

    async def close(self) -> None:
        if not hasattr(self, "closed"):
            self.closed = True
            LEFT.append(self.own)


class Blocking(Good):
    async def start(self, spec: WorkerGroupSpec) -> WorkerGroup:
        time.sleep(0.4)  # noqa: ASYNC251
        return await super().start(spec)


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
}


def contract_of(launcher: type, limit: float = 60.0) -> type[LauncherContract]:
    def factory(settings: object, setup: LauncherSetup) -> Launcher:
        return launcher(settings, setup)  # type: ignore[no-any-return]

    class Subject(LauncherContract):
        choice = LauncherSpec("subject", factory)
        limit_s = limit

    return Subject


def failing(contract: type[LauncherContract]) -> dict[str, str]:
    return {result.identity: result.detail for result in contract.report() if result.status is CheckStatus.FAILED}


def test_the_local_launcher_keeps_the_contract() -> None:
    assert {result.status for result in contract_of(Good).report()} == {CheckStatus.PASSED}


def test_there_is_a_mutant_for_every_check() -> None:
    assert BAD.keys() == LauncherContract.checks().keys()


@pytest.mark.parametrize("identity", BAD)
def test_each_mutant_is_caught_by_its_own_check(identity: str) -> None:
    limit = 8.0 if identity in ("LCH-005", "LCH-006", "LCH-008") else 60.0
    try:
        assert list(found := failing(contract_of(BAD[identity], limit))) == [identity], found
    finally:
        while LEFT:
            asyncio.run(LEFT.pop().close())
