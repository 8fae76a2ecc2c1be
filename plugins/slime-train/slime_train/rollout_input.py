"""The advantage estimator's input of a whole rollout: a rank's shares of all its steps, joined.

Example:

    advantages_T = estimator(advantage_input(shares, sum_over_shares))      # [T of all shares, one after another]
"""

from collections.abc import Callable, Sequence

import torch

from slime_core.roles import AdvantageInput
from slime_train.share import Share


def advantage_input(shares: Sequence[Share], sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]) -> AdvantageInput:
    """Groups, rollouts and samples are numbered on from share to share; values and penalties all have or none."""
    batches = [share.batch for share in shares]

    def joined(values: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        given = [each for each in values if each is not None]
        return _joined(given) if given else None

    return AdvantageInput(
        torch.tensor([reward for batch in batches for reward in batch.rewards_S], dtype=torch.float32),
        _numbered([torch.tensor(batch.group_index_S, dtype=torch.int64) for batch in batches]),
        _numbered([torch.tensor(batch.rollout_index_S, dtype=torch.int64) for batch in batches]),
        _numbered([share.sample_T for share in shares], [len(share.lengths_S) for share in shares]),
        _joined([share.mask_T for share in shares]),
        {name: _joined([share.columns_S[name] for share in shares]) for name in shares[0].columns_S},
        {name: _joined([share.columns_T[name] for share in shares]) for name in shares[0].columns_T},
        sum_over_ranks,
        joined([share.kl_penalty_T for share in shares]),
        joined([share.values_T for share in shares]),
    )


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _numbered(parts: Sequence[torch.Tensor], sizes: Sequence[int] | None = None) -> torch.Tensor:
    found, first = [], 0
    for place, part in enumerate(parts):
        found.append(part + first)
        first += sizes[place] if sizes is not None else int(part.max()) + 1 if len(part) else 0
    return _joined(found)
