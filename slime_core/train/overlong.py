"""The soft penalty of overlong responses, a reward shaper. No torch.

Example:

    Overlong(OverlongSettings(max_response_len=256, overlong_buffer_len=64))(groups, ctx)
"""

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from slime_core.roles import Settings, ShapeContext
from slime_core.sample import Group


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


class Overlong:
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv:2503.14476, equation 13).

    With L response tokens, L_max = `max_response_len` and L_cache = `overlong_buffer_len`, a reward changes by 0 up to
    L_max - L_cache, by (L_max - L_cache - L) / L_cache up to L_max, and by -1 beyond, `overlong_penalty_factor` times.
    """

    def __init__(self, settings: OverlongSettings) -> None:
        self._settings = settings

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> Sequence[Sequence[float | None]]:
        """The rewards so far, less the penalty."""
        return [
            [
                None if reward is None else reward - self.penalty(sample.response_length)
                for sample, reward in zip(group.samples, row, strict=True)
            ]
            for group, row in zip(groups, ctx.rewards, strict=True)
        ]

    def penalty(self, length: int) -> float:
        """What a response of so many tokens costs, in units of reward."""
        settings = self._settings
        over = length - (settings.max_response_len - settings.overlong_buffer_len)
        return settings.overlong_penalty_factor * min(1.0, max(0.0, over / settings.overlong_buffer_len))
