"""Entry point: four trackers, each of which imports its library when its run begins."""

from collections.abc import Iterable

from slime_core import hookimpl
from slime_core.roles import Settings, Tracker, TrackerSetup, TrackerSpec
from slime_trackers.settings import MlflowSettings, TrackioSettings, WandbSettings
from slime_trackers.with_mlflow import mlflow_tracker
from slime_trackers.with_trackio import trackio_tracker
from slime_trackers.with_wandb import wandb_tracker

SLIME_API = "1"


@hookimpl
def slime_trackers() -> Iterable[TrackerSpec]:
    """The trackers `tensorboard`, `wandb`, `mlflow` and `trackio`."""
    yield TrackerSpec("tensorboard", _tensorboard, summary="Event files in the run folder (extra: tensorboard)")
    summary = "Weights & Biases, online or offline (extra: wandb)"
    yield TrackerSpec("wandb", wandb_tracker, WandbSettings, summary, flat_prefix="wandb_")
    yield TrackerSpec("mlflow", mlflow_tracker, MlflowSettings, "MLflow, a server or a database (extra: mlflow)")
    yield TrackerSpec("trackio", trackio_tracker, TrackioSettings, "Trackio, this machine or a Space (extra: trackio)")


def _tensorboard(settings: Settings, setup: TrackerSetup) -> Tracker:
    from slime_trackers.with_tensorboard import tensorboard_tracker

    return tensorboard_tracker(settings, setup)
