"""Groups on one cluster: their placement, their refusal, and their end."""

import asyncio
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ray_live import Live, setup_in

from slime_core.errors import ConfigError, PluginError, SlimeError, WorkerError
from slime_core.roles import Needs, PluginSet, TrainerSpec, WorkerGroupSpec
from slime_launcher_ray import lease
from slime_launcher_ray.launcher import RayLauncher
from slime_launcher_ray.settings import RaySettings
from slime_testing import PluginManager
from tests.tables import table

TARGET = "slime_testing.launcher_worker:Worker"
GONE_S = 10.0


def spec(name: str = "kit", size: int = 2, **changes: object) -> WorkerGroupSpec:
    return WorkerGroupSpec(name, size, TARGET, {"start": 10}, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trainer", "counts"), [("slime-local/local", "ranks"), ("slime-trainer-megatron/megatron", "num_gpus")]
)
def test_each_rank_has_its_gpu(live: Live, trainer: str, counts: str) -> None:
    found = PluginManager().from_installed(trainer.partition("/")[0]).catalog.find("trainer", trainer).spec
    assert isinstance(found, TrainerSpec)
    settings = found.model.model_validate({counts: 3, "device": "cuda"})

    async def play() -> None:
        trainer_spec = spec("trainer", found.world_size(settings), needs=found.needs(settings), per_node=3)
        group = await live.launcher.start(trainer_spec)
        assert len({place.devices for place in group.places}) == 3
        await group.close()

    live.run(play())


def test_colocated_group_shares_devices_rank_by_rank(live: Live) -> None:
    async def play() -> None:
        ranks = await live.launcher.start(spec("ranks", needs=Needs(gpus=2.0)))
        engines = await live.launcher.start(spec("engines", needs=Needs(gpus=2.0), colocate_with="ranks"))
        assert [each.devices for each in engines.places] == [each.devices for each in ranks.places]
        assert len(engines.places[0].devices) == 2
        seen = await engines.call_one(1, "variable", "CUDA_VISIBLE_DEVICES")
        assert seen == ",".join(ranks.places[1].devices)
        await ranks.close()  # the resources stay reserved until the colocated group is closed too
        assert await engines.call("add", [1, 2]) == [11, 12]
        await engines.close()
        whole = await live.launcher.start(spec("whole", size=1, needs=Needs(gpus=4.0)))  # all GPUs are free again
        await whole.close()

    live.run(play())


def test_resources_of_the_own_run_are_not_waited_for(live: Live) -> None:
    async def play() -> str:
        group = await live.launcher.start(spec("ranks", needs=Needs(gpus=2.0)))
        with pytest.raises(ConfigError) as caught:
            await live.launcher.start(spec("engine", size=1, needs=Needs(gpus=1.0)))
        await group.close()
        return str(caught.value)

    assert "the total is 4 GPUs, with 4 GPUs used by ranks" in live.run(play())


def test_resources_of_other_runs_time_out(
    live: Live, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "FIRST_LOG_S", 1.0)

    async def play() -> str:
        group = await live.launcher.start(spec("ranks", needs=Needs(gpus=2.0)))
        other = RayLauncher(RaySettings(placement_timeout_s=2.0), setup_in(tmp_path))
        with pytest.raises(ConfigError) as caught:
            await other.start(spec("engine", size=1, needs=Needs(gpus=1.0)))
        await other.close()
        await group.close()
        return str(caught.value)

    text = live.run(play())
    assert "got no resources in 2 s ([launcher.ray] placement_timeout_s)" in text
    assert "it needs 1 times 0.001 cores, 1 GPU (PACK); the cluster at " in text
    assert "group 'engine' waits for resources, 1 of 2 s: it needs 1 times " in caplog.text


def test_freed_resources_are_used(live: Live, tmp_path: Path) -> None:
    async def play() -> None:
        group = await live.launcher.start(spec("ranks", needs=Needs(gpus=2.0)))
        other = RayLauncher(RaySettings(placement_timeout_s=60.0), setup_in(tmp_path))
        waiting = asyncio.create_task(other.start(spec("engine", size=1, needs=Needs(gpus=1.0))))
        await asyncio.sleep(1.5)
        assert not waiting.done()
        await group.close()
        assert await (await waiting).call("add", [1]) == [11]
        await other.close()

    live.run(play())


@table(
    "refused, error, text",
    [
        (spec("engine", size=1, needs=Needs(gpus=9.0)), ConfigError, "'engine' needs 1 core, 9 GPUs"),
        (spec(size=9, needs=Needs(gpus=1.0)), ConfigError, "the total is 4 GPUs"),
        (spec(colocate_with="trainer"), ConfigError, "'trainer', which is not running. Running: no group"),
        (
            spec(size=4, needs=Needs(gpus=1.0), per_node=2),
            ConfigError,
            "it needs 2 nodes with room for 2 workers each, and 1 have it",
        ),
        (spec(needs=Needs(cpus=4096.0)), ConfigError, "one worker needs 4096 cores, and this machine has "),
        (
            WorkerGroupSpec("kit", 2, TARGET, {"start": 1, "lock": threading.Lock()}, Needs(gpus=1.0)),
            ConfigError,
            "argument 'lock' of slime_testing.launcher_worker:Worker",
        ),
        (
            WorkerGroupSpec("kit", 2, "slime_elsewhere.room:Worker", {}, Needs(gpus=1.0)),
            WorkerError,
            "No module named 'slime_elsewhere'",
        ),
        (WorkerGroupSpec("kit", 2, TARGET, {"start": -1}, Needs(gpus=1.0)), WorkerError, "cannot start at -1"),
    ],
)
def test_refused_group_leaves_nothing(live: Live, refused: WorkerGroupSpec, error: type[SlimeError], text: str) -> None:
    before = live.alive()
    with pytest.raises(error) as caught:
        live.run(live.launcher.start(refused))
    assert text in str(caught.value)
    end = time.monotonic() + GONE_S
    while (now := live.alive()) != before and time.monotonic() < end:
        time.sleep(0.05)
    assert now == before


def test_unpicklable_argument_is_refused(live: Live) -> None:
    async def play() -> str:
        group = await live.launcher.start(spec())
        with pytest.raises(WorkerError) as caught:
            await group.call("add", [1, threading.Lock()])
        return str(caught.value)

    assert "kit 1: an argument of add() cannot be sent" in live.run(play())


def test_killed_worker_is_reported_with_node_and_log(live: Live) -> None:
    async def play() -> str:
        group = await live.launcher.start(spec())
        await group.call("say", ["famous last words"] * 2)
        pids = [each[2] for each in await group.call("who") if isinstance(each, tuple)]
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(WorkerError) as caught:
            await group.watch()
        return str(caught.value)

    text = live.run(play())
    assert text.startswith("kit 1 on ")
    assert "died (its process was killed without a message, possibly out of memory)" in text
    assert "famous last words" in text


def test_threads_follow_requested_cores(live: Live) -> None:
    async def play() -> object:
        group = await live.launcher.start(spec(size=1, needs=Needs(cpus=2.0)))
        threads = await group.call_one(0, "variable", "OMP_NUM_THREADS")
        await group.close()
        return threads

    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two cores")
    assert live.run(play()) == "2"


def test_signal_handlers_are_unchanged(live: Live) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def play() -> None:
        await (await live.launcher.start(spec(size=1))).close()

    live.run(play())
    assert signal.getsignal(signal.SIGTERM) is before is signal.SIG_DFL


@table("address", ["127.0.0.1:9", "auto"])
def test_second_cluster_in_a_process_is_refused(live: Live, tmp_path: Path, address: str) -> None:
    first = live.run(live.launcher.start(spec("first", size=1)))
    other = RayLauncher(RaySettings(address=address), setup_in(tmp_path))
    with pytest.raises(ConfigError, match=f"needs the Ray cluster at {address}, but this process is connected to"):
        live.run(other.start(spec("second", size=1)))
    live.run(other.close())
    live.run(first.close())


@table(
    "expected, package",
    [({"slime-core": "9.9"}, "slime-core"), ({"slime-reward-of-mine": "0.1.0"}, "slime-reward-of-mine")],
)
def test_worker_without_the_driver_plugins_is_refused(
    live: Live, tmp_path: Path, expected: dict[str, str], package: str
) -> None:
    other = RayLauncher(RaySettings(), replace(setup_in(tmp_path), plugins=PluginSet(expected=expected)))
    with pytest.raises(PluginError) as error:
        live.run(other.start(spec(size=1)))
    assert str(error.value).startswith("kit 0 on ")
    assert package in str(error.value)
    live.run(other.close())
