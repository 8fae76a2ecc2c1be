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
    """Keys and values of one layer; the prompts' are [P KV, slots, D], the rows' own [capacity, KV, slots, D]."""

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

    def __init__(
        self, model: "FastModel", prompts: Sequence[Sequence[int]], prompt_of_row: Sequence[int], max_rows: int
    ) -> None:
        self._model = model
        self._drawn = 0
        self._rows = len(prompt_of_row)
        self._prompt_of_row = _at_least_min_rows(torch.tensor(prompt_of_row))
        self._lengths = torch.tensor([len(prompt) for prompt in prompts])[self._prompt_of_row]
        self._routing = _route(self._prompt_of_row, len(prompts), model.shape.heads, model.shape.kv_heads)
        own = (max(max_rows, MIN_ROWS), model.shape.kv_heads, _OWN_SLOTS)
        with torch.no_grad():
            prefilled = prefill(model, prompts)
            self._bias = prefilled.bias
            self._layers = [
                _LayerCache(k, v, k.new_empty(*own, k.shape[2]), v.new_empty(*own, v.shape[2]))
                for k, v in prefilled.caches
            ]
            self._logits = self._head(prefilled.ends.index_select(0, self._prompt_of_row))

    @property
    def logits(self) -> Tensor:
        """[rows, V] of the next token."""
        return self._logits[: self._rows]

    def select(self, sources: Tensor) -> None:
        """Drop, move or fork rows; only rows that change place are copied."""
        self._rows = len(sources)
        sources = _at_least_min_rows(sources)
        moved = (sources != torch.arange(len(sources))).nonzero()[:, 0]
        if len(moved) == 0 and len(sources) == len(self._prompt_of_row):
            return
        filled = _whole_blocks(self._drawn, _OWN_BLOCK)
        for cache in self._layers:
            for own in (cache.own_k[:, :, :filled], cache.own_v[:, :, :filled]):
                own.index_copy_(0, moved, own.index_select(0, sources[moved]))
        self._lengths, self._prompt_of_row = self._lengths[sources], self._prompt_of_row[sources]
        self._drop_prompts()
        shape = self._model.shape
        self._routing = _route(self._prompt_of_row, len(self._bias), shape.heads, shape.kv_heads)

    def _drop_prompts(self) -> None:
        """Forget prompts without a row, once they are many enough to be worth the copy."""
        prompts, renumbered = torch.unique(self._prompt_of_row, return_inverse=True)
        if len(prompts) > 0.75 * len(self._bias):
            return
        self._prompt_of_row, self._bias = renumbered, self._bias[prompts]
        kv_heads = self._model.shape.kv_heads
        kept = (prompts[:, None] * kv_heads + torch.arange(kv_heads)).flatten()
        for cache in self._layers:
            cache.prompt_k, cache.prompt_v = cache.prompt_k[kept], cache.prompt_v[kept]

    @torch.no_grad()
    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        model, shape = self._model, self._model.shape
        n = len(self._prompt_of_row)
        positions = self._lengths + self._drawn
        cos, sin = model.rope(positions, int(positions.max()) + 1)
        x = embedding(_at_least_min_rows(tokens), model.weights.embed)
        for w, cache in zip(model.weights.layers, self._layers, strict=True):
            self._make_room(cache, n)
            qkv = queries_keys_values(x, w, cos, sin, (shape.heads, shape.kv_heads), shape.eps)
            cache.own_k[:n, :, self._drawn] = qkv[:, shape.heads : shape.heads + shape.kv_heads]
            cache.own_v[:n, :, self._drawn] = qkv[:, shape.heads + shape.kv_heads :]
            mixed = self._attend(qkv[:, : shape.heads].reshape(n * shape.heads, -1), cache)
            x = output_and_mlp(x, mixed.view(n, -1), w, shape.eps)
        self._drawn += 1
        self._logits = self._head(x)

    def _make_room(self, cache: _LayerCache, rows: int) -> None:
        """Open the next block of own slots where one begins; free slots are finite, as masked products need."""
        if self._drawn % _OWN_BLOCK:
            return
        if self._drawn == cache.own_k.shape[2]:
            cache.own_k, cache.own_v = (
                torch.cat([own, torch.empty_like(own)], 2) for own in (cache.own_k, cache.own_v)
            )
        for own in (cache.own_k, cache.own_v):
            own[:rows, :, self._drawn : self._drawn + _OWN_BLOCK] = 0

    def _attend(self, q: Tensor, cache: _LayerCache) -> Tensor:
        """[R H, D] queries to outputs, over the prompt's slots and the row's own."""
        routing, dim = self._routing, q.shape[1]
        n, kv = len(self._prompt_of_row), cache.own_k.shape[1]
        rep = q.shape[0] // (n * kv)
        own = _whole_blocks(self._drawn + 1, _OWN_BLOCK)
        own_k = cache.own_k[:n].view(n * kv, -1, dim)[:, :own]
        own_v = cache.own_v[:n].view(n * kv, -1, dim)[:, :own]
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


def _at_least_min_rows(rows: Tensor) -> Tensor:
    """The last row repeated where there are fewer than a matrix product needs."""
    return rows if len(rows) >= MIN_ROWS else torch.cat([rows, rows[-1:].expand(MIN_ROWS - len(rows))])


def _whole_blocks(slots: int, block: int) -> int:
    return -(-slots // block) * block


def _route(prompt_of_row: Tensor, prompts: int, heads: int, kv_heads: int) -> _Routing:
    n, rep = len(prompt_of_row), heads // kv_heads
    counts = torch.bincount(prompt_of_row, minlength=prompts)
    width = max(int(counts.max()), -(-MIN_ROWS // rep))
    by_prompt = prompt_of_row.argsort(stable=True)
    rank = torch.empty_like(by_prompt)
    rank[by_prompt] = torch.arange(n) - (counts.cumsum(0) - counts)[prompt_of_row[by_prompt]]
    kv, j = torch.arange(kv_heads)[None, :, None], torch.arange(rep)[None, None, :]
    slot = ((prompt_of_row[:, None, None] * kv_heads + kv) * width + rank[:, None, None]) * rep + j
    to_heads = slot.flatten()
    to_slots = torch.zeros(prompts * kv_heads * width * rep, dtype=torch.long)
    to_slots[to_heads] = torch.arange(n * heads)
    return _Routing(to_slots.view(prompts * kv_heads, width * rep), to_heads)
