"""Settings of the trackers. API keys and tokens are not settings: the libraries read them from the environment.

Example:

    [tracker.wandb]
    project = "sums"
    mode = "offline"
"""

from typing import Literal

from pydantic import Field

from slime_core import Settings


class WandbSettings(Settings):
    """`[tracker.wandb]`, with the names of slime's flags, such as `--wandb-project`."""

    project: str = Field("slime", min_length=1, description="W&B project of the run.")
    group: str | None = Field(None, min_length=1, description="W&B group of the run. Default: no group.")
    team: str | None = Field(
        None, min_length=1, description="Team or user that owns the project. Default: your account's default entity."
    )
    name: str | None = Field(None, min_length=1, description="Run name. Default: the name of the run folder.")
    tags: tuple[str, ...] = Field((), description="Tags of the run.")
    mode: Literal["online", "offline", "disabled"] | None = Field(
        None,
        description="`offline` writes to the run folder; upload with `wandb sync`. Default: WANDB_MODE, else `online`.",
    )
    host: str | None = Field(
        None, pattern="^https?://", description="Self-hosted W&B server. Default: WANDB_BASE_URL, else wandb.ai."
    )
    run_id: str | None = Field(
        None, pattern=r"^[\w.-]{1,128}$", description="Id of the W&B run to continue. Default: the run folder's run."
    )


class MlflowSettings(Settings):
    """`[tracker.mlflow]`."""

    tracking_uri: str | None = Field(
        None,
        min_length=1,
        description="MLflow server or database. Default: MLFLOW_TRACKING_URI, else a database in the run folder.",
    )
    experiment: str = Field("slime", min_length=1, description="Experiment of the run; created if it does not exist.")
    name: str | None = Field(None, min_length=1, description="Run name. Default: the name of the run folder.")
    tags: dict[str, str] = Field({}, description="Tags of the run.")


class TrackioSettings(Settings):
    """`[tracker.trackio]`."""

    project: str = Field("slime", min_length=1, description="Trackio project of the run.")
    group: str | None = Field(None, min_length=1, description="Trackio group of the run. Default: no group.")
    name: str | None = Field(
        None, min_length=1, description="Run name. Default: the name of the run folder and a random suffix."
    )
    space: str | None = Field(
        None,
        min_length=1,
        description="Hugging Face Space that shows the run, `user/name`. Default: TRACKIO_SPACE_ID, else no Space.",
    )
    server_url: str | None = Field(
        None, pattern="^https?://", description="Self-hosted Trackio server. Set its token in TRACKIO_WRITE_TOKEN."
    )
