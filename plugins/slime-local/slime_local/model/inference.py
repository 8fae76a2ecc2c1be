"""A decoder layer's pieces without gradients, with sums in an order that padding does not change."""

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from slime_local.model.attention_input import rotate
from slime_local.model.norm import rms_scale
from slime_local.model.product import plus_times, project
from slime_local.model.weights import DecoderWeights, LayerWeights

MIN_ROWS = 4
"""Matrix products with fewer rows take another kernel, whose results differ in the last bits."""

PROMPT_BLOCK = 64
"""Prompts are padded to blocks of so many slots, and sums over them are taken block by block."""


def queries_keys_values(
    x: Tensor, w: LayerWeights, cos: Tensor, sin: Tensor, heads: tuple[int, int], eps: float
) -> Tensor:
    """Rotated queries, rotated keys, values of x [R, d]: [R, H + 2 KV, D]; heads is (H, KV)."""
    turned = sum(heads)
    qkv = project(x * rms_scale(x, eps) * w.norm, w.qkv, w.qkv_bias).view(len(x), turned + heads[1], -1)
    qk = qkv[:, :turned]
    if w.q_norm is not None and w.k_norm is not None:
        qk = qk * rms_scale(qk, eps)
        qk[:, : heads[0]] *= w.q_norm
        qk[:, heads[0] :] *= w.k_norm
    else:
        qk = qk.clone()
    rotate(qk, cos, sin, qkv[:, :turned])
    return qkv


def output_and_mlp(x: Tensor, mixed: Tensor, w: LayerWeights, eps: float) -> Tensor:
    """The rest of the layer, given attention's output [R, H D]."""
    x = plus_times(x, mixed, w.o.t())
    gate, up = project(x * rms_scale(x, eps) * w.mlp_norm, w.gate_up).chunk(2, -1)
    return plus_times(x, silu(gate).mul_(up), w.down.t())


def logits_of(x: Tensor, weights: DecoderWeights, eps: float) -> Tensor:
    """Logits [R, V] of the tokens after hidden states [R, d], in fp32 whatever the layers compute in."""
    return linear(x * rms_scale(x, eps) * weights.norm, weights.head)


def weigh_blocks(p: Tensor, v: Tensor, block: int) -> Tensor:
    """The product p v of [B, M, S] and [B, S, D], summed block by block; the last one may be shorter."""
    if p.shape[2] <= block:
        return torch.bmm(p, v)
    first, *others = range(0, p.shape[2], block)
    total = _weigh(p, v, first, block)
    for start in others:
        total += _weigh(p, v, start, block)
    return total


def _weigh(p: Tensor, v: Tensor, start: int, block: int) -> Tensor:
    end = start + block
    return torch.bmm(p[:, :, start:end].contiguous(), v[:, start:end])
