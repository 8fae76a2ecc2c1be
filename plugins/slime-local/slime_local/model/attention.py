"""Causal attention over the branches of a prefix tree: each node sees its path from the root.

A plan sorts branches by size and cuts them into chunks padded to their longest, small enough that the scores of a
chunk stay in cache. The backward pass recomputes probabilities from q and k.

    plan = plan_attention(prefix_tree(texts).branches, heads=4, kv_heads=2)
    out = attend(qkv, plan)                                       # qkv [N, H + 2 KV, D] -> [Q, H D]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import embedding

from slime_local.model.ops import (
    Context,
    add_product,
    call,
    chunk_rows,
    norm_backward,
    rms_scale,
    rounded,
    times,
    zeros_if,
)

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Branch:
    """A text that added nodes: its path, whose last `new` nodes are not shared with earlier texts."""

    path: Indices
    new: int


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Nodes are numbered branch by branch, along each branch."""

    tokens: Indices
    """[N] token of each node."""
    depths: Indices
    """[N] position of each node in every text through it."""
    paths: tuple[Indices, ...]
    """For each text, in the order given, the node of each of its tokens."""
    branches: tuple[Branch, ...]
    """Their new nodes, one branch after the other, are all the nodes."""


def prefix_tree(texts: Sequence[Sequence[int]]) -> PrefixTree:
    """Merge texts, each of at least one token."""
    arrays = [np.asarray(text, dtype=np.int64) for text in texts]
    nothing = np.empty(0, dtype=np.int64)
    paths = [nothing] * len(texts)
    branches, tokens, depths = list[Branch](), list[Indices](), list[Indices]()
    size = 0
    last, last_path = nothing, nothing
    # In sorted order, a text's longest shared prefix is with its predecessor.
    for index in sorted(range(len(texts)), key=lambda i: tuple(texts[i])):
        text = arrays[index]
        shared = _common_prefix(last, text)
        new = len(text) - shared
        path = np.concatenate([last_path[:shared], np.arange(size, size + new)])
        if new:
            branches.append(Branch(path, new))
            tokens.append(text[shared:])
            depths.append(np.arange(shared, len(text)))
        size += new
        paths[index] = path
        last, last_path = text, path
    return PrefixTree(np.concatenate(tokens), np.concatenate(depths), tuple(paths), tuple(branches))


def _common_prefix(a: Indices, b: Indices) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    first = int(differs.argmax()) if length else 0
    return first if length and differs[first] else length


def rotate(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    """Rotary positions of x [..., heads, D] into `out`: pairs (i, i + D/2) turned by their angle; not in place."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    torch.mul(a, cos, out=out[..., :half]).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=out[..., half:]).addcmul_(a, sin)


class _InputContext(Context):
    heads: tuple[int, int]
    eps: float
    bf16: bool


class _AttentionInput(Function):
    @staticmethod
    def forward(
        ctx: _InputContext,
        x: Tensor,
        norm: Tensor,
        w: Tensor,
        bias: Tensor | None,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        heads: tuple[int, int],
        eps: float,
        bf16: bool,
    ) -> Tensor:
        n, d = x.shape
        total, dim = sum(heads) + heads[1], cos.shape[-1] * 2
        turned = sum(heads)
        out = x.new_empty(n, total, dim)
        raw = x.new_empty(n, turned, dim) if q_norm is not None else None
        chunk = chunk_rows(x)
        h, z = x.new_empty(min(n, chunk), d), x.new_empty(min(n, chunk), total * dim)
        factor = rounded(w, bf16)
        for s in range(0, n, chunk):
            xc = x[s : s + chunk]
            m = xc.shape[0]
            torch.mul(xc, rms_scale(xc, eps), out=h[:m]).mul_(norm)
            zc = times(h[:m], factor.t(), out=z[:m])
            if bias is not None:
                zc.add_(bias)
            zc = zc.view(m, total, dim)
            out[s : s + m, turned:] = zc[:, turned:]
            qk = zc[:, :turned]
            if raw is not None and q_norm is not None and k_norm is not None:
                raw[s : s + m] = qk
                qk = qk.mul_(rms_scale(qk, eps))
                qk[:, : heads[0]].mul_(q_norm)
                qk[:, heads[0] :].mul_(k_norm)
            rotate(qk, cos[s : s + m], sin[s : s + m], out[s : s + m, :turned])
        ctx.save_for_backward(x, norm, w, bias, q_norm, k_norm, cos, sin, raw)  # type: ignore[arg-type]  # None is fine
        ctx.heads, ctx.eps, ctx.bf16 = heads, eps, bf16
        return out

    @staticmethod
    def backward(ctx: _InputContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, norm, w, bias, q_norm, k_norm, cos, sin, raw = ctx.saved_tensors
        (d_out,) = grads
        heads, eps = ctx.heads, ctx.eps
        n = x.shape[0]
        total, dim, turned = d_out.shape[1], d_out.shape[2], sum(heads)
        dx = torch.empty_like(x)
        d_norm, d_w = torch.zeros_like(norm), zeros_if(ctx.needs_input_grad[2], w)
        d_bias = None if bias is None else torch.zeros_like(bias)
        d_qn, d_kn = (None, None) if q_norm is None else (torch.zeros_like(q_norm), torch.zeros_like(k_norm))
        chunk = chunk_rows(x)
        z = x.new_empty(min(n, chunk), total, dim)
        factor = rounded(w, ctx.bf16)
        for s in range(0, n, chunk):
            xc = x[s : s + chunk]
            m = xc.shape[0]
            dz = z[:m]
            dz[:, turned:] = d_out[s : s + m, turned:]
            rotate(d_out[s : s + m, :turned], cos[s : s + m], -sin[s : s + m], dz[:, :turned])
            if raw is not None and d_qn is not None and d_kn is not None:
                scale = rms_scale(raw[s : s + m], eps)
                hat = raw[s : s + m] * scale
                for part, weight, d_weight in (
                    (slice(0, heads[0]), q_norm, d_qn),
                    (slice(heads[0], turned), k_norm, d_kn),
                ):
                    dz[:, part], extra = norm_backward(dz[:, part], hat[:, part], weight, scale[:, part])
                    d_weight.add_(extra)
            dz = dz.view(m, -1)
            scale = rms_scale(xc, eps)
            x_hat = xc * scale
            if d_w is not None:
                add_product(d_w, dz.t(), x_hat, ctx.bf16)
            if d_bias is not None:
                d_bias.add_(dz.sum(0))
            dx[s : s + m], extra = norm_backward(times(dz, factor), x_hat, norm, scale)
            d_norm.add_(extra)
        if d_w is not None:
            d_w.mul_(norm)
        return dx, d_norm, d_w, d_bias, d_qn, d_kn, None, None, None, None, None


def attention_input(
    x: Tensor,
    norm: Tensor,
    w: Tensor,
    bias: Tensor | None,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    heads: tuple[int, int],
    eps: float,
    bf16: bool = False,
) -> Tensor:
    """RMSNorm, the fused q/k/v product, per-head norms if any, rotary positions.

    Args:
        x: [N, d].
        norm: [d], the layer's input norm.
        w: [(H + 2 KV) D, d], q over k over v; bias [(H + 2 KV) D].
        q_norm: [D] per-head norms of Qwen3, or None.
        k_norm: like q_norm.
        cos: [N, 1, D/2] of each token's position.
        sin: like cos.
        heads: (H, KV).
        eps: of every norm.
        bf16: rounds the factors of the product.

    Returns:
        [N, H + 2 KV, D]: rotated queries, rotated keys, values.
    """
    return call(_AttentionInput, x, norm, w, bias, q_norm, k_norm, cos, sin, heads, eps, bf16)


_SCORES = 1 << 18
"""Score elements of a chunk (1 MB), unless one branch alone has more."""
_WIDE_SCORES = 1 << 26
"""Score elements of a chunk on devices other than CPUs."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Gather indices of b padded branches; head vectors are rows of qkv.view(N (H + 2 KV), D)."""

    q: Tensor
    """[b, KV, rep, Q] rows of the queries."""
    k: Tensor
    """[b, KV, K] rows of the keys; the value of a key is KV rows further."""
    out: Tensor
    """[b, KV, rep, Q] rows of the output; a padded query has the row after the last."""
    bias: Tensor
    """[b, 1, Q, K] 0 or -inf."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Attention chunks of a set of branches, shared by all layers."""

    chunks: tuple[_Chunk, ...]
    queries: int
    heads: int
    kv_heads: int


def plan_attention(branches: Sequence[Branch], heads: int, kv_heads: int) -> AttentionPlan:
    """Plan attention whose queries are the branches' new nodes; outputs are in the order of the given branches."""
    most = _SCORES if torch.get_default_device().type == "cpu" else _WIDE_SCORES
    starts = np.cumsum([0, *(branch.new for branch in branches)])
    chunks, batch = list[_Chunk](), list[int]()
    width = depth = 0
    for index in sorted(range(len(branches)), key=lambda i: _size_class(branches[i])):
        wider, deeper = max(width, branches[index].new), max(depth, len(branches[index].path))
        if batch and (len(batch) + 1) * heads * wider * deeper > most:
            chunks.append(_plan_chunk(branches, batch, starts, heads, kv_heads))
            batch, wider, deeper = [], branches[index].new, len(branches[index].path)
        batch.append(index)
        width, depth = wider, deeper
    chunks.append(_plan_chunk(branches, batch, starts, heads, kv_heads))
    return AttentionPlan(tuple(chunks), int(starts[-1]), heads, kv_heads)


def _size_class(branch: Branch) -> tuple[int, int]:
    """Sort key: number of queries in steps of 4, then number of keys, so that both need little padding."""
    return (branch.new + 3) // 4, len(branch.path)


def _plan_chunk(branches: Sequence[Branch], batch: Sequence[int], starts: Indices, heads: int, kv_heads: int) -> _Chunk:
    widths = torch.tensor([branches[i].new for i in batch])
    depths = torch.tensor([len(branches[i].path) for i in batch])
    total = int(starts[-1])
    q_at, k_at = torch.arange(int(widths.max())), torch.arange(int(depths.max()))
    asks = q_at < widths[:, None]
    paths = np.zeros((len(batch), len(k_at)), dtype=np.int64)  # a padded key is any node; the mask hides it
    for row, index in enumerate(batch):
        paths[row, : len(branches[index].path)] = branches[index].path
    k_token = torch.as_tensor(paths)
    q_token = k_token.gather(1, ((depths - widths)[:, None] + q_at).clamp_(max=len(k_at) - 1))
    out_token = torch.where(asks, torch.as_tensor(starts[batch])[:, None] + q_at, total)

    rep, total_heads = heads // kv_heads, heads + 2 * kv_heads
    head = torch.arange(heads).view(1, kv_heads, rep, 1)
    q = q_token[:, None, None, :] * total_heads + head
    out = torch.where(asks[:, None, None, :], out_token[:, None, None, :] * heads + head, total * heads)
    k = k_token[:, None, :] * total_heads + heads + torch.arange(kv_heads)[None, :, None]
    last_seen = (depths - widths)[:, None, None] + q_at[None, :, None]
    hidden = k_at[None, None, :] > last_seen
    bias = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
    return _Chunk(q, k, out, bias[:, None])


def _probabilities(q: Tensor, k: Tensor, bias: Tensor, chunk: _Chunk) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias), [b KV, rep Q, K]."""
    b, kv, rep, width = chunk.q.shape
    scores = torch.bmm(q, k.transpose(1, 2))
    wide = scores.view(b, kv * rep, width, -1)
    torch.add(bias, wide, alpha=float(q.shape[-1] ** -0.5), out=wide)
    return torch.softmax(scores, -1)


def _gather(rows: Tensor, chunk: _Chunk, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    b, kv, rep, width = chunk.q.shape
    q = embedding(chunk.q.view(b * kv, rep * width), rows)
    k = embedding(chunk.k.view(b * kv, -1), rows)
    v = embedding((chunk.k + kv_heads).view(b * kv, -1), rows)
    return q, k, v


class _AttendContext(Context):
    plan: AttentionPlan


class _Attend(Function):
    @staticmethod
    def forward(ctx: _AttendContext, qkv: Tensor, plan: AttentionPlan) -> Tensor:
        dim = qkv.shape[-1]
        rows = qkv.view(-1, dim)
        out = qkv.new_empty(plan.queries * plan.heads + 1, dim)
        for chunk in plan.chunks:
            q, k, v = _gather(rows, chunk, plan.kv_heads)
            p = _probabilities(q, k, chunk.bias.to(qkv.dtype), chunk)
            out.index_copy_(0, chunk.out.flatten(), torch.bmm(p, v).view(-1, dim))
        ctx.save_for_backward(qkv)
        ctx.plan = plan
        return out[:-1].view(plan.queries, plan.heads * dim)

    @staticmethod
    def backward(ctx: _AttendContext, *grads: Tensor) -> tuple[Tensor, None]:
        (qkv,) = ctx.saved_tensors
        plan = ctx.plan
        dim = qkv.shape[-1]
        rows = qkv.view(-1, dim)
        d_qkv = torch.zeros_like(qkv)
        d_rows = d_qkv.view(-1, dim)
        # One more row of zeros, for padded queries.
        d_out = torch.cat([grads[0].reshape(-1, dim), qkv.new_zeros(1, dim)])
        for chunk in plan.chunks:
            q, k, v = _gather(rows, chunk, plan.kv_heads)
            p = _probabilities(q, k, chunk.bias.to(qkv.dtype), chunk)
            do = embedding(chunk.out.view(q.shape[:2]), d_out)
            d_rows.index_add_(0, (chunk.k + plan.kv_heads).flatten(), torch.bmm(p.transpose(1, 2), do).view(-1, dim))
            dp = torch.bmm(do, v.transpose(1, 2))
            ds = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype).mul_(dim**-0.5)
            d_rows.index_add_(0, chunk.q.flatten(), torch.bmm(ds, k).view(-1, dim))
            d_rows.index_add_(0, chunk.k.flatten(), torch.bmm(ds.transpose(1, 2), q).view(-1, dim))
        return d_qkv, None


def attend(qkv: Tensor, plan: AttentionPlan) -> Tensor:
    """Attention output [Q, H D] of the plan's queries.

    Args:
        qkv: [N, H + 2 KV, D], contiguous: rotated queries, rotated keys, values.
        plan: made for these N tokens.
    """
    return call(_Attend, qkv, plan)
