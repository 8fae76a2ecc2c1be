"""The learning rate of a step: linear warm-up, then constant, linear or cosine decay."""

import math

from slime_core.roles import Optim


def learning_rate(optim: Optim, step: int) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    Warm-up rises from lr/warmup at step 0 to lr; the decay ends at `min_lr` with the run's last step. Cosine is
    Loshchilov & Hutter 2017, equation 5, without restarts.
    """
    warmup = optim.lr_warmup_iters
    if step < warmup:
        return optim.lr * (step + 1) / warmup
    if optim.lr_decay_style == "constant":
        return optim.lr
    progress = min(1.0, (step - warmup) / max(1, optim.train_steps - 1 - warmup))
    remaining = 1 - progress if optim.lr_decay_style == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return optim.min_lr + (optim.lr - optim.min_lr) * remaining
