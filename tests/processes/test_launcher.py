import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from slime_core.errors import ConfigError, ModelError, NonFiniteError, PluginError, SlimeError, WorkerError
from slime_core.processes import GroupOfWorkers
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import LauncherSetup, Needs, PluginSet, WorkerGroupSpec
from tests.tables import table

HERE = Path(__file__).parent
ORPHANS_END_WITHIN_S = 10.0


@pytest.fixture(autouse=True)
def _targets_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


def make(role: str, name: str, **settings: object) -> object:
    raise AssertionError("a launcher builds nothing else")


def new_launcher(logs: Path) -> LocalLauncher:
    return LocalLauncher(LauncherSetup(make, 0, scratch=logs))


def spec(size: int = 2, target: str = "Target", **arguments: object) -> WorkerGroupSpec:
    return WorkerGroupSpec("worker", size, f"launcher_target:{target}", arguments)


def with_group(
    logs: Path, use: Callable[[GroupOfWorkers], Awaitable[None]], given: WorkerGroupSpec | None = None
) -> None:
    async def go() -> None:
        launcher = new_launcher(logs)
        try:
            await use(await launcher.start(given or spec()))
        finally:
            await launcher.close()

    asyncio.run(go())


def gone(pid: object) -> bool:
    """Whether a process has ended; one that nobody has reaped yet has."""
    assert isinstance(pid, int)
    try:
        os.kill(pid, 0)
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return True
    except FileNotFoundError:
        return sys.platform == "linux"


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(ORPHANS_END_WITHIN_S):
        while not happened():  # noqa: ASYNC110  # nothing tells us
            await asyncio.sleep(0.05)


def test_calls_queue_and_errors_and_cancelled_calls_leave_no_answer_behind(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        assert os.getpgid(0) not in {os.getpgid(cast(int, pid)) for pid in await run(group, "os.getpid()")}
        answers = await asyncio.gather(*(group.call_one(0, "double", number) for number in range(20)))
        assert answers == [2 * number for number in range(20)]
        with pytest.raises(NonFiniteError, match=r"^the loss is nan$"):
            await group.call("explode")
        assert await group.call("double", [1, 2]) == [2, 4]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await run(group, "time.sleep(0.5)")
        assert await group.call("double", [3, 4]) == [6, 8]

    with_group(tmp_path, use)


@table("gpus, own, expected", [(0.0, None, "by the module"), (0.0, "mine", "mine"), (1.0, None, None)])
def test_what_a_preloaded_module_sets_holds_but_for_gpus_and_what_the_driver_sets(
    tmp_path: Path, gpus: float, own: str | None, expected: str | None
) -> None:
    async def go() -> None:
        launcher = new_launcher(tmp_path)
        preloaded = replace(spec(size=1), needs=Needs(gpus=gpus), preload=("preloaded",))
        group = await launcher.start(preloaded)
        assert await run(group, "os.environ.get('SLIME_TEST_SET_BY_IMPORT')") == [expected]
        names = ("CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS")
        assert await run(group, f"[os.environ[name] for name in {names}]") == [["0", "lo", "1"]]
        await launcher.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "0")
        if own is not None:
            patch.setenv("SLIME_TEST_SET_BY_IMPORT", own)
        asyncio.run(go())


@table(
    "target, error, message",
    [
        ("launcher_target:Refuses", ModelError, "no such model"),
        ("launcher_target:Breaks", WorkerError, r"worker 1 raised in its construction(.|\n)*RuntimeError: out of luck"),
        ("launcher_target:Missing", WorkerError, r"has no attribute 'Missing'"),
        ("builtins:range", None, ""),  # without a signature: built without a place
    ],
)
def test_a_target_that_cannot_be_built_fails_the_start(
    tmp_path: Path, target: str, error: type[SlimeError] | None, message: str
) -> None:
    async def use(group: GroupOfWorkers) -> None:
        assert error is None
        assert await group.call("index", [1, 1]) == [1, 0]

    with contextlib.nullcontext() if error is None else pytest.raises(error, match=message):
        with_group(tmp_path, use, WorkerGroupSpec("worker", 2, target, {}))


@table(
    "death, how",
    [
        ("sys.exit(7)", r"\(exit code 7\)"),
        ("os.kill(os.getpid(), 11), time.sleep(60)", r"\(killed by SIGSEGV\)"),
        ("os.kill(os.getpid(), 40), time.sleep(60)", r"\(killed by signal 40\)"),
        (
            "print('last words', flush=True), os.kill(os.getpid(), 9)",
            r"\(killed by SIGKILL, possibly out of memory\)",
        ),
    ],
)
def test_a_death_in_a_call_is_that_calls_error_alone_and_the_next_group_starts(
    tmp_path: Path, death: str, how: str
) -> None:
    """The new sockets get the descriptors of the old ones, which the event loop must not know any more."""

    async def use(group: GroupOfWorkers) -> None:
        watching = asyncio.create_task(group.watch())
        with pytest.raises(WorkerError, match=f"worker 0 died {how}") as raised:
            await run(group, death)
        await watching
        if "words" in death:
            assert str(raised.value).endswith("last words"), "the end of its log"
        with pytest.raises(WorkerError, match="was stopped with its group"):
            await run(group, "os.getpid()")

    with_group(tmp_path, use, spec(size=1))


def test_a_death_in_a_call_ends_the_other_workers_in_the_middle_of_it(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        pids = await run(group, "os.getpid()")
        with pytest.raises(WorkerError, match="worker 1 died"):
            await run(group, "os.kill(os.getpid(), 9) if self.rank else time.sleep(60)")
        assert all(map(gone, pids))

    with_group(tmp_path, use)


def test_an_answer_that_cannot_be_pickled_is_the_calls_error(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        with pytest.raises(WorkerError, match=r"worker 0 raised in run\(\)(.|\n)*PicklingError: Can't pickle"):
            await run(group, "lambda: None")

    with_group(tmp_path, use, spec(size=1))


def test_an_orphan_of_a_worker_that_lives_lives_on(tmp_path: Path) -> None:
    """Another worker's end makes the server look for what was left behind."""

    async def go() -> None:
        launcher = new_launcher(tmp_path)
        try:
            group, other = await launcher.start(spec(size=1)), await launcher.start(spec(size=1))
            started = await spawn(group)
            (pid,) = await run(other, "os.getpid()")
            await other.close()
            assert gone(pid)
            assert not any(map(gone, started))
        finally:
            await launcher.close()

    asyncio.run(go())


def test_a_worker_that_cannot_close_ends_all_the_same_and_its_log_says_why(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        (pid,) = await group.call("pid")
        await group.close()
        assert gone(pid)
        assert "OSError: it is stuck" in (tmp_path / "worker-0.log").read_text()

    with_group(tmp_path, use, spec(size=1, target="CannotClose"))


def test_a_call_that_comes_while_a_group_is_closed_for_a_death_names_who_died(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        watching = asyncio.create_task(group.watch())
        _, victim = await run(group, "os.getpid()")
        os.kill(cast(int, victim), signal.SIGKILL)
        while not group.is_closed:  # noqa: ASYNC110  # nothing tells of its beginning
            await asyncio.sleep(0.001)
        with pytest.raises(WorkerError, match="worker 1 died"):
            await run(group, "os.getpid()")
        with pytest.raises(WorkerError, match="worker 1 died"):
            await watching

    with_group(tmp_path, use)


def test_building_has_a_limit_and_who_is_waited_for_is_named(tmp_path: Path) -> None:
    async def go() -> None:
        launcher = new_launcher(tmp_path)
        try:
            with pytest.raises(WorkerError) as raised:
                await launcher.start(spec(target="Dawdles"), timeout_s=5.0)
        finally:
            await launcher.close()
        assert str(raised.value).startswith("worker 1: not built within 5 s (1 of 2 are)")
        assert str(raised.value).endswith("loading the model")

    asyncio.run(go())


def test_a_group_that_the_machine_cannot_hold_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async def start(asked: WorkerGroupSpec) -> str:
        launcher = new_launcher(tmp_path)
        with pytest.raises(ConfigError) as raised:
            await launcher.start(asked)
        await launcher.close()
        return str(raised.value)

    said = asyncio.run(start(replace(spec(), needs=Needs(custom={"quantum": 1.0}))))
    assert "group 'worker' needs 2 workers, each with 1 core, 1 quantum. This machine has " in said
    assert "it has nothing called quantum" in said
    assert "is one node" in asyncio.run(start(replace(spec(size=4), per_node=2)))
    assert "Running: no group" in asyncio.run(start(replace(spec(), colocate_with="trainer")))
    assert not list(tmp_path.iterdir())


def test_workers_have_the_plugins_of_the_driver_or_are_refused(tmp_path: Path) -> None:
    plugins = PluginSet(only=(), expected={"slime-core": "0.0.1"})

    async def go() -> None:
        launcher = LocalLauncher(LauncherSetup(make, 0, scratch=tmp_path, plugins=plugins))
        try:
            with pytest.raises(PluginError, match=r"worker 0 on .*plugins differ(.|\n)*slime-core: 0\.0\.1 there"):
                await launcher.start(spec(size=1))
        finally:
            await launcher.close()

    asyncio.run(go())


def test_a_server_that_is_killed_takes_its_workers_along_and_another_is_started(tmp_path: Path) -> None:
    async def go() -> None:
        launcher = new_launcher(tmp_path)
        try:
            group = await launcher.start(spec(size=1))
            pids = [*await run(group, "os.getpid()"), *(await group.call("fork_a_process"))]
            os.kill(cast(int, (await run(group, "os.getppid()"))[0]), signal.SIGKILL)
            with pytest.raises(WorkerError, match=r"worker 0 died \(ended with its fork server"):
                await run(group, "time.sleep(60)")
            await until(lambda: all(map(gone, pids)))
            assert await (await launcher.start(spec(size=1))).call("double", [2]) == [4]
        finally:
            await launcher.close()

    asyncio.run(go())


async def run(group: GroupOfWorkers, expression: str) -> list[object]:
    """Evaluate Python on every worker."""
    return await group.call("run", [expression] * group.size)


async def spawn(group: GroupOfWorkers) -> list[int]:
    """Processes that the first worker has started."""
    return cast(list[int], (await group.call("spawn"))[0])


def test_a_module_in_the_folder_of_the_run_is_not_taken_for_another(tmp_path: Path) -> None:
    folder, script = tmp_path / "run", tmp_path / "script.py"
    folder.mkdir()
    for name in ("random", "transformers", "slime_core"):
        (folder / f"{name}.py").write_text("raise SystemExit('this is not the module you are looking for')")
    script.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from slime_core.processes.launcher import LocalLauncher\n"
        "from slime_core.roles import LauncherSetup, WorkerGroupSpec\n"
        f"sys.path.append({str(HERE)!r})\n"
        "async def main():\n"
        "    launcher = LocalLauncher(LauncherSetup(None, 0, scratch=Path('.')))\n"
        "    group = await launcher.start(WorkerGroupSpec('worker', 1, 'launcher_target:Target', {}))\n"
        "    print(await group.call('run', [\"os.environ.get('PYTHONSAFEPATH')\"]))\n"
        "    await launcher.close()\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "[None]\n"), ran.stderr
