"""Settings that are refused before a run starts."""

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
from slime_launcher_ray.worker import death_reason
from tests.tables import table


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_too_many_gpus_are_refused() -> None:
    groups = [WorkerGroupSpec("trainer", 2, needs=Needs()), WorkerGroupSpec("engine", 1, needs=Needs(gpus=9.0))]
    with pytest.raises(ConfigError) as caught:
        check_use(RaySettings(num_gpus=2), groups)
    assert "group 'engine' needs 1 core, 9 GPUs. A Ray cluster on this machine has 1 node with " in str(caught.value)
    assert ", 2 GPUs, " in str(caught.value)
    assert "no node has 9 GPUs" in str(caught.value)


def test_gpus_of_other_groups_are_counted() -> None:
    groups = [WorkerGroupSpec("trainer", 2, needs=Needs(gpus=1.0)), WorkerGroupSpec("engine", 1, needs=Needs(gpus=1.0))]
    with pytest.raises(ConfigError, match="the total is 2 GPUs, with 2 GPUs used by trainer"):
        check_use(RaySettings(num_gpus=2), groups)
    colocated = [groups[0], WorkerGroupSpec("engine", 1, needs=Needs(gpus=1.0), colocate_with="trainer")]
    check_use(RaySettings(num_gpus=2), colocated)


def test_unreachable_address_is_refused() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"):
            check_use(RaySettings(address=address), [])


def test_auto_means_the_cluster_started_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try any cluster of the machine, including another run's, which refuses connections."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"`auto` \(from .*\) finds no Ray cluster: none was started on this node"):
        check_use(RaySettings(address="auto"), [])
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        with pytest.raises(
            ConfigError, match=rf"no Ray cluster answers at {address} \(the cluster that `ray start` last"
        ):
            check_use(RaySettings(address="auto"), [])


@table(
    "given, message",
    [
        ({"working_dirr": "x"}, r"unknown key 'working_dirr'. Did you mean 'working_dir'\? Ray accepts: .*py_modules"),
        ({"working_dir": "/nowhere/at/all"}, r"\[launcher.ray\] runtime_env: .*/nowhere/at/all"),
        ({"pip": 3}, r"\[launcher.ray\] runtime_env: .*'pip'"),
    ],
)
def test_invalid_runtime_env_is_refused(given: dict[str, JsonValue], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_use(RaySettings(runtime_env=given), [])


@table(
    "error, reason",
    [
        (OutOfMemoryError("killed"), "out of memory: Ray killed it because its node had too little memory left"),
        (RayActorError(error_msg="exit code 7 was seen"), "exit code 7"),
        (RayActorError(error_msg="The node of the worker died"), "its node is gone"),
        (RayActorError(error_msg="connection error code 2"), "its process was killed without a message, possibly"),
        (
            RayActorError(error_msg="ModuleNotFoundError: No module named 'x' ip=10.0.0.1"),
            "No module named 'x' on 10.0.0.1:",
        ),
    ],
)
def test_actor_death_is_explained(error: RayError, reason: str) -> None:
    assert death_reason(error).startswith(reason)


def test_missing_ray_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_ray", lambda: False)
    with pytest.raises(
        ConfigError, match=r"the launcher 'ray' needs Ray, which is not installed here. Run `pip install 'ray"
    ):
        check_use(RaySettings(), [])
