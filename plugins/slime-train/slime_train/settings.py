"""Settings of the losses, corrections, rewards and transports, without torch, for the catalog."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from slime_core.roles import Number, Positive, Settings, Temperature


class PolicyGradientSettings(Settings):
    """What the policy gradients have in common, slime's flags."""

    entropy_coef: float = Field(0.0, ge=0.0, le=1e6, description="Weight of the entropy bonus, in loss per nat.")
    use_opsm: bool = Field(
        False, description="Mask samples of negative advantage that have drifted from their sampler (DeepSeek-V3.2)."
    )
    opsm_delta: float = Field(
        1e-4,
        ge=0.0,
        le=1e9,
        description="With use_opsm: mean log-prob drop (nats per token) above which a sample is masked.",
    )

    @model_validator(mode="after")
    def _delta_has_an_effect(self) -> Self:
        if not self.use_opsm and self.opsm_delta != type(self).model_fields["opsm_delta"].default:
            raise ValueError(f"opsm_delta = {self.opsm_delta} has no effect here: set use_opsm = true")
        return self


class ClippedSettings(PolicyGradientSettings):
    """Bounds of a ratio, slime's flags."""

    eps_clip: float = Field(0.2, gt=0.0, lt=1.0, description="How far the ratio may fall below 1.")
    eps_clip_high: float | None = Field(
        None, gt=0.0, le=1e9, description="How far it may rise above 1; default eps_clip."
    )
    eps_clip_c: float | None = Field(
        None, gt=1.0, le=1e6, description="Dual clip: bound of the loss at negative advantages."
    )

    @property
    def high(self) -> float:
        """How far the ratio may rise above 1."""
        return self.eps_clip if self.eps_clip_high is None else self.eps_clip_high

    @model_validator(mode="after")
    def _high_covers_low(self) -> Self:
        if self.high < self.eps_clip:
            raise ValueError(f"eps_clip_high = {self.eps_clip_high} is below eps_clip = {self.eps_clip}")
        return self


class PolicyLossSettings(ClippedSettings):
    """`[loss.policy_loss]`."""


class GspoSettings(ClippedSettings):
    """`[loss.gspo]`: the defaults are the paper's, of sequences, which move less than tokens."""

    eps_clip: float = Field(3e-4, gt=0.0, lt=1.0, description="How far the sequence's ratio may fall below 1.")
    eps_clip_high: float | None = Field(4e-4, gt=0.0, le=1e9, description="How far it may rise above 1.")


class CispoSettings(PolicyGradientSettings):
    """`[loss.cispo]`, slime's flags."""

    eps_clip: float = Field(0.2, gt=0.0, le=1.0, description="How far a token's weight may fall below 1; 1: any.")
    eps_clip_high: float | None = Field(
        None, gt=0.0, le=1e9, description="How far it may rise above 1; default eps_clip."
    )

    @property
    def high(self) -> float:
        """How far the weight may rise above 1."""
        return self.eps_clip if self.eps_clip_high is None else self.eps_clip_high


class _Bounds(Settings):
    """Two bounds that must not cross."""

    tis_clip: float = Field(2.0, gt=0.0, le=1e9, description="Upper bound of a token's importance weight.")
    tis_clip_low: float = Field(0.0, ge=0.0, le=1e9, description="Lower bound of a token's importance weight.")

    @model_validator(mode="after")
    def _high_covers_low(self) -> Self:
        if self.tis_clip < self.tis_clip_low:
            raise ValueError(f"tis_clip = {self.tis_clip} is below tis_clip_low = {self.tis_clip_low}")
        return self


class TisSettings(_Bounds):
    """`[correction.tis]`, slime's flags."""


class IcepopSettings(_Bounds):
    """`[correction.icepop]`, slime's flags: the defaults are the paper's, since a lower bound of 0 masks nothing."""

    tis_clip: float = Field(5.0, gt=0.0, le=1e9, description="Ratio above which a token has weight 0.")
    tis_clip_low: float = Field(0.5, ge=0.0, le=1e9, description="Ratio below which a token has weight 0.")


Divergence = Literal[
    "token_k1",
    "token_k2",
    "token_k3",
    "seq_sum_k1",
    "seq_sum_k2",
    "seq_sum_k3",
    "seq_mean_k1",
    "seq_mean_k2",
    "seq_mean_k3",
    "seq_max_k2",
    "seq_max_k3",
]
"""How far a token or its sample is from its sampler, verl's `rollout_rs`; see `slime_train.corrections`."""


class MisSettings(Settings):
    """`[correction.mis]`: slime's mis.yaml keys, plus verl's `rollout_rs`, which rejects independently of weights."""

    mis_level: Literal["token", "sequence", "geometric"] = Field(
        "token", description="Level of the importance ratio; geometric: the sequence's geometric mean."
    )
    mis_mode: Literal["truncate", "clip", "mask", "none"] = Field(
        "truncate", description="Treatment of ratios out of bounds; none: no weights are applied."
    )
    mis_lower_bound: float | None = Field(
        None, gt=0.0, le=1e9, description="Lower bound, of clip and mask; default 1 / mis_upper_bound."
    )
    mis_upper_bound: float = Field(2.0, gt=0.0, le=1e9, description="Upper bound.")
    mis_veto_threshold: float | None = Field(
        None, gt=0.0, lt=1.0, description="Reject samples that have a token with a ratio below this."
    )
    rollout_rs: dict[Divergence, Number | tuple[Number, Number]] = Field(
        {}, description="Divergences that reject tokens or samples, and their bounds: {seq_mean_k1 = [0.99, 1.01]}."
    )

    @property
    def rejection(self) -> dict[Divergence, tuple[float, float]]:
        """Lower and upper bound of each divergence; a ratio's lower one is 1 over the upper unless given."""
        found: dict[Divergence, tuple[float, float]] = {}
        for name, bound in self.rollout_rs.items():
            if isinstance(bound, tuple):
                found[name] = bound
            else:
                found[name] = (1 / bound if name.endswith("k1") and bound else 0.0, bound)
        return found

    @property
    def lower(self) -> float:
        """The lower bound."""
        return 1 / self.mis_upper_bound if self.mis_lower_bound is None else self.mis_lower_bound

    @model_validator(mode="after")
    def _bounds_are_bounds(self) -> Self:
        if self.mis_mode == "truncate" and self.mis_lower_bound is not None:
            raise ValueError(
                f'mis_lower_bound = {self.mis_lower_bound} has no effect here: set mis_mode = "clip" or "mask"'
            )
        if self.mis_mode == "none":
            self._check_unweighted()
        elif self.mis_mode != "truncate" and self.lower >= self.mis_upper_bound:
            raise ValueError(f"mis_upper_bound = {self.mis_upper_bound} is not above the lower bound, {self.lower}")
        return self

    def _check_unweighted(self) -> None:
        for key in ("mis_level", "mis_lower_bound", "mis_upper_bound"):
            if (value := getattr(self, key)) != type(self).model_fields[key].default:
                raise ValueError(f'{key} = {value} has no effect here: mis_mode is "none", and there are no weights')
        if not self.rollout_rs and self.mis_veto_threshold is None:
            raise ValueError('mis_mode = "none" alone corrects nothing: give rollout_rs or mis_veto_threshold')

    @model_validator(mode="after")
    def _rejection_is_possible(self) -> Self:
        for name, (low, high) in self.rejection.items():
            of_ratio = name.endswith("k1")
            if isinstance(self.rollout_rs[name], tuple) and not of_ratio:
                raise ValueError(
                    f"rollout_rs: {name} is 0 where the two agree, and never less: give its upper bound alone, {high:g}"
                )
            if low >= high or (of_ratio and low <= 0):
                bounds = "of a ratio, around 1" if of_ratio else "above 0"
                raise ValueError(f"rollout_rs: {name} from {low:g} to {high:g} keeps nothing: its bounds are {bounds}")
        return self


class OverlongSettings(Settings):
    """`[reward_shaper.overlong]`."""

    max_response_len: int = Field(ge=1, le=10**9, description="Tokens at which the whole penalty is due.")
    overlong_buffer_len: int = Field(ge=1, le=10**9, description="Tokens before that over which it grows from 0.")
    overlong_penalty_factor: float = Field(1.0, gt=0.0, le=1e6, description="The whole penalty, in units of reward.")

    @model_validator(mode="after")
    def _the_buffer_is_inside(self) -> Self:
        if self.overlong_buffer_len > self.max_response_len:
            raise ValueError(
                f"overlong_buffer_len = {self.overlong_buffer_len} is above max_response_len = {self.max_response_len}"
            )
        return self


class DiskSettings(Settings):
    """`[transport.disk]`."""

    folder: Path | None = Field(
        None, description="Folder that ranks and engines on all machines share; default inside the run folder."
    )


PROMPT = """Is the response right? Say what speaks for it and against it, and end with "Verdict: yes" or "Verdict: no".

Task: {prompt}

Right answer: {label}

Response: {response}"""


class JudgeSettings(Settings):
    """`[reward.served_judge]`."""

    model: str = Field("judge", description="Name of the judge among the run's served_models.")
    prompt: str = Field(
        PROMPT,
        description="Prompt of the judge; {prompt}, {response} and {label} are replaced. Adapt it to your task.",
    )
    apply_chat_template: bool = Field(
        True, description="Send the prompt as a user message in the judge's chat template."
    )
    verdict: str = Field(
        r"(?i)verdict:\W*(\w[\w.]*)", description="Pattern of its verdict, with one group; the last match counts."
    )
    scores: dict[str, Number] = Field(
        {"yes": 1.0, "no": 0.0}, description="Score of each verdict; a numeric verdict is its own score."
    )
    temperature: Temperature = Field(0.0, description="Sampling temperature of the judge; 0 is greedy.")
    max_new_tokens: Positive = Field(512, description="Maximum tokens of the judge's answer.")

    @field_validator("verdict")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"it is not a pattern: {error}") from None
        if groups != 1:
            raise ValueError(f"it has {groups} groups; expected one, around the verdict")
        return pattern
