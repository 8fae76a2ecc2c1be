"""Settings of the trackers. Keys and tokens are none of them: the libraries read those from the environment.

Example:

    [tracker.wandb]
    project = "sums"
    mode = "offline"
"""

from typing import Literal

from pydantic import Field

from slime_core import Settings


class WandbSettings(Settings):
    """`[tracker.wandb]`, named like slime's flags, such as `--wandb-project`."""

    project: str = Field("slime", min_length=1, description="Project that the run is in.")
    group: str | None = Field(None, min_length=1, description="Group of runs that it belongs to.")
    team: str | None = Field(None, min_length=1, description="Team or user that owns the project; by default your own.")
    name: str | None = Field(None, min_length=1, description="Name of the run; by default that of the run folder.")
    tags: tuple[str, ...] = Field((), description="Tags of the run.")
    mode: Literal["online", "offline", "disabled"] | None = Field(
        None,
        description="`offline` writes to the run folder, for `wandb sync` later; by default WANDB_MODE, else `online`.",
    )
    host: str | None = Field(
        None, pattern="^https?://", description="A server of your own; by default WANDB_BASE_URL, else wandb.ai."
    )
    run_id: str | None = Field(
        None, pattern=r"^[\w.-]{1,128}$", description="Run to go on with; by default one of the run folder's own."
    )


class MlflowSettings(Settings):
    """`[tracker.mlflow]`."""

    tracking_uri: str | None = Field(
        None,
        min_length=1,
        description="Server or database; by default MLFLOW_TRACKING_URI, else a database in the run folder.",
    )
    experiment: str = Field("slime", min_length=1, description="Experiment that the run is in; made if there is none.")
    name: str | None = Field(None, min_length=1, description="Name of the run; by default that of the run folder.")
    tags: dict[str, str] = Field({}, description="Tags of the run.")


class TrackioSettings(Settings):
    """`[tracker.trackio]`."""

    project: str = Field("slime", min_length=1, description="Project that the run is in.")
    group: str | None = Field(None, min_length=1, description="Group of runs that it belongs to.")
    name: str | None = Field(
        None, min_length=1, description="Name of the run; by default that of the run folder and some characters."
    )
    space: str | None = Field(
        None,
        min_length=1,
        description="Space that has it, `user/name`; by default TRACKIO_SPACE_ID, else none.",
    )
    server_url: str | None = Field(
        None, pattern="^https?://", description="A Trackio server of your own; its token is TRACKIO_WRITE_TOKEN."
    )
