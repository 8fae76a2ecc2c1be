"""Entry point with four trackers. Each tracker imports its library when a run logs its first row."""

from collections.abc import Iterable

from slime_core import hookimpl
from slime_core.roles import Settings, Tracker, TrackerSetup, TrackerSpec
from slime_trackers.settings import MlflowSettings, TrackioSettings, WandbSettings

SLIME_API = "1"


@hookimpl
def slime_trackers() -> Iterable[TrackerSpec]:
    """The trackers `tensorboard`, `wandb`, `mlflow` and `trackio`."""
    yield TrackerSpec("tensorboard", _tensorboard, summary="Event files in the run folder (extra: tensorboard)")
    summary = "Weights & Biases, online or offline (extra: wandb)"
    yield TrackerSpec("wandb", _wandb, WandbSettings, summary, flat_prefix="wandb_")
    yield TrackerSpec("mlflow", _mlflow, MlflowSettings, "MLflow server or local database (extra: mlflow)")
    yield TrackerSpec("trackio", _trackio, TrackioSettings, "Trackio, local or on a Space (extra: trackio)")


def _tensorboard(settings: Settings, setup: TrackerSetup) -> Tracker:
    from slime_trackers.tensorboard_tracker import tensorboard_tracker

    return tensorboard_tracker(settings, setup)


def _wandb(settings: WandbSettings, setup: TrackerSetup) -> Tracker:
    from slime_trackers.wandb_run import wandb_tracker

    return wandb_tracker(settings, setup)


def _mlflow(settings: MlflowSettings, setup: TrackerSetup) -> Tracker:
    from slime_trackers.mlflow_run import mlflow_tracker

    return mlflow_tracker(settings, setup)


def _trackio(settings: TrackioSettings, setup: TrackerSetup) -> Tracker:
    from slime_trackers.trackio_run import trackio_tracker

    return trackio_tracker(settings, setup)
