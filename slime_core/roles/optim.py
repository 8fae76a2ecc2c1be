"""Optim: the optimizer's shared keys, which every trainer maps to its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Optim:
    """The optimizer's shared keys, by Megatron's names."""

    lr: float
    """Peak learning rate."""
    lr_warmup_iters: int
    """Steps of linear warm-up."""
    lr_decay_style: str
    """"constant", "linear", "cosine", "inverse-square-root" or "WSD"."""
    min_lr: float
    """Where the decay ends."""
    adam_beta1: float
    """Decay of the first moment."""
    adam_beta2: float
    """Decay of the second moment."""
    adam_eps: float
    """Added to the root of the second moment."""
    weight_decay: float
    """Decoupled weight decay of matrices."""
    clip_grad: float
    """Global gradient norm limit; 0 is off."""
    train_steps: int
    """Optimizer steps of the whole run, for the schedule."""
    lr_decay_iters: int | None = None
    """Steps after which the decay has ended; None: `train_steps`."""
    lr_wsd_decay_iters: int | None = None
    """Steps of the decay at the end of "WSD"."""
    lr_wsd_decay_style: str = "exponential"
    """Its shape: "exponential", "linear", "cosine" or "minus_sqrt"."""
    reset_optimizer_states: bool = False
    """Whether both moments are forgotten before a rollout's first step, and their bias is counted from there."""
