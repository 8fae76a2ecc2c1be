"""Log-probs and entropies of response tokens, of a vocabulary that is cut over the tensor-parallel ranks.

Logits are made of a few rows at a time, and made again for the backward pass: at no time are all of them held.

Example:

    log_probs_M, entropy_M = token_log_probs(hidden_MH, weight, labels_M, Head(vocab=384, temperature=1.0, chunk=1024))
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel.mappings import reduce_from_tensor_model_parallel_region
from torch.utils.checkpoint import checkpoint

NEVER = -1e30
"""Logit of what is not a token: its power is 0, and so is the product of the two."""


@dataclass(frozen=True, slots=True)
class Head:
    """How logits become log-probs."""

    vocab: int
    """Tokens; what a rank has beyond them is padding."""
    temperature: float
    """What logits are divided by."""
    chunk: int
    """Rows at a time."""


def token_log_probs(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, head: Head
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of labels, and the entropies of their distributions in nats, both [M] fp32 with the gradient.

    Args:
        hidden: [M, width], the same on all tensor-parallel ranks.
        weight: this rank's rows of the output layer.
        labels: int64 [M].
        head: the rest.
    """
    found = []
    for rows, wanted in zip(torch.split(hidden, head.chunk), torch.split(labels, head.chunk), strict=True):
        if torch.is_grad_enabled():
            found.append(checkpoint(_of_rows, rows, weight, wanted, head, use_reentrant=False))
        else:
            found.append(_of_rows(rows, weight, wanted, head))
    log_probs, entropies = zip(*found, strict=True)
    return torch.cat(log_probs), torch.cat(entropies)


def _of_rows(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, head: Head
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = F.linear(hidden, weight).float() / head.temperature
    first = parallel_state.get_tensor_model_parallel_rank() * len(weight)
    if (own := head.vocab - first) < len(weight):
        padding = torch.arange(len(weight), device=logits.device) >= own
        logits = logits.masked_fill(padding, NEVER)
    top = logits.detach().amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=parallel_state.get_tensor_model_parallel_group())
    logits = logits - top[:, None]
    powers = logits.exp()
    total = reduce_from_tensor_model_parallel_region(powers.sum(-1))
    at = labels - first
    here = (at >= 0) & (at < len(weight))
    picked = torch.where(here, logits.gather(-1, at.clamp(0, len(weight) - 1)[:, None])[:, 0], 0.0)
    weighed = reduce_from_tensor_model_parallel_region((powers * logits).sum(-1))
    log_total = total.log()
    return reduce_from_tensor_model_parallel_region(picked) - log_total, log_total - weighed / total
