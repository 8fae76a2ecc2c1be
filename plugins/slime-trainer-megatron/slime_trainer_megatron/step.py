"""One rank's part of a step: computes sums of its samples' losses, and the gradient in Megatron's buffers."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from slime_core.errors import ContractError, NonFiniteError
from slime_train import Algorithm, Share, Sums
from slime_trainer_megatron.passes import Passes, TokenOutputs


class MegatronStep:
    """Computes log-probs, losses and gradients, independent of the optimizer."""

    def __init__(self, passes: Passes, algorithm: Algorithm) -> None:
        self._passes, self._algorithm = passes, algorithm

    def run(self, share: Share, *, trains: bool = True) -> Sums:
        """Sums of a share on the last stage; with `trains`, also gradients on all stages, summed over the replicas.

        Raises:
            NonFiniteError: a log-prob or the loss is not finite; raised after all micro-batches.
            ContractError: the output of the loss or correction breaks its contract; raised after all micro-batches.
        """
        sums, errors = Sums(), list[NonFiniteError | ContractError]()

        def use(samples: Sequence[int], found: TokenOutputs) -> torch.Tensor:
            try:
                part = self._algorithm.micro_batch(share, samples, *found)
            except (NonFiniteError, ContractError) as error:
                # Other stages wait for this stage's gradient.
                errors.append(error)
                return found[0].sum() * 0.0
            sums.add(part)
            return part.loss

        self._passes.run(share, self._algorithm.signal(share), use, trains=trains)
        if errors:
            raise errors[0]
        return sums

    def with_old_log_probs(self, share: Share, old: Passes | None = None) -> Share:
        """The share with log-probs of the current policy, or of the `old` one, if its step needs them."""
        if not self._algorithm.wants_old_log_probs(share):
            return share
        passes = old or self._passes
        return replace(share, old_log_probs_T=passes.log_probs(share, self._algorithm.signal(share)))
