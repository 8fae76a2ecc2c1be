"""A decoder layer's parts without gradients, with a summation order independent of padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, silu

from slime_local.model.attention import prefix_tree, rotate
from slime_local.model.ops import plus_times, project, rms_scale
from slime_local.model.weights import DecoderWeights, LayerWeights

if TYPE_CHECKING:
    from slime_local.model.fast import FastModel


@dataclass(frozen=True, slots=True)
class Prefilled:
    """P prompts padded to S slots."""

    caches: tuple[tuple[Tensor, Tensor], ...]
    """Per layer, keys and values [P KV, S, D]."""
    bias: Tensor
    """[P, S] 0 on the prompt, -inf on padding."""
    ends: Tensor
    """[P, d] hidden state after each prompt's last token."""


def prefill(model: "FastModel", prompts: Sequence[Sequence[int]]) -> Prefilled:
    """Compute each shared prefix once; call it without gradients."""
    shape, heads = model.shape, (model.shape.heads, model.shape.kv_heads)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    slots = -(-int(lengths.max()) // PROMPT_BLOCK) * PROMPT_BLOCK
    at = torch.arange(slots)
    seen = at < lengths[:, None]
    tree = prefix_tree(prompts)
    token_of_slot = torch.zeros(seen.shape, dtype=torch.long)  # padding repeats some token
    token_of_slot[seen] = torch.as_tensor(np.concatenate(tree.paths))
    tokens = torch.as_tensor(tree.tokens)
    slot_of_token = torch.empty_like(tokens)
    slot_of_token[token_of_slot[seen]] = seen.flatten().nonzero()[:, 0]  # of equal prefixes, any
    lacking = max(0, MIN_ROWS - len(tokens))
    tokens, slot_of_token = (torch.cat([t, t[-1:].expand(lacking)]) for t in (tokens, slot_of_token))
    cos, sin = model.rope(slot_of_token % slots, slots)
    x = embedding(tokens, model.weights.embed)
    caches = []
    for w in model.serving:
        qkv = queries_keys_values(x, w, cos, sin, heads, shape.eps)
        padded = embedding(token_of_slot, qkv.flatten(1)).view(*seen.shape, *qkv.shape[1:])
        q, k, v = torch.split(padded.transpose(1, 2), [heads[0], heads[1], heads[1]], 1)
        k, v = (t.reshape(-1, slots, qkv.shape[2]) for t in (k, v))
        caches.append((k, v))
        x = output_and_mlp(x, _attend(q, k, v).index_select(0, slot_of_token), w, shape.eps)
    ends = torch.tensor([int(path[-1]) for path in tree.paths])
    bias = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
    return Prefilled(tuple(caches), bias, x.index_select(0, ends))


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of padded prompts: q [P, H, S, D], k and v [P KV, S, D] to [P S, H D]."""
    prompts, heads, slots, dim = q.shape
    scores = torch.bmm(q.reshape(k.shape[0], -1, dim), k.transpose(1, 2)).mul_(dim**-0.5)
    later = torch.ones(slots, slots, dtype=torch.bool).triu_(1)
    scores.view(prompts, heads, slots, slots).masked_fill_(later, -torch.inf)
    mixed = weigh_blocks(torch.softmax(scores, -1), v, PROMPT_BLOCK).view(prompts, heads, slots, dim)
    return mixed.transpose(1, 2).reshape(prompts * slots, heads * dim)


MIN_ROWS = 4
"""Matrix products with fewer rows take another kernel, whose results differ in the last bits."""

PROMPT_BLOCK = 64
"""Block size in slots: prompts are padded to whole blocks, and sums over slots run block by block."""


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
    """Next-token logits [R, V] for hidden states [R, d], always in fp32."""
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
