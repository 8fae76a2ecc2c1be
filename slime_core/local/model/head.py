"""From the last hidden state to one log-prob a token, without keeping logits."""

import torch
from torch import Tensor
from torch.autograd import Function

from slime_core.local.model.function import Context
from slime_core.local.model.norm import CHUNK, norm_backward, rms_scale

RECOMPUTE_OVER = 1 << 26
"""Probabilities [N, V] above this many elements (256 MB) are computed again in the backward pass, not kept."""


class _HeadContext(Context):
    temperature: float
    eps: float


class _TokenLogProbs(Function):
    @staticmethod
    def forward(
        ctx: _HeadContext, x: Tensor, norm: Tensor, head: Tensor, targets: Tensor, temperature: float, eps: float
    ) -> tuple[Tensor, Tensor]:
        n, vocab = x.shape[0], head.shape[0]
        log_probs, entropy = x.new_empty(n), x.new_empty(n)
        keep = n * vocab <= RECOMPUTE_OVER
        probs = x.new_empty(n if keep else 0, vocab)
        for s in range(0, n, CHUNK):
            xc = x[s : s + CHUNK]
            m = xc.shape[0]
            lp = _tempered(xc * rms_scale(xc, eps) * norm, head, temperature)
            p = torch.exp(lp, out=probs[s : s + m]) if keep else lp.exp()
            log_probs[s : s + m] = lp.gather(1, targets[s : s + m, None])[:, 0]
            entropy[s : s + m] = torch.linalg.vecdot(lp, p).neg_()
        ctx.save_for_backward(x, norm, head, targets, probs)
        ctx.temperature, ctx.eps = temperature, eps
        ctx.mark_non_differentiable(entropy)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: _HeadContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, norm, head, targets, probs = ctx.saved_tensors
        d_log_probs = grads[0] / ctx.temperature
        dx, d_norm, d_head = torch.empty_like(x), torch.zeros_like(norm), torch.zeros_like(head)
        for s in range(0, x.shape[0], CHUNK):
            xc, g = x[s : s + CHUNK], d_log_probs[s : s + CHUNK, None]
            m = xc.shape[0]
            scale = rms_scale(xc, ctx.eps)
            x_hat = xc * scale
            p = probs[s : s + m] if probs.shape[0] else _tempered(x_hat * norm, head, ctx.temperature).exp_()
            d_logits = torch.mul(p, -g).scatter_add_(1, targets[s : s + m, None], g)
            d_head.addmm_(d_logits.t(), x_hat)
            dx[s : s + m], extra = norm_backward(d_logits.mm(head), x_hat, norm, scale)
            d_norm.add_(extra)
        d_head.mul_(norm)
        return dx, d_norm, d_head, None, None, None


def _tempered(h: Tensor, head: Tensor, temperature: float) -> Tensor:
    logits = h.mm(head.t())
    if temperature != 1.0:
        logits.mul_(1.0 / temperature)
    return torch.log_softmax(logits, -1)


def token_log_probs(
    x: Tensor, norm: Tensor, head: Tensor, targets: Tensor, temperature: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Final norm, vocabulary product and log-softmax, read at one target a row.

    Args:
        x: [T, d] hidden states that predict the targets.
        norm: [d], the final norm.
        head: [V, d].
        targets: [T] token ids.
        temperature: divides the logits.
        eps: of the norm.

    Returns:
        Log-probs [T] and, without a gradient, the entropies [T] of the tempered distributions.
    """
    both: tuple[Tensor, Tensor] = _TokenLogProbs.apply(x, norm, head, targets, temperature, eps)  # type: ignore[no-untyped-call]
    return both
