"""Settings of the alarms: from when on a run says that something goes wrong, and which of them end it.

Example:

    alarm_length = 3.0                          # responses three times as long as at the beginning
    stop_on_alarms = ["hacking", "kl"]
"""

from typing import Literal

from pydantic import Field

from slime_core.config.family import Family

AlarmName = Literal["entropy", "length", "same_reward", "no_variance", "kl", "mismatch", "errors", "hacking"]


class AlarmArgs(Family):
    """Alarms."""

    alarm_entropy: float = Field(
        0.1,
        ge=0.0,
        lt=1.0,
        description="Share of the first rollouts' entropy (train/entropy_loss) below which it has collapsed, where the "
        "reward is not higher than it was; 0 is off.",
    )
    alarm_length: float = Field(
        2.0,
        ge=0.0,
        le=1e6,
        description="Times the first rollouts' length of responses, with a fifth of them cut off, that is an "
        "explosion; 0 is off.",
    )
    alarm_no_variance: float = Field(
        0.9,
        ge=0.0,
        le=1.0,
        description="Share of groups whose samples all have one reward, and teach nothing; 0 is off, and so is "
        "same_reward, which looks at the first rollout alone.",
    )
    alarm_kl: float = Field(
        0.5,
        ge=0.0,
        le=1e6,
        description="Nats a token of train/kl_loss or train/ppo_kl that are a runaway, where it doubles; 0 is off.",
    )
    alarm_mismatch: float = Field(
        0.05,
        ge=0.0,
        le=1e6,
        description="Nats between trainer's and sampler's log-probs, on average, where they were a third of it at the "
        "beginning; 0 is off.",
    )
    alarm_errors: float = Field(
        0.02, ge=0.0, le=1.0, description="Share of samples that could not be generated or scored; 0 is off."
    )
    alarm_hacking: float = Field(
        0.2,
        ge=0.0,
        le=1e6,
        description="Share of an evaluation's best that is lost, twice in a row, while the reward in training rises; "
        "0 is off.",
    )
    stop_on_alarms: list[AlarmName] = Field(
        [], description="Alarms that end the run after their step, as a run hook's StopRun does."
    )
