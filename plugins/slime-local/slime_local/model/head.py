"""Log-probs of tokens from the last hidden states, without storing logits."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function

from slime_local.model.ops import CHUNK, Context, norm_backward, rms_scale, zeros_if

WIDE_LOGITS = 1 << 28
"""Logits [rows, V] of a chunk that is not on a CPU (1 GB)."""
RECOMPUTE_OVER = 1 << 26
"""Elements (256 MB) above which probabilities [N, V] are recomputed in the backward pass instead of kept."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """T (row, target) pairs to read, sorted by row so that a chunk of rows finds its own."""

    order: Tensor
    """[T] the pairs by ascending row."""
    rows: Tensor
    """[T] row of each pair, in that order."""
    targets: Tensor
    """[T] target of each pair, in that order."""
    starts: list[int]
    """For each chunk of rows, and past the last, its first pair in that order."""
    size: int
    """Rows of a chunk."""

    @classmethod
    def of(cls, source: Tensor, targets: Tensor, rows: int, vocab: int) -> "Pairs":
        """Pairs (source[t], targets[t]) for `rows` rows and a vocabulary of `vocab` tokens."""
        size = CHUNK if source.is_cpu else max(CHUNK, WIDE_LOGITS // vocab)
        by_row, order = source.sort(stable=True)
        starts = torch.searchsorted(by_row, torch.arange(0, rows + size, size)).tolist()
        return cls(order, by_row, targets[order], starts, size)

    def chunk(self, index: int, vocab: int) -> tuple[slice, Tensor]:
        """The pairs of one chunk of rows: a slice, and their places in the chunk's flattened [rows, V]."""
        part = slice(self.starts[index], self.starts[index + 1])
        return part, (self.rows[part] - index * self.size) * vocab + self.targets[part]


class _HeadContext(Context):
    pairs: Pairs
    temperature: float
    eps: float


class _TokenLogProbs(Function):
    @staticmethod
    def forward(
        ctx: _HeadContext, x: Tensor, norm: Tensor, head: Tensor, pairs: Pairs, temperature: float, eps: float
    ) -> tuple[Tensor, Tensor]:
        n, vocab, size = x.shape[0], head.shape[0], pairs.size
        log_probs, entropy = x.new_empty(len(pairs.order)), x.new_empty(n)
        keep = n * vocab <= RECOMPUTE_OVER
        probs = x.new_empty(n if keep else 0, vocab)
        for index, s in enumerate(range(0, n, size)):
            xc = x[s : s + size]
            m = xc.shape[0]
            lp = _tempered(xc * rms_scale(xc, eps) * norm, head, temperature)
            p = torch.exp(lp, out=probs[s : s + m]) if keep else lp.exp()
            part, places = pairs.chunk(index, vocab)
            log_probs[pairs.order[part]] = lp.view(-1)[places]
            entropy[s : s + m] = torch.linalg.vecdot(lp, p).neg_()
        ctx.save_for_backward(x, norm, head, probs)
        ctx.pairs, ctx.temperature, ctx.eps = pairs, temperature, eps
        ctx.set_materialize_grads(False)
        return log_probs, entropy

    @staticmethod
    def backward(ctx: _HeadContext, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, norm, head, probs = ctx.saved_tensors
        pairs, vocab, size = ctx.pairs, head.shape[0], ctx.pairs.size
        d_log_probs, d_entropy = grads
        d_pairs = x.new_zeros(len(pairs.order)) if d_log_probs is None else d_log_probs[pairs.order] / ctx.temperature
        d_rows = x.new_zeros(x.shape[0]).index_add_(0, pairs.rows, d_pairs)
        dx, d_norm = torch.empty_like(x), torch.zeros_like(norm)
        d_head = zeros_if(ctx.needs_input_grad[2], head)
        for index, s in enumerate(range(0, x.shape[0], size)):
            xc = x[s : s + size]
            m = xc.shape[0]
            scale = rms_scale(xc, ctx.eps)
            x_hat = xc * scale
            p = probs[s : s + m] if probs.shape[0] else _tempered(x_hat * norm, head, ctx.temperature).exp_()
            d_logits = torch.mul(p, -d_rows[s : s + m, None])
            part, places = pairs.chunk(index, vocab)
            d_logits.view(-1).index_add_(0, places, d_pairs[part])
            if d_entropy is not None:
                # dH/dlogits = p (-log p - H): a product more over [rows, V], so only for losses that use the entropy.
                surprise = torch.special.entr(p)
                surprise.addcmul_(p, surprise.sum(-1, keepdim=True), value=-1.0)
                d_logits.addcmul_(surprise, d_entropy[s : s + m, None], value=1.0 / ctx.temperature)
            if d_head is not None:
                d_head.addmm_(d_logits.t(), x_hat)
            dx[s : s + m], extra = norm_backward(d_logits.mm(head), x_hat, norm, scale)
            d_norm.add_(extra)
        if d_head is not None:
            d_head.mul_(norm)
        return dx, d_norm, d_head, None, None, None


def _tempered(h: Tensor, head: Tensor, temperature: float) -> Tensor:
    logits = h.mm(head.t())
    if temperature != 1.0:
        logits.mul_(1.0 / temperature)
    return torch.log_softmax(logits, -1)


def token_log_probs(
    x: Tensor, norm: Tensor, head: Tensor, pairs: Pairs, temperature: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Final norm, vocabulary product and log-softmax, read at some targets of each row.

    Args:
        x: [M, d] hidden states that predict.
        norm: [d], the final norm.
        head: [V, d].
        pairs: the T (row, target id) pairs to read.
        temperature: divides the logits.
        eps: of the norm.

    Returns:
        Log-probs [T] in the pairs' original order, and the entropy of each row's tempered distribution [M].
    """
    out: tuple[Tensor, Tensor] = _TokenLogProbs.apply(x, norm, head, pairs, temperature, eps)  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
    return out
