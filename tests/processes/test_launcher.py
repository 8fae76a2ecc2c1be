import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from slime_core.errors import ConfigError, ModelError, NonFiniteError, PluginError, SlimeError, WorkerError
from slime_core.processes import GroupOfWorkers
from slime_core.processes import limits as tree
from slime_core.processes.launcher import LocalLauncher
from slime_core.processes.server import Server
from slime_core.roles import Launcher, LauncherSetup, Needs, PerNode, Place, PluginSet, WorkerGroup, WorkerGroupSpec

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


def test_it_is_a_launcher_of_worker_groups(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        assert isinstance(group, WorkerGroup)

    assert isinstance(new_launcher(tmp_path), Launcher)
    with_group(tmp_path, use, spec(size=1))


def test_workers_are_built_with_rank_size_and_arguments(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        assert group.size == 3
        assert await group.call("describe") == [(0, 3, "moin"), (1, 3, "moin"), (2, 3, "moin")]
        pids = await group.call("pid")
        assert len({os.getpid(), *pids}) == 4
        assert await group.call("threads") == ["1", "1", "1"]

    with_group(tmp_path, use, spec(size=3, word="moin"))


def test_answers_come_in_rank_order_each_to_its_own_argument(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        assert await group.call("double", [1, 10]) == [2, 20]
        assert await group.call_one(1, "double", 4) == 8
        assert await group.call("nap", [0.2, 0.0]) == ["slept 0.2", "slept 0"]

    with_group(tmp_path, use)


def test_calls_to_one_worker_queue_up(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        answers = await asyncio.gather(*(group.call_one(0, "double", number) for number in range(20)))
        assert answers == [2 * number for number in range(20)]

    with_group(tmp_path, use, spec(size=1))


def test_arguments_far_larger_than_a_pipe_arrive(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        assert await group.call("length", [b"x" * 100_000_000, b""]) == [100_000_000, 0]
        assert await group.call("repeat", [100_000_000, 1]) == [b"x" * 100_000_000, b"x"]

    with_group(tmp_path, use)


def test_what_a_worker_raises_arrives_with_its_traceback(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        with pytest.raises(WorkerError) as raised:
            await group.call("complain", [1, 1])
        message = str(raised.value)
        assert "worker 1 raised in complain()" in message
        assert "ValueError: rank 1 does not like it" in message
        assert str(tmp_path / "worker-1.log") in message
        assert "does not like it" in (tmp_path / "worker-1.log").read_text()

    with_group(tmp_path, use)


def test_our_own_errors_arrive_as_they_are_and_the_workers_stay_usable(tmp_path: Path) -> None:
    """Rank 0 raises while rank 1 answers: what it answered must not be taken for the next call's answer."""

    async def use(group: GroupOfWorkers) -> None:
        with pytest.raises(NonFiniteError, match=r"^the loss is nan$"):
            await group.call("explode", [0, 0])
        assert await group.call("double", [1, 2]) == [2, 4]

    with_group(tmp_path, use)


def test_a_cancelled_call_leaves_no_answer_behind(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await group.call("nap", [0.5, 0.5])
        assert await group.call("double", [1, 2]) == [2, 4]

    with_group(tmp_path, use)


def test_a_worker_that_dies_is_named_with_the_end_of_its_log_and_ends_its_group(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        pids = await group.call("pid")
        with pytest.raises(WorkerError) as raised:
            await group.call("die", [1, 1])
        message = str(raised.value)
        assert "worker 1 died (killed by SIGKILL" in message
        assert message.endswith("last words")
        assert all(map(gone, pids))
        with pytest.raises(WorkerError, match="was stopped with its group"):
            await group.call("double", [1, 2])

    with_group(tmp_path, use)


def test_a_worker_that_exits_is_named_with_its_exit_code(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        with pytest.raises(WorkerError, match=r"worker 0 died \(exit code 7\)"):
            await group.call("leave")

    with_group(tmp_path, use, spec(size=1))


def test_one_death_fails_the_calls_of_others_instead_of_leaving_them_waiting(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        waiting = asyncio.create_task(group.call_one(0, "nap", 60.0))
        await asyncio.sleep(0)
        with pytest.raises(WorkerError, match="worker 1 died"):
            await group.call_one(1, "die", 1)
        with pytest.raises(WorkerError, match="worker 0 was stopped with its group"):
            await waiting

    with_group(tmp_path, use)


def test_after_a_death_another_group_can_be_started_at_once(tmp_path: Path) -> None:
    """The new pipes get the descriptors of the old ones, and the event loop must not know these any more."""

    async def go() -> None:
        launcher = new_launcher(tmp_path)
        try:
            for _ in range(2):
                group = await launcher.start(spec())
                with pytest.raises(WorkerError, match="worker 0 died"):
                    await group.call("die", [0, 0])
            group = await launcher.start(spec())
            assert await group.call("double", [1, 2]) == [2, 4]
        finally:
            await launcher.close()

    asyncio.run(go())


def test_a_worker_that_does_not_answer_in_time_is_named_and_killed(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        pids = await group.call("pid")
        with pytest.raises(WorkerError, match=r"worker 1 did not answer nap\(\) within 0.3 s"):
            await group.call("nap", [0.0, 60.0], timeout_s=0.3)
        assert all(map(gone, pids))

    with_group(tmp_path, use)


def test_an_answer_that_cannot_be_pickled_is_the_calls_error(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        with pytest.raises(
            WorkerError, match=r"worker 0 raised in unpicklable\(\)(.|\n)*pickled\(reply\)(.|\n)*local object"
        ):
            await group.call("unpicklable")

    with_group(tmp_path, use, spec(size=1))


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("Refuses", ModelError, "no such model"),
        ("Breaks", WorkerError, r"worker 1 raised in its construction(.|\n)*RuntimeError: out of luck"),
        ("Missing", WorkerError, r"has no attribute 'Missing'"),
    ],
)
def test_a_target_that_cannot_be_built_fails_the_start(
    tmp_path: Path, target: str, error: type[SlimeError], message: str
) -> None:
    async def use(group: GroupOfWorkers) -> None:
        raise AssertionError("the group must not start")

    with pytest.raises(error, match=message):
        with_group(tmp_path, use, spec(target=target))


def test_closing_ends_idle_and_busy_workers_and_can_be_repeated(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        pids = await group.call("pid")
        busy = tmp_path / "busy"
        call = asyncio.create_task(group.call_one(0, "touch_and_nap", busy))
        await until(busy.exists)
        await group.close()
        await group.close()
        assert all(map(gone, pids))
        with pytest.raises(WorkerError, match="was stopped"):
            await call

    with_group(tmp_path, use)


def test_signals_to_the_drivers_process_group_do_not_reach_the_workers(tmp_path: Path) -> None:
    """Ctrl-C in a terminal, and `timeout`, signal the whole group; what happens then is the driver's to decide."""

    async def use(group: GroupOfWorkers) -> None:
        pids = await group.call("pid")
        assert os.getpgid(0) not in {os.getpgid(pid) for pid in pids if isinstance(pid, int)}

    with_group(tmp_path, use)


DRIVER = """
import asyncio, json, sys
from pathlib import Path
from slime_core.processes.launcher import LocalLauncher
from slime_core.processes.server import Server
from slime_core.roles import LauncherSetup, WorkerGroupSpec

async def go():
    launcher = LocalLauncher(LauncherSetup(lambda role, name: None, 0, scratch=Path(sys.argv[1])))
    group = await launcher.start(WorkerGroupSpec("worker", 2, "launcher_target:Target", {}))
    spawned = await group.call("spawn")
    print(json.dumps([*await group.call("pid"), *spawned[0], *spawned[1]]), flush=True)
    await group.call("compute")

asyncio.run(go())
"""


def test_everything_ends_when_the_driver_is_killed_even_deep_in_a_computation(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        pids: list[object] = json.loads(driver.stdout.readline())
        servers = tree.children(driver.pid)
        assert (len(pids), len(servers)) == (8, 1)
        time.sleep(0.3)  # let the first worker get deep into its call
        driver.send_signal(signal.SIGKILL)
    asyncio.run(until(lambda: all(map(gone, [*pids, *servers]))))


@pytest.mark.parametrize("way", ["close", "kill"])
def test_what_a_worker_has_started_ends_with_it(tmp_path: Path, way: str) -> None:
    async def use(group: GroupOfWorkers) -> None:
        started = await spawn(group)
        assert not any(map(gone, started))
        if way == "close":
            await group.close()
        else:
            os.kill(cast(int, (await group.call("pid"))[0]), signal.SIGKILL)
        await until(lambda: all(map(gone, started)))

    with_group(tmp_path, use, spec(size=1))


def test_a_worker_may_have_processes_of_multiprocessing(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        (child,) = await group.call("fork_a_process")
        assert not gone(child)
        await group.close()
        await until(lambda: gone(child))

    with_group(tmp_path, use, spec(size=1))


def test_an_orphan_of_a_worker_that_lives_lives_on(tmp_path: Path) -> None:
    """Another worker's end makes the server look for what was left behind."""

    async def go() -> None:
        launcher = new_launcher(tmp_path)
        try:
            group, other = await launcher.start(spec(size=1)), await launcher.start(spec(size=1))
            started = await spawn(group)
            (pid,) = await other.call("pid")
            await other.close()
            assert gone(pid)
            assert not any(map(gone, started))
        finally:
            await launcher.close()

    asyncio.run(go())


@pytest.mark.parametrize(("number", "name"), [(signal.SIGSEGV, "SIGSEGV"), (40, "signal 40"), (63, "signal 63")])
def test_a_signal_is_a_death_whether_it_has_a_name_or_not(tmp_path: Path, number: int, name: str) -> None:
    async def use(group: GroupOfWorkers) -> None:
        with pytest.raises(WorkerError, match=rf"worker 0 died \(killed by {name}\)"):
            await group.call("die_of", [number])

    with_group(tmp_path, use, spec(size=1))


@pytest.mark.parametrize("own", [None, "by the driver"])
def test_what_a_preloaded_module_sets_holds_in_its_workers_but_where_the_driver_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    if own is not None:
        monkeypatch.setenv("SLIME_TEST_SET_BY_IMPORT", own)

    async def go() -> None:
        launcher = new_launcher(tmp_path)
        target = "slime_testing.launched:Worker"
        group = await launcher.start(WorkerGroupSpec("kit", 1, target, {"start": 0}, preload=("preloaded",)))
        assert await group.call("variable", ["SLIME_TEST_SET_BY_IMPORT"]) == [own or "by the module"]
        await launcher.close()

    asyncio.run(go())


def test_workers_with_gpus_are_not_forked_from_what_was_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    async def go() -> None:
        launcher = new_launcher(tmp_path)
        target, needs = "slime_testing.launched:Worker", Needs(gpus=1.0)
        spec = WorkerGroupSpec("kit", 1, target, {"start": 0}, needs=needs, preload=("preloaded",))
        group = await launcher.start(spec)
        assert await group.call("variable", ["SLIME_TEST_SET_BY_IMPORT"]) == [None]
        assert await group.call("variable", ["CUDA_VISIBLE_DEVICES"]) == ["0"]
        await launcher.close()

    asyncio.run(go())


def test_an_idle_worker_is_closed_before_its_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "told"

    async def use(group: GroupOfWorkers) -> None:
        (pid,) = await group.call("pid")
        await group.close()
        assert path.read_text() == "closed"
        assert gone(pid)

    with_group(tmp_path, use, spec(size=1, target="Closes", path=path))


def test_a_worker_that_cannot_close_ends_all_the_same_and_its_log_says_why(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        (pid,) = await group.call("pid")
        await group.close()
        assert gone(pid)
        assert "OSError: it is stuck" in (tmp_path / "worker-0.log").read_text()

    with_group(tmp_path, use, spec(size=1, target="CannotClose", path=tmp_path))


def test_a_call_that_comes_while_a_group_is_closed_for_a_death_names_who_died(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        watching = asyncio.create_task(group.watch())
        _, victim = await group.call("pid")
        os.kill(cast(int, victim), signal.SIGKILL)
        while not group.is_closed:  # noqa: ASYNC110  # nothing tells of its beginning
            await asyncio.sleep(0.001)
        with pytest.raises(WorkerError, match="worker 1 died"):
            await group.call("pid")
        with pytest.raises(WorkerError, match="worker 1 died"):
            await watching

    with_group(tmp_path, use)


def test_a_death_between_calls_is_told_to_who_watches(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        watching = asyncio.create_task(group.watch())
        pids = await group.call("pid")
        os.kill(cast(int, pids[1]), signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"worker 1 died \(killed by SIGKILL"):
            await watching
        assert all(map(gone, pids))

    with_group(tmp_path, use)


def test_a_death_in_a_call_is_told_by_the_call_alone(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        watching = asyncio.create_task(group.watch())
        with pytest.raises(WorkerError, match="worker 0 died"):
            await group.call("die", [0, 0])
        await watching

    with_group(tmp_path, use)


def test_who_watches_is_told_of_the_end(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        watching = asyncio.create_task(group.watch())
        await group.call("pid")
        await group.close()
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


def test_variables_of_the_group_and_of_the_driver_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(group: GroupOfWorkers) -> None:
        monkeypatch.setenv("OF_THE_DRIVER", "later")
        names = ("OF_THE_GROUP", "OF_THE_DRIVER", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS")
        assert [await group.call_one(0, "variable", name) for name in names] == ["here", "early", "lo", "1"]

    monkeypatch.setenv("OF_THE_DRIVER", "early")
    with_group(tmp_path, use, replace(spec(size=1), environment={"OF_THE_GROUP": "here"}))


def test_workers_know_their_places(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        places = cast(list[Place], await group.call("where"))
        assert places == list(group.places)
        assert [(each.rank, each.local_rank, each.node, each.nodes) for each in places] == [(0, 0, 0, 1), (1, 1, 0, 1)]
        assert len({each.port for each in places} | {0}) == 3
        assert {each.meeting for each in places} == {f"127.0.0.1:{places[0].port}"}
        with socket.create_server((places[0].address, places[0].port)) as server:  # it is free for who asks for it
            assert server.getsockname()[1] == places[0].port

    with_group(tmp_path, use, spec(target="Placed"))


def test_what_is_printed_goes_to_the_log_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def use(group: GroupOfWorkers) -> None:
        await group.call("say", ["good morning", "good night"])

    with_group(tmp_path, use)
    assert (tmp_path / "worker-0.log").read_text() == "good morning\ngood morning on stderr\n"
    assert "good night" in (tmp_path / "worker-1.log").read_text()
    assert capfd.readouterr() == ("", "")


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
    assert "is one node" in asyncio.run(start(replace(spec(size=4), pack=PerNode(2))))
    assert "what does: no group" in asyncio.run(start(replace(spec(), beside="trainer")))
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
            pids = [*await group.call("pid"), *(await group.call("fork_a_process"))]
            os.kill(cast(int, (await group.call("parent"))[0]), signal.SIGKILL)
            with pytest.raises(WorkerError, match=r"worker 0 died \(gone with the process that started it"):
                await group.call("nap", [60.0])
            await until(lambda: all(map(gone, pids)))
            assert await (await launcher.start(spec(size=1))).call("double", [2]) == [4]
        finally:
            await launcher.close()

    asyncio.run(go())


def test_a_worker_of_no_place_is_built_without(tmp_path: Path) -> None:
    async def use(group: GroupOfWorkers) -> None:
        assert await group.call("index", [1, 1]) == [1, 0]

    with_group(tmp_path, use, WorkerGroupSpec("worker", 2, "builtins:range", {}))


async def spawn(group: GroupOfWorkers) -> list[int]:
    """Processes that the first worker has started."""
    return cast(list[int], (await group.call("spawn"))[0])


def test_a_module_in_the_folder_of_the_run_is_not_taken_for_another(tmp_path: Path) -> None:
    run, script = tmp_path / "run", tmp_path / "script.py"
    run.mkdir()
    for name in ("random", "transformers", "slime_core"):
        (run / f"{name}.py").write_text("raise SystemExit('this is not the module you are looking for')")
    script.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from slime_core.processes.launcher import LocalLauncher\n"
        "from slime_core.roles import LauncherSetup, WorkerGroupSpec\n"
        f"sys.path.append({str(HERE)!r})\n"
        "async def main():\n"
        "    launcher = LocalLauncher(LauncherSetup(None, 0, scratch=Path('.')))\n"
        "    group = await launcher.start(WorkerGroupSpec('worker', 1, 'launcher_target:Target', {}))\n"
        "    print(await group.call('safe_path'))\n"
        "    await launcher.close()\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, script], cwd=run, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "[None]\n"), ran.stderr


def test_a_server_takes_nothing_apart_that_it_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver waits for its end, and heavy libraries take seconds to go."""
    beside = "pathlib.Path(__file__).with_name"
    (tmp_path / "heavy.py").write_text(
        f"import atexit, pathlib\n{beside}('imported').touch()\natexit.register({beside}('taken-apart').touch)\n"
        "def work(*descriptors): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    server = Server(preload=["heavy"])
    with (tmp_path / "output").open("wb") as output:
        worker = server.fork("heavy:work", title="worker", output=output.fileno())
    worker.close()
    worker.wait(60.0)
    worker.forget()
    server.close()
    assert (tmp_path / "imported").exists()
    assert not (tmp_path / "taken-apart").exists()
