"""Small batches with samples of different lengths, for contracts of roles that compute with torch.

torch is imported when a check runs. Without torch, the check is skipped.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import SkipTest

from slime_core.roles import AdvantageInput, CorrectionInput, LossInput

if TYPE_CHECKING:
    import torch

LENGTHS: tuple[int, ...] = (3, 1, 4, 2, 5)
"""Number of response tokens of each sample."""
GROUPS: tuple[int, ...] = (0, 0, 0, 1, 1)
"""Group of each sample."""
REWARDS: tuple[float, ...] = (0.0, 1.0, 0.5, 1.0, 0.0)
"""Reward of each sample."""


def need_torch(*, and_train: bool = False) -> None:
    """Skip the running check, and the checks that need it, if torch is not installed.

    Args:
        and_train: whether slime-train is needed too.

    Raises:
        SkipTest: a package is missing.
    """
    for module, dist in [("torch", "torch")] + [("slime_train", "slime-train")] * and_train:
        try:
            importlib.import_module(module)
        except ImportError:
            raise SkipTest(f"not run: needs {dist}") from None


def advantage_input(
    rewards: tuple[float, ...] = REWARDS,
    groups: tuple[int, ...] = GROUPS,
    lengths: tuple[int, ...] = LENGTHS,
    *,
    masked: bool = False,
    rollouts: tuple[int, ...] | None = None,
    sum_over_ranks: "Callable[[torch.Tensor], torch.Tensor] | None" = None,
    reward_keys: Sequence[str] = (),
    token_columns: Sequence[str] = (),
) -> AdvantageInput:
    """Samples of several lengths in two groups; every reward column equals the reward, and token columns are 0.

    `masked` masks the first token of each sample.
    """
    import torch

    sample_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
    mask_T = torch.ones(sum(lengths))
    if masked:
        starts = torch.tensor((0, *lengths[:-1])).cumsum(0)
        mask_T[starts] = 0.0
    batch = AdvantageInput(
        rewards_S=torch.tensor(rewards),
        group_index_S=torch.tensor(groups, dtype=torch.int64),
        rollout_index_S=torch.tensor(range(len(rewards)) if rollouts is None else rollouts, dtype=torch.int64),
        sample_index_T=sample_T,
        loss_mask_T=mask_T,
        columns_S={f"reward/{key}": torch.tensor(rewards) for key in reward_keys},
        columns_T={name: torch.zeros_like(mask_T) for name in token_columns},
        values_T=torch.full_like(mask_T, 0.25),
    )
    return batch if sum_over_ranks is None else replace(batch, sum_over_ranks=sum_over_ranks)


def loss_input(
    samples: tuple[int, ...] = tuple(range(len(LENGTHS))), *, drift: float = 0.25, advantage: float | None = None
) -> LossInput:
    """Some of the five samples; log-probs differ from the old ones by `drift`, with alternating sign."""
    import torch

    tokens = _tokens_of(samples)
    everywhere = torch.arange(sum(LENGTHS), dtype=torch.float32)
    old_T = -0.1 - (everywhere % 7) / 5
    moved_T = old_T + drift * torch.where(everywhere % 2 == 0, 1.0, -1.0)
    signed_T = 1.0 - (everywhere % 3) if advantage is None else torch.full_like(old_T, advantage)
    mask_T = (everywhere % 5 != 4).float()
    lengths = torch.tensor([LENGTHS[sample] for sample in samples])
    return LossInput(
        log_probs_T=moved_T[tokens].clone().requires_grad_(),
        old_log_probs_T=old_T[tokens],
        rollout_log_probs_T=old_T[tokens],
        advantages_T=signed_T[tokens],
        loss_mask_T=mask_T[tokens],
        entropy_T=torch.full((len(tokens),), 0.7, requires_grad=True),
        sample_index_T=torch.arange(len(samples)).repeat_interleave(lengths),
    )


def correction_input(samples: tuple[int, ...] = tuple(range(len(LENGTHS))), *, drift: float = 0.25) -> CorrectionInput:
    """The same samples for a correction."""
    batch = loss_input(samples, drift=drift)
    return CorrectionInput(
        log_probs_T=batch.log_probs_T.detach(),
        rollout_log_probs_T=batch.old_log_probs_T,
        loss_mask_T=batch.loss_mask_T,
        sample_index_T=batch.sample_index_T,
    )


def finite(value: "torch.Tensor") -> bool:
    """Whether the tensor contains neither NaN nor infinity."""
    import torch

    return bool(torch.isfinite(value).all())


def equal(one: "torch.Tensor", other: "torch.Tensor") -> bool:
    """Whether two tensors are equal up to rounding."""
    import torch

    return one.shape == other.shape and bool(torch.allclose(one, other, rtol=1e-5, atol=1e-6))


def _tokens_of(samples: tuple[int, ...]) -> "torch.Tensor":
    import torch

    starts = [sum(LENGTHS[:sample]) for sample in samples]
    return torch.cat(
        [torch.arange(start, start + LENGTHS[sample]) for start, sample in zip(starts, samples, strict=True)]
    )
