"""Trackers that send a run's metrics to Weights & Biases, MLflow or Trackio, in addition to metrics.jsonl.

    [tracker]
    use = "wandb"

slime-core loads them from `slime_trackers.plugin`. Each tracker imports its library in a separate thread.
"""

from slime_trackers.settings import MlflowSettings, TrackioSettings, WandbSettings

__all__ = ["MlflowSettings", "TrackioSettings", "WandbSettings"]
