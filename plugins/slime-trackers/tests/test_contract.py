"""The plugin's trackers against the contract kit. Trackers whose library is not installed are skipped."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from slime_testing import TrackerContract

DATABASE = tempfile.TemporaryDirectory(prefix="slime-mlflow-")
"""One database for all: MLflow needs seconds to create one, and a contract builds dozens of trackers."""


@pytest.fixture(autouse=True)
def ignore_machine_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use neither this machine's settings nor its user's folders."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


class TestWandb(TrackerContract):
    choice = "slime-trackers/wandb"
    settings: ClassVar[Mapping[str, object]] = {"mode": "offline"}


@pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:DeprecationWarning"
)  # MLflow's models, by SQLAlchemy 2.1
class TestMlflow(TrackerContract):
    choice = "slime-trackers/mlflow"
    settings: ClassVar[Mapping[str, object]] = {"tracking_uri": f"sqlite:///{DATABASE.name}/mlflow.db"}


class TestTrackio(TrackerContract):
    choice = "slime-trackers/trackio"
