"""Every choice of the plugin, and its package, against the contract kit; a library that is not installed is skipped."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from slime_testing import TrackerContract

DATABASE = tempfile.TemporaryDirectory(prefix="slime-mlflow-")
"""Making one takes MLflow seconds, and a contract makes dozens of trackers."""


@pytest.fixture(autouse=True)
def nothing_of_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the machine's, and no folder of its user's."""
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
