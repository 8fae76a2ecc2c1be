"""Decoding on the fast path: rows of one prompt share its keys and values, and each row keeps only its own.

Bitwise, a row's logits do not depend on its companions, given one thread. What makes it so:
  - matrix products see at least 4 rows (with fewer, the library takes another kernel);
  - padding is masked and comes in blocks of 64 prompt or 16 own slots, so that every row starts on a cache line, and
    sums over prompt slots are taken block by block, so that more padding adds zeros and regroups nothing;
  - all rows have drawn the same number of tokens, so the length of their own part is no property of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from slime_core.local.model.inference import MIN_ROWS, output_and_mlp, queries_keys_values, weigh_blocks
from slime_core.local.model.norm import rms_scale
from slime_core.local.model.prefill import prefill

if TYPE_CHECKING:
    from slime_core.local.model.fast import FastModel

_OWN_BLOCK = 16
_OWN_SLOTS = 64
"""Slots a row's own cache starts with; doubled when full."""


@dataclass(slots=True)
class _LayerCache:
    """Keys and values of one layer; the prompt's are [P KV, slots, D], the rows' own [R, KV, slots, D]."""

    prompt_k: Tensor
    prompt_v: Tensor
    own_k: Tensor
    own_v: Tensor


@dataclass(frozen=True, slots=True)
class _Routing:
    """Query heads of R rows, grouped by prompt: [P KV, G rep] slots, G the largest number of rows of a prompt."""

    to_slots: Tensor
    """[P KV, G rep] index into the R H query heads; a slot of no row repeats some head."""
    to_heads: Tensor
    """[R H] index of each query head's slot."""


class FastDecode:
    """Rows extended in lockstep; see `DecodeState`."""

    def __init__(self, model: "FastModel", prompts: Sequence[Sequence[int]], prompt_of_row: Sequence[int]) -> None:
        self._model = model
        self._live = len(prompt_of_row)
        self._drawn = 0
        rows = torch.tensor(prompt_of_row)
        self._prompt_of_row = torch.cat([rows, rows[-1:].expand(max(0, MIN_ROWS - self._live))])
        self._lengths = torch.tensor([len(prompt) for prompt in prompts])[self._prompt_of_row]
        self._routing = _route(self._prompt_of_row, len(prompts), model.shape.heads, model.shape.kv_heads)
        with torch.no_grad():
            prefilled = prefill(model, prompts)
            self._bias = prefilled.bias
            self._layers = [_LayerCache(k, v, self._no_own(k), self._no_own(v)) for k, v in prefilled.caches]
            self._logits = self._head(prefilled.ends.index_select(0, self._prompt_of_row))

    @property
    def logits(self) -> Tensor:
        """[rows, V] of the next token."""
        return self._logits[: self._live]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone; prompts without a row are dropped."""
        self._live = len(rows)
        rows = torch.cat([rows, rows[-1:].expand(max(0, MIN_ROWS - self._live))])
        prompts, self._prompt_of_row = torch.unique(self._prompt_of_row[rows], return_inverse=True)
        self._lengths, self._logits = self._lengths[rows], self._logits[rows]
        shape = self._model.shape
        heads = (prompts[:, None] * shape.kv_heads + torch.arange(shape.kv_heads)).flatten()
        fewer = len(heads) < self._layers[0].prompt_k.shape[0]
        for cache in self._layers:
            if fewer:
                cache.prompt_k, cache.prompt_v = cache.prompt_k[heads], cache.prompt_v[heads]
            cache.own_k = self._reshape_own(cache.own_k, rows, cache.own_k.shape[2])
            cache.own_v = self._reshape_own(cache.own_v, rows, cache.own_v.shape[2])
        self._bias = self._bias[prompts]
        self._routing = _route(self._prompt_of_row, len(prompts), shape.heads, shape.kv_heads)

    def _no_own(self, prompt_cache: Tensor) -> Tensor:
        return prompt_cache.new_zeros(
            len(self._prompt_of_row), self._model.shape.kv_heads, _OWN_SLOTS, prompt_cache.shape[2]
        )

    def _reshape_own(self, cache: Tensor, rows: Tensor, slots: int) -> Tensor:
        """The drawn part of these rows in a cache of so many slots; free slots are finite, as masked products need."""
        made = cache.new_zeros(len(rows), cache.shape[1], slots, cache.shape[3])
        made[:, :, : self._drawn] = cache[:, :, : self._drawn].index_select(0, rows)
        return made

    @torch.no_grad()
    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        model, shape = self._model, self._model.shape
        n = len(self._prompt_of_row)
        tokens = torch.cat([tokens, tokens[-1:].expand(n - self._live)])
        positions = self._lengths + self._drawn
        if self._drawn == self._layers[0].own_k.shape[2]:
            every = torch.arange(n)
            for cache in self._layers:
                cache.own_k = self._reshape_own(cache.own_k, every, 2 * self._drawn)
                cache.own_v = self._reshape_own(cache.own_v, every, 2 * self._drawn)
        cos, sin = model.rope(positions, int(positions.max()) + 1)
        x = embedding(tokens, model.weights.embed)
        for w, cache in zip(model.weights.layers, self._layers, strict=True):
            qkv = queries_keys_values(x, w, cos, sin, (shape.heads, shape.kv_heads), shape.eps)
            cache.own_k[:, :, self._drawn] = qkv[:, shape.heads : shape.heads + shape.kv_heads]
            cache.own_v[:, :, self._drawn] = qkv[:, shape.heads + shape.kv_heads :]
            mixed = self._attend(qkv[:, : shape.heads].reshape(n * shape.heads, -1), cache)
            x = output_and_mlp(x, mixed.view(n, -1), w, shape.eps)
        self._drawn += 1
        self._logits = self._head(x)

    def _attend(self, q: Tensor, cache: _LayerCache) -> Tensor:
        """[R H, D] queries to outputs, over the prompt's slots and the row's own."""
        routing, dim = self._routing, q.shape[1]
        n, kv = cache.own_k.shape[:2]
        rep = q.shape[0] // (n * kv)
        own = -(-(self._drawn + 1) // _OWN_BLOCK) * _OWN_BLOCK
        own_k = cache.own_k.view(n * kv, -1, dim)[:, :own]
        own_v = cache.own_v.view(n * kv, -1, dim)[:, :own]
        prompts, slots = cache.prompt_k.shape[0] // kv, cache.prompt_k.shape[1]

        grouped = torch.bmm(embedding(routing.to_slots, q), cache.prompt_k.transpose(1, 2))
        grouped.view(prompts, -1, slots).add_(self._bias[:, None])
        scores = q.new_empty(len(q), slots + own)
        scores[:, :slots] = embedding(routing.to_heads, grouped.view(-1, slots))
        scores[:, slots:] = torch.bmm(q.view(n * kv, rep, dim), own_k.transpose(1, 2)).view(-1, own)
        scores[:, slots + self._drawn + 1 :] = -torch.inf
        p = torch.softmax(scores.mul_(dim**-0.5), -1)

        mixed = torch.bmm(p[:, slots:].reshape(n * kv, rep, own), own_v).view(-1, dim)
        total = weigh_blocks(embedding(routing.to_slots, p[:, :slots]), cache.prompt_v)
        return mixed.add_(embedding(routing.to_heads, total.view(-1, dim)))

    def _head(self, x: Tensor) -> Tensor:
        weights = self._model.weights
        return linear(x * rms_scale(x, self._model.shape.eps) * weights.norm, weights.head)


def _route(prompt_of_row: Tensor, prompts: int, heads: int, kv_heads: int) -> _Routing:
    n, rep = len(prompt_of_row), heads // kv_heads
    counts = torch.bincount(prompt_of_row, minlength=prompts)
    width = max(int(counts.max()), -(-MIN_ROWS // rep))
    rank = torch.arange(n) - (counts.cumsum(0) - counts)[prompt_of_row]
    kv, j = torch.arange(kv_heads)[None, :, None], torch.arange(rep)[None, None, :]
    slot = ((prompt_of_row[:, None, None] * kv_heads + kv) * width + rank[:, None, None]) * rep + j
    to_heads = slot.flatten()
    to_slots = torch.zeros(prompts * kv_heads * width * rep, dtype=torch.long)
    to_slots[to_heads] = torch.arange(n * heads)
    return _Routing(to_slots.view(prompts * kv_heads, width * rep), to_heads)
