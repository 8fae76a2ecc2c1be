"""Penalty for responses near the length limit. No torch: it runs in the driver."""

from collections.abc import Sequence

from slime_core.roles import ShapeContext
from slime_core.sample import Group
from slime_train.settings import OverlongSettings


class Overlong:
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv:2503.14476, equation 13).

    With L response tokens, L_max = `max_response_len` and L_cache = `overlong_buffer_len`, a reward changes by 0 up to
    L_max - L_cache, by (L_max - L_cache - L) / L_cache up to L_max, and by -1 beyond, `overlong_penalty_factor` times.
    """

    def __init__(self, settings: OverlongSettings) -> None:
        self._settings = settings

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> Sequence[Sequence[float | None]]:
        return [
            [
                None if reward is None else reward - self.penalty(sample.response_length)
                for sample, reward in zip(group.samples, row, strict=True)
            ]
            for group, row in zip(groups, ctx.rewards, strict=True)
        ]

    def penalty(self, length: int) -> float:
        """Return the penalty of a response of `length` tokens, in units of reward."""
        settings = self._settings
        over = length - (settings.max_response_len - settings.overlong_buffer_len)
        return settings.overlong_penalty_factor * min(1.0, max(0.0, over / settings.overlong_buffer_len))
