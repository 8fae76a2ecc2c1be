"""Trackers: a run's metrics in Weights & Biases, MLflow or Trackio, beside the run folder's own metrics.jsonl.

    [tracker]
    use = "wandb"

slime-core finds them in `slime_trackers.plugin`; the libraries are imported in a thread of the tracker's own.
"""

from slime_trackers.settings import MlflowSettings, TrackioSettings, WandbSettings

__all__ = ["MlflowSettings", "TrackioSettings", "WandbSettings"]
