"""Local clusters that do not start."""

import json
from pathlib import Path

import pytest

from slime_core.errors import WorkerError
from slime_launcher_ray.guard import marked_processes
from slime_launcher_ray.head import MARK
from slime_launcher_ray.head_process import Head
from slime_launcher_ray.settings import RaySettings


def refused(settings: RaySettings) -> str:
    """The error of a cluster that does not start and leaves no process or folder."""
    head = Head(settings)
    with pytest.raises(WorkerError, match="a Ray cluster on this machine could not start: its head ") as caught:
        head.wait_started()
    options = json.loads(head.process.args[-1])  # type: ignore[index]
    assert marked_processes(f"{MARK}={options['mark']}") == []
    assert not Path(options["folder"]).exists()
    return str(caught.value)


@pytest.mark.long
def test_failed_cluster_start_shows_ray_output() -> None:
    text = refused(RaySettings(object_store_mb=2**24))
    assert "its head ended. End of its log:\n" in text
    assert "object_store_memory" in text or "object store" in text.lower(), text


def test_slow_cluster_start_times_out() -> None:
    assert "was not ready within 0.5 s ([launcher.ray] start_timeout_s). End of its log:" in refused(
        RaySettings(start_timeout_s=0.5)
    )
