"""MLflow tracker: one MLflow run per run folder, on a server or in the run folder's database `mlflow/mlflow.db`.

Example:

    tracker = mlflow_tracker(MlflowSettings(tracking_uri="http://10.0.0.5:5000"), setup)
"""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.roles import TrackerSetup
from slime_trackers.settings import MlflowSettings
from slime_trackers.tracker import OpenRun, ServiceTracker, require_library

if TYPE_CHECKING:
    from mlflow import MlflowClient

REFUSED = re.compile(r"[^\w\-. :/]")
"""Characters that MLflow refuses in names: `pass@1` becomes `pass_1`."""
MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 500
"""MLflow's limits: metrics and parameters per request, and characters per parameter on its oldest servers."""


def mlflow_tracker(settings: MlflowSettings, setup: TrackerSetup) -> ServiceTracker:
    """The tracker's factory.

    Raises:
        ConfigError: MLflow is not installed, or a local database is used and its packages are not installed.
    """
    require_library("mlflow", "mlflow")
    uri = settings.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None or uri.startswith("sqlite:"):
        require_library("sqlalchemy", "mlflow")
        require_library("alembic", "mlflow")
    return ServiceTracker("mlflow", MlflowRun(settings, setup.run_dir, uri), setup.run_dir)


class MlflowRun:
    """One run with a separate client, so that `mlflow.start_run` in the user's code does not affect it."""

    def __init__(self, settings: MlflowSettings, run_dir: Path, uri: str | None) -> None:
        """Create the run's client; without `uri` it uses a database in the run folder."""
        self._settings = settings
        self._run_dir = run_dir.resolve()
        self._uri = uri
        self._client: MlflowClient | None = None
        self._run = ""

    def open(self, run: str | None, config: Mapping[str, object]) -> OpenRun:
        """Start a run with the run file's keys as parameters, or continue `run`."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)  # both log each migration of a new database
        folder = self._run_dir / "mlflow"
        if self._uri is None:
            folder.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(tracking_uri=self._uri or f"sqlite:///{folder / 'mlflow.db'}")
        if run is None:
            run = self._begun(client, None if self._uri else (folder / "artifacts").as_uri(), config)
        else:
            client.update_run(run, status="RUNNING")
        self._client, self._run = client, run
        return OpenRun(run)

    def _begun(self, client: "MlflowClient", artifacts: str | None, config: Mapping[str, object]) -> str:
        from mlflow.entities import Param

        options = self._settings
        found = client.get_experiment_by_name(options.experiment)
        experiment = found.experiment_id if found else client.create_experiment(options.experiment, artifacts)
        run = client.create_run(experiment, run_name=options.name or self._run_dir.name, tags=options.tags)
        params = iter([Param(mlflow_name(key), value[:LONGEST_PARAM]) for key, value in flatten(config)])
        while some := list(islice(params, MOST_PARAMS)):
            client.log_batch(run.info.run_id, params=some)
        return str(run.info.run_id)

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a row; all its metrics have the same timestamp."""
        from mlflow.entities import Metric

        assert self._client is not None
        now = int(time.time() * 1000)
        row = iter([Metric(mlflow_name(name), value, now, step) for name, value in metrics.items()])
        while some := list(islice(row, MOST_METRICS)):
            self._client.log_batch(self._run, metrics=some)

    def finish(self) -> None:
        """Mark the run as finished; a resume marks it as running again."""
        if self._client is not None:
            self._client.set_terminated(self._run)
            self._client = None


def mlflow_name(name: str) -> str:
    """A name of a metric or key with `_` for each character that MLflow refuses."""
    return REFUSED.sub("_", name)


def flatten(config: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Keys of nested tables, joined by dots, and their values as text."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
