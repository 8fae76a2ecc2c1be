"""Decoding on the fast path: rows of one prompt share its keys and values, and each row keeps only its own.

With one thread, a row's logits are bitwise independent of the other rows and of their lengths, because:
  - matrix products use at least 4 rows and MKL's strict mode, because MKL otherwise picks kernels by row count (below 4
    rows, and without the mode below 16 or 56, depending on the CPU);
  - padding is masked and comes in blocks of 64 prompt or 32 own slots, so that every row starts on a cache line, and
    sums over slots are taken in blocks of 64 prompt or 128 own slots, so that more padding adds zeros and regroups
    nothing (over 128, the library cuts a sum at places that depend on its length).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import embedding

from slime_local.model.inference import (
    MIN_ROWS,
    PROMPT_BLOCK,
    logits_of,
    output_and_mlp,
    prefill,
    queries_keys_values,
    weigh_blocks,
)

if TYPE_CHECKING:
    from slime_local.model.fast import FastModel

_OWN_BLOCK = 32
_OWN_SUM = 128
"""Slots of a row's separate cache that are summed at once."""
_OWN_SLOTS = 64
"""Slots a row's own cache starts with; doubled when full."""


@dataclass(slots=True)
class _LayerCache:
    """Keys and values of one layer; the prompts' are [P KV, slots, D], the rows' own [capacity, KV, slots, D]."""

    prompt_k: Tensor
    prompt_v: Tensor
    own_k: Tensor
    own_v: Tensor

    def begin(self, rows: int) -> None:
        """Remove the prompts; keep the rows' slots if their number suits so many rows."""
        self.prompt_k, self.prompt_v = self.prompt_k[:0, :0], self.prompt_v[:0, :0]
        if not rows <= len(self.own_k) <= 2 * rows:
            self.own_k, self.own_v = self.own_k[:0, :, :0], self.own_v[:0, :, :0]

    def reserve(self, rows: int, slots: int) -> None:
        """Allocate rows and slots; free slots hold finite values, as masked products need."""
        have_rows, kv_heads, have, dim = self.own_k.shape
        if rows <= have_rows and slots <= have:
            return
        size = (max(rows, have_rows), kv_heads, have if slots <= have else max(slots, 2 * have), dim)
        grown = []
        for own in (self.own_k, self.own_v):
            grown.append(own.new_zeros(size))
            grown[-1][:have_rows, :, :have] = own
        self.own_k, self.own_v = grown


@dataclass(frozen=True, slots=True)
class _Routing:
    """Query heads of R rows, grouped by prompt: [P KV, G rep] slots, G the largest number of rows of a prompt."""

    to_slots: Tensor
    """[P KV, G rep] index into the R H query heads; a slot of no row repeats some head."""
    to_heads: Tensor
    """[R H] index of each query head's slot."""


class FastDecode:
    """Rows of one model; see `DecodeState`."""

    def __init__(self, model: "FastModel") -> None:
        """No rows yet."""
        shape = model.shape
        self._model = model
        none = torch.zeros(0, shape.kv_heads, 0, 2 * len(shape.inv_freq))
        self._layers = [_LayerCache(none[:, 0], none[:, 0], none, none) for _ in range(shape.layers)]
        self.clear()

    @property
    def logits(self) -> Tensor:
        """[rows, V] of the next token."""
        return self._logits[: self._rows]

    def clear(self) -> None:
        """Remove all rows and reuse their slots: new memory would cost 5 to 8 % of a short batch."""
        self._rows = 0
        self._prompt_of_row = self._lengths = self._drawn = torch.zeros(0, dtype=torch.long)
        """[rows, at least MIN_ROWS where there are any]."""
        self._level: int | None = 0
        """Number of tokens drawn by every row; None if they differ."""
        self._widest = 0
        """Largest number of tokens drawn by a row."""
        self._bias = torch.zeros(0, 0)
        self._logits = torch.zeros(0, self._model.vocab_size)

    @torch.no_grad()
    def add(self, prompts: Sequence[Sequence[int]], prompt_of_row: Sequence[int], max_rows: int) -> None:
        """Prefill prompts and open a row for each entry of `prompt_of_row`, after the existing rows."""
        prefilled = prefill(self._model, prompts)
        before, known = self._rows, len(self._bias)
        new = torch.tensor(prompt_of_row)
        lengths = torch.tensor([len(prompt) for prompt in prompts])[new]
        self._rows = before + len(new)
        self._prompt_of_row = _at_least_min_rows(torch.cat([self._prompt_of_row[:before], new + known]))
        self._lengths = _at_least_min_rows(torch.cat([self._lengths[:before], lengths]))
        self._drawn = _at_least_min_rows(torch.cat([self._drawn[:before], torch.zeros_like(new)]))
        self._level = 0 if self._widest == 0 else None
        for cache in () if before else self._layers:
            cache.begin(max(max_rows, MIN_ROWS))
        slots = max(self._bias.shape[1], prefilled.bias.shape[1])
        self._bias = torch.cat([_padded(each, slots, -torch.inf) for each in (self._bias, prefilled.bias)])
        for cache, (k, v) in zip(self._layers, prefilled.caches, strict=True):
            cache.prompt_k = torch.cat([_padded(each, slots, 0.0) for each in (cache.prompt_k, k)])
            cache.prompt_v = torch.cat([_padded(each, slots, 0.0) for each in (cache.prompt_v, v)])
            cache.reserve(max(max_rows, MIN_ROWS), _OWN_SLOTS)
        self._reroute()
        ends = prefilled.ends.index_select(0, _at_least_min_rows(new))
        logits = logits_of(ends, self._model.weights, self._model.shape.eps)
        self._logits = torch.cat([self.logits[:before], logits]) if before else logits

    def select(self, sources: Tensor) -> None:
        """Drop, move or fork rows; only rows that change place are copied."""
        self._rows = len(sources)
        sources = _at_least_min_rows(sources)
        moved = (sources != torch.arange(len(sources))).nonzero()[:, 0]
        if len(moved) == 0 and len(sources) == len(self._prompt_of_row):
            return
        filled = _whole_blocks(self._widest, _OWN_BLOCK)
        for cache in self._layers:
            for own in (cache.own_k[:, :, :filled], cache.own_v[:, :, :filled]):
                own.index_copy_(0, moved, own.index_select(0, sources[moved]))
        self._lengths, self._prompt_of_row = self._lengths[sources], self._prompt_of_row[sources]
        self._drawn = self._drawn[sources]
        if self._level is None:
            self._widest = int(self._drawn.max())
            self._level = self._widest if int(self._drawn.min()) == self._widest else None
        self._drop_prompts()
        self._reroute()

    def _reroute(self) -> None:
        shape = self._model.shape
        self._routing = _route(self._prompt_of_row, len(self._bias), shape.heads, shape.kv_heads)

    def _drop_prompts(self) -> None:
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
        own = _whole_blocks(self._widest + 1, _OWN_BLOCK)
        late = None if self._level is not None else torch.arange(own) > self._drawn[:, None]
        for w, cache in zip(model.serving, self._layers, strict=True):
            cache.reserve(n, own)
            qkv = queries_keys_values(x, w, cos, sin, (shape.heads, shape.kv_heads), shape.eps)
            k, v = torch.split(qkv[:, shape.heads :], shape.kv_heads, 1)
            if self._level is not None:
                cache.own_k[:n, :, self._level], cache.own_v[:n, :, self._level] = k, v
            else:
                cache.own_k[torch.arange(n), :, self._drawn], cache.own_v[torch.arange(n), :, self._drawn] = k, v
            mixed = self._attend(qkv[:, : shape.heads].reshape(n * shape.heads, -1), cache, own, late)
            x = output_and_mlp(x, mixed.view(n, -1), w, shape.eps)
        self._drawn = self._drawn + 1
        self._widest += 1
        self._level = None if self._level is None else self._level + 1
        self._logits = logits_of(x, model.weights, shape.eps)

    def _attend(self, q: Tensor, cache: _LayerCache, own: int, late: Tensor | None) -> Tensor:
        routing, dim = self._routing, q.shape[1]
        n, kv = len(self._prompt_of_row), cache.own_k.shape[1]
        rep = q.shape[0] // (n * kv)
        own_k = cache.own_k[:n].view(n * kv, -1, dim)[:, :own]
        own_v = cache.own_v[:n].view(n * kv, -1, dim)[:, :own]
        prompts, slots = cache.prompt_k.shape[0] // kv, cache.prompt_k.shape[1]

        grouped = torch.bmm(embedding(routing.to_slots, q), cache.prompt_k.transpose(1, 2))
        grouped.view(prompts, -1, slots).add_(self._bias[:, None])
        scores = q.new_empty(len(q), slots + own)
        scores[:, :slots] = embedding(routing.to_heads, grouped.view(-1, slots))
        scores[:, slots:] = torch.bmm(q.view(n * kv, rep, dim), own_k.transpose(1, 2)).view(-1, own)
        if late is None:
            scores[:, slots + self._widest + 1 :] = -torch.inf
        else:
            scores.view(n, kv * rep, -1)[:, :, slots:].masked_fill_(late[:, None], -torch.inf)
        p = torch.softmax(scores.mul_(dim**-0.5), -1)

        mixed = weigh_blocks(p[:, slots:].view(n * kv, rep, own), own_v, _OWN_SUM).view(-1, dim)
        total = weigh_blocks(embedding(routing.to_slots, p[:, :slots]), cache.prompt_v, PROMPT_BLOCK)
        return mixed.add_(embedding(routing.to_heads, total.view(-1, dim)))


def _at_least_min_rows(rows: Tensor) -> Tensor:
    return rows if len(rows) >= MIN_ROWS else torch.cat([rows, rows[-1:].expand(MIN_ROWS - len(rows))])


def _padded(each: Tensor, slots: int, value: float) -> Tensor:
    """[n, slots, ...] with more slots of one value."""
    lacking = slots - each.shape[1]
    if not lacking:
        return each
    return torch.cat([each, each.new_full((len(each), lacking, *each.shape[2:]), value)], 1)


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
