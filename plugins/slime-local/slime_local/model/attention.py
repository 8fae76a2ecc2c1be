"""Causal attention over the branches of a prefix tree: each node sees its path from the root.

A plan sorts branches by size and cuts them into chunks padded to their longest, small enough that the scores of a
chunk stay in cache. Probabilities are not kept; the backward pass computes them again from q and k.

    plan = plan_attention(prefix_tree(texts).branches, heads=4, kv_heads=2)
    out = attend(qkv, plan)                                       # qkv [N, H + 2 KV, D] -> [Q, H D]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import embedding

from slime_local.model.function import Context, call
from slime_local.model.tree import Branch, Indices

_SCORES = 1 << 18
"""Score elements of a chunk (1 MB), unless one branch alone has more."""
_WIDE_SCORES = 1 << 26
"""The same on other devices than CPUs."""


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
    """How to attend; a function of the branches, shared by all layers."""

    chunks: tuple[_Chunk, ...]
    queries: int
    heads: int
    kv_heads: int


def plan_attention(branches: Sequence[Branch], heads: int, kv_heads: int) -> AttentionPlan:
    """Plan for the new nodes of branches, which ask; outputs are numbered in the order of the branches as given."""
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
    """Sorts by number of queries in steps of 4, then by number of keys: little padding in both."""
    return (branch.new + 3) // 4, len(branch.path)


def _plan_chunk(branches: Sequence[Branch], batch: Sequence[int], starts: Indices, heads: int, kv_heads: int) -> _Chunk:
    widths = torch.tensor([branches[i].new for i in batch])
    depths = torch.tensor([len(branches[i].path) for i in batch])
    total = int(starts[-1])
    q_at, k_at = torch.arange(int(widths.max())), torch.arange(int(depths.max()))
    asks = q_at < widths[:, None]
    paths = np.zeros((len(batch), len(k_at)), dtype=np.int64)  # a padded key is some node, which nobody sees
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
        # One more row, of zeros: what a padded query gets.
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
