"""The learning rate: linear warm-up, then one of Megatron's decays."""

import math
from collections.abc import Callable

from slime_core.roles import Optim

_LEFT: dict[str, Callable[[float], float]] = {
    "linear": lambda gone: 1 - gone,
    "cosine": lambda gone: (1 + math.cos(math.pi * gone)) / 2,
    "exponential": lambda gone: 2 * 0.5**gone - 1,
    "minus_sqrt": lambda gone: 1 - math.sqrt(gone),
}
"""What is left of the way from `min_lr` to `lr` when a share of the decay is gone."""


def learning_rate(optim: Optim, step: int) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    Warm-up rises from lr/warmup at step 0 to lr. `linear` and `cosine` (Loshchilov & Hutter 2017, equation 5, without
    restarts) begin after it, `WSD` (Hu et al. 2024, arXiv:2404.06395, section 4.2) `lr_wsd_decay_iters` steps before
    the end; they reach `min_lr` with the last of `lr_decay_iters` steps, by default of the run. `inverse-square-root`
    is lr sqrt(warmup / step) (Vaswani et al. 2017, arXiv:1706.03762, equation 3), not below `min_lr`.
    """
    warmup = optim.lr_warmup_iters
    if step < warmup:
        return optim.lr * (step + 1) / warmup
    if optim.lr_decay_style == "constant":
        return optim.lr
    if optim.lr_decay_style == "inverse-square-root":
        return max(optim.min_lr, optim.lr * math.sqrt(max(1, warmup) / max(1, step)))
    last = (optim.lr_decay_iters or optim.train_steps) - 1
    shape, start = optim.lr_decay_style, warmup
    if optim.lr_decay_style == "WSD":
        shape, start = optim.lr_wsd_decay_style, max(warmup, last - (optim.lr_wsd_decay_iters or 0))
    gone = min(1.0, max(0, step - start) / max(1, last - start))
    return optim.min_lr + (optim.lr - optim.min_lr) * _LEFT[shape](gone)
