"""Groups on three nodes of one cluster on this machine, with declared GPUs. One node is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from process_files import parent
from ray.cluster_utils import Cluster
from ray_clusters import nodes as cluster_of
from ray_live import Live, setup_in

from slime_core.errors import WorkerError
from slime_core.roles import Health, Needs, WorkerGroupSpec
from slime_launcher_ray.doctor import checks
from slime_launcher_ray.guard import kill_marked
from slime_launcher_ray.settings import RaySettings
from slime_launcher_ray.survey import survey

pytestmark = pytest.mark.cluster

TARGET = "slime_testing.launcher_worker:Worker"
MARK = "SLIME_RAY_NODES"
START_S = 60.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Cluster]]:
    """A head without GPUs and two nodes with two GPUs each, joined as a run joins a running cluster."""
    folder = tmp_path_factory.mktemp("nodes")
    with cluster_of({"num_cpus": 4}, *[{"num_cpus": 4, "num_gpus": 2}] * 2) as cluster:
        live = Live(folder, RaySettings(address=cluster.address, placement_timeout_s=5.0))
        yield live, cluster
        live.run(live.launcher.close())
        live.loop.close()


def spec(name: str = "kit", size: int = 2, **changes: object) -> WorkerGroupSpec:
    return WorkerGroupSpec(name, size, TARGET, {"start": 10}, **changes)  # type: ignore[arg-type]


def test_ranks_are_ordered_by_node_and_device(nodes: tuple[Live, Cluster]) -> None:
    live, _ = nodes

    async def play() -> None:
        group = await live.launcher.start(spec(size=4, needs=Needs(gpus=1.0), per_node=2))
        assert [place.node for place in group.places] == [0, 0, 1, 1]
        assert [place.local_rank for place in group.places] == [0, 1, 0, 1]
        assert [place.devices for place in group.places] == [("0",), ("1",), ("0",), ("1",)]
        assert {place.nodes for place in group.places} == {2}
        assert await group.call("where") == list(group.places)
        engines = await live.launcher.start(spec("engines", size=4, needs=Needs(gpus=1.0), colocate_with="kit"))
        assert [place.node for place in engines.places] == [0, 0, 1, 1]
        assert [place.devices for place in engines.places] == [place.devices for place in group.places]
        await engines.close()
        await group.close()

    live.run(play())


def test_unwritable_folder_is_named(nodes: tuple[Live, Cluster], tmp_path: Path) -> None:
    live, cluster = nodes
    (tmp_path / "file").touch()
    other = Live(tmp_path / "file" / "logs", RaySettings(address=cluster.address))
    with pytest.raises(WorkerError, match="cannot be written on this machine") as caught:
        other.run(other.launcher.start(spec(size=1)))
    assert str(tmp_path / "file") in str(caught.value)
    other.run(other.launcher.close())
    other.loop.close()
    live.run(
        live.run(live.launcher.start(spec("after", size=1))).close()
    )  # the other launcher's close must not affect this launcher


@pytest.mark.parametrize(
    ("apart", "why", "doctor"),
    [
        ("mount -t tmpfs none", "the driver's files are missing", "does not see it"),
        ("mount --bind -o ro", "Read-only file system", "cannot write to it (Read-only file system)"),
    ],
    ids=["not shared", "read only"],
)
def test_node_without_the_shared_folder_is_named(
    nodes: tuple[Live, Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: str, why: str, doctor: str
) -> None:
    _, cluster = nodes
    folder = tmp_path / "runs"
    folder.mkdir()
    mount = f"{apart} {folder} {folder}" if "bind" in apart else f"{apart} {folder}"
    with node_apart(cluster.address, mount):
        other = Live(folder, RaySettings(address=cluster.address))
        with pytest.raises(WorkerError, match="cannot be written on") as caught:
            other.run(other.launcher.start(spec(size=1, needs=Needs(custom={"apart": 1.0}))))
        assert why in str(caught.value)
        assert f"the run folder {folder} " in str(caught.value)
        other.run(other.launcher.close())
        other.loop.close()
        assert list(folder.iterdir()) == []
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        survey.cache_clear()
        (check,) = (each for each in checks() if each.name == "run_folder")
        found = check.factory(check.model(), setup_in(tmp_path))()
        survey.cache_clear()
    assert found.health is Health.ERROR
    assert doctor in found.text


@contextlib.contextmanager
def node_apart(address: str, mount: str) -> Iterator[None]:
    """One more node, which has mounted something where the others have the run's folder."""
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*inside, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow mounts in a separate namespace")
    before = len([each for each in ray.nodes() if each["Alive"]])
    ray_command = f"{sys.executable} -m ray.scripts.scripts start --block --address={address} --num-cpus=1"
    process = subprocess.Popen(
        [*inside, f"{mount} && exec {ray_command} --num-gpus=0 --resources='{{\"apart\": 1}}'"],
        env=os.environ | {MARK: "apart", "SPT_NOENV": "1", "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + START_S
        while len([each for each in ray.nodes() if each["Alive"]]) == before:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()
        kill_marked(f"{MARK}=apart")
        while len([each for each in ray.nodes() if each["Alive"]]) > before:
            time.sleep(0.1)


def test_doctor_checks_all_nodes(nodes: tuple[Live, Cluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, cluster = nodes
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    found = {each.name: each.factory(each.model(), setup_in(tmp_path))() for each in checks()}
    assert {name: each.health for name, each in found.items() if name != "ports"} == dict.fromkeys(
        ["versions", "gpus", "clocks", "run_folder", "object_store"], Health.OK
    ), found
    assert found["ports"].health is Health.WARNING  # this head has no job server
    assert f"Ray {ray.__version__}" in found["versions"].text
    assert found["run_folder"].text.endswith(f"share and can write to {tmp_path / 'runs'}")


def test_lost_node_is_reported_and_replaced(nodes: tuple[Live, Cluster]) -> None:
    live, cluster = nodes

    async def play() -> str:
        group = await live.launcher.start(spec("engine", size=1, needs=Needs(gpus=1.0)))
        (caught,) = await group.call("who")
        assert isinstance(caught, tuple)
        for node in cluster.list_all_nodes():
            raylet = node.all_processes["raylet"][0].process.pid
            if parent(caught[2]) == raylet:
                os.kill(raylet, signal.SIGKILL)
        with pytest.raises(WorkerError) as error:
            await group.watch()
        again = await live.launcher.start(spec("engine", size=1, needs=Needs(gpus=1.0)))
        assert await again.call("add", [1]) == [11]
        await again.close()
        return str(error.value)

    assert live.run(play()).startswith("engine 0 on ")
