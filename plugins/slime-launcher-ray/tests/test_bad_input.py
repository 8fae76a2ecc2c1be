"""What is refused before anything is started."""

import socket
from pathlib import Path

import pytest
from pydantic import JsonValue
from ray.exceptions import OutOfMemoryError, RayActorError, RayError

from slime_core.errors import ConfigError
from slime_core.roles import Needs, WorkerGroupSpec
from slime_launcher_ray import checks
from slime_launcher_ray.checks import check_use
from slime_launcher_ray.settings import RaySettings
from slime_launcher_ray.worker import how_it_died
from tests.tables import table


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_too_many_gpus_are_refused() -> None:
    groups = [WorkerGroupSpec("trainer", 2, needs=Needs()), WorkerGroupSpec("engine", 1, needs=Needs(gpus=9.0))]
    with pytest.raises(ConfigError) as told:
        check_use(RaySettings(num_gpus=2), groups)
    assert "group 'engine' needs 1 core, 9 GPUs. A Ray cluster of this machine has 1 node with " in str(told.value)
    assert ", 2 GPUs, " in str(told.value)
    assert "no node has that much of GPU" in str(told.value)


def test_gpus_of_other_groups_are_counted() -> None:
    groups = [WorkerGroupSpec("trainer", 2, needs=Needs(gpus=1.0)), WorkerGroupSpec("engine", 1, needs=Needs(gpus=1.0))]
    with pytest.raises(ConfigError, match="there is 2 GPUs in all, of which trainer took 2 GPUs"):
        check_use(RaySettings(num_gpus=2), groups)
    beside = [groups[0], WorkerGroupSpec("engine", 1, needs=Needs(gpus=1.0), colocate_with="trainer")]
    check_use(RaySettings(num_gpus=2), beside)


def test_unreachable_address_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"):
            check_use(RaySettings(address=address), [])


def test_auto_means_the_cluster_started_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try any cluster of the machine, another run's own one among them, as long as that says no."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ConfigError, match="no Ray cluster was started on this node, which `auto` asks for"):
        check_use(RaySettings(address="auto"), [])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        with pytest.raises(ConfigError, match=rf"no Ray cluster answers at {address} \(what `ray start` last started"):
            check_use(RaySettings(address="auto"), [])


@table(
    "given, told",
    [
        ({"working_dirr": "x"}, r"unknown key 'working_dirr'. Did you mean 'working_dir'\? Ray's are: .*py_modules"),
        ({"working_dir": "/nowhere/at/all"}, r"\[launcher.ray\] runtime_env: .*/nowhere/at/all"),
        ({"pip": 3}, r"\[launcher.ray\] runtime_env: .*'pip'"),
    ],
)
def test_invalid_runtime_env_is_refused(given: dict[str, JsonValue], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_use(RaySettings(runtime_env=given), [])


@table(
    "error, how",
    [
        (OutOfMemoryError("killed"), "out of memory: Ray ended it, since its node had too little left"),
        (RayActorError(error_msg="exit code 7 was seen"), "exit code 7"),
        (RayActorError(error_msg="The node of the worker died"), "its node is gone"),
        (RayActorError(error_msg="connection error code 2"), "its process ended without a word: killed, perhaps for"),
        (
            RayActorError(error_msg="ModuleNotFoundError: No module named 'x' ip=10.0.0.1"),
            "No module named 'x' on 10.0.0.1:",
        ),
    ],
)
def test_actor_death_is_explained(error: RayError, how: str) -> None:
    assert how_it_died(error).startswith(how)


def test_missing_ray_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_ray", lambda: False)
    with pytest.raises(
        ConfigError, match=r"the launcher 'ray' needs Ray, which is not installed here: pip install 'ray"
    ):
        check_use(RaySettings(), [])
