"""Every choice of the plugin, and its package, against the contract kit; a library that is not installed is skipped."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from slime_core.testing import PluginPackageContract, TrackerContract


@pytest.fixture(autouse=True)
def nothing_of_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the machine's, and no folder of its user's."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


class TestPackage(PluginPackageContract):
    dist = "slime-trackers"


class TestWandb(TrackerContract):
    choice = "slime-trackers/wandb"
    settings: ClassVar[Mapping[str, object]] = {"mode": "offline"}


class TestMlflow(TrackerContract):
    choice = "slime-trackers/mlflow"


class TestTrackio(TrackerContract):
    choice = "slime-trackers/trackio"
