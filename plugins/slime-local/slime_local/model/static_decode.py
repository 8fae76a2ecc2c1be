"""Decoding on a GPU with a few fixed shapes, so that each step is one CUDA graph launch.

Launching takes longer than the small kernels: the 1,200 kernels of a 24-layer model's step took 41 ms on a shared
machine, of which an H200 computed for 4. Rows and slots are therefore padded to few sizes, and all tensors keep the
addresses that the recorded step of that size used.
Unlike in `FastDecode`, each row stores its prompt's keys and values, and the last bits depend on the other rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import embedding

from slime_local.model.inference import logits_of, output_and_mlp, prefill, queries_keys_values

if TYPE_CHECKING:
    from slime_local.model.fast import FastModel

_LEAST_ROWS, _LEAST_SLOTS = 4, 128
_MOST_GRAPHS = 64
"""Most recorded steps to keep; some hundred kilobytes each."""


class StaticDecode:
    """Rows of one model; see `DecodeState`."""

    def __init__(self, model: "FastModel") -> None:
        """No rows yet."""
        shape = model.shape
        self._model = model
        self._cache = torch.zeros(shape.layers, 2, 0, shape.kv_heads, 0, 2 * len(shape.inv_freq))
        """[layers, 2, rows, KV, slots, D]: keys and values; free slots hold finite values, as masked products need."""
        self._tokens = self._lengths = torch.zeros(0, dtype=torch.long)
        """[rows] the newest token, and how many come before it; 0 where there is no row."""
        self._logits = self._out = torch.zeros(0, model.vocab_size)
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._recorded_of = 0
        """Address of the weights that the recorded steps read."""
        self._rows = 0

    @property
    def logits(self) -> Tensor:
        """[rows, V] of the next token."""
        return self._logits[: self._rows]

    def clear(self) -> None:
        """Remove all rows; their slots and the recorded steps are reused."""
        self._rows = 0
        self._lengths.zero_()

    @torch.no_grad()
    def add(self, prompts: Sequence[Sequence[int]], prompt_of_row: Sequence[int], max_rows: int) -> None:
        """Prefill prompts and open a row for each entry of `prompt_of_row`, after the existing rows."""
        prefilled = prefill(self._model, prompts)
        before, now, slots = self._rows, self._rows + len(prompt_of_row), prefilled.bias.shape[1]
        self._reserve(max(max_rows, now), slots)
        new = torch.tensor(prompt_of_row)
        for cache, both in zip(self._cache, prefilled.caches, strict=True):
            for kept, made in zip(cache, both, strict=True):
                kept[before:now, :, :slots] = made.view(len(prompts), -1, *made.shape[1:])[new]
        self._lengths[before:now] = torch.tensor([len(prompts[prompt]) for prompt in prompt_of_row])
        logits = logits_of(prefilled.ends.index_select(0, new), self._model.weights, self._model.shape.eps)
        self._logits = torch.cat([self.logits, logits]) if before else logits
        self._rows = now

    def select(self, sources: Tensor) -> None:
        """Drop, move or fork rows; only rows that change place are copied."""
        self._rows = now = len(sources)
        moved = (sources != torch.arange(now)).nonzero()[:, 0]
        if len(moved):
            filled = int(self._lengths.max())
            for cache in self._cache:
                for each in (cache[0, :, :, :filled], cache[1, :, :, :filled]):
                    each.index_copy_(0, moved, each.index_select(0, sources[moved]))
            self._lengths[:now] = self._lengths[sources]
        self._lengths[now:] = 0

    @torch.no_grad()
    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        longest = int(self._lengths.max()) + 1
        self._reserve(self._rows, longest)
        self._tokens[: self._rows] = tokens
        size = _padded(self._rows, _LEAST_ROWS), _padded(longest, _LEAST_SLOTS)
        if self._lengths.is_cuda:
            self._replay(*size)
        else:
            self._forward(*size)
        self._lengths[: self._rows] += 1
        self._logits = self._out

    def _reserve(self, rows: int, slots: int) -> None:
        layers, two, have_rows, kv_heads, have, dim = self._cache.shape
        rows, slots = _padded(rows, _LEAST_ROWS), _padded(slots, _LEAST_SLOTS)
        if rows <= have_rows and slots <= have:
            return
        rows, slots = max(rows, have_rows), max(slots, have)
        grown = self._cache.new_zeros(layers, two, rows, kv_heads, slots, dim)
        grown[:, :, :have_rows, :, :have] = self._cache
        self._cache = grown
        if rows > have_rows:
            more = rows - have_rows
            self._tokens, self._lengths = (
                torch.cat([each, each.new_zeros(more)]) for each in (self._tokens, self._lengths)
            )
            self._out = self._out.new_empty(rows, self._out.shape[1])
        self._graphs.clear()

    def _replay(self, rows: int, slots: int) -> None:
        if self._recorded_of != self._model.flat.data_ptr() or len(self._graphs) > _MOST_GRAPHS:
            self._graphs.clear()
            self._recorded_of = self._model.flat.data_ptr()
        if (rows, slots) not in self._graphs:
            # Run once unrecorded: libraries choose and load kernels at a first call. The graph overwrites its output.
            self._forward(rows, slots)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=next(iter(self._graphs.values())).pool() if self._graphs else None):
                self._forward(rows, slots)
            self._graphs[rows, slots] = graph
        self._graphs[rows, slots].replay()

    def _forward(self, rows: int, slots: int) -> None:
        model, shape = self._model, self._model.shape
        at, every, kv_heads = self._lengths[:rows], torch.arange(rows), shape.kv_heads
        angles = torch.outer(at.float(), shape.inv_freq)[:, None]
        cos, sin = angles.cos() * shape.rope_scale, angles.sin() * shape.rope_scale
        later = torch.arange(slots) > at[:, None]
        bias = torch.zeros(rows, slots).masked_fill_(later, -torch.inf).repeat_interleave(kv_heads, 0)[:, None]
        x = embedding(self._tokens[:rows], model.weights.embed)
        for w, cache in zip(model.serving, self._cache, strict=True):
            qkv = queries_keys_values(x, w, cos, sin, (shape.heads, kv_heads), shape.eps)
            k, v = torch.split(qkv[:, shape.heads :], kv_heads, 1)
            cache[0][every, :, at], cache[1][every, :, at] = k, v
            q = qkv[:, : shape.heads].reshape(rows * kv_heads, -1, qkv.shape[2])
            keys, values = (each[:rows].view(len(q), -1, qkv.shape[2])[:, :slots] for each in cache)
            scores = torch.baddbmm(bias, q, keys.transpose(1, 2), alpha=float(qkv.shape[2] ** -0.5))
            mixed = torch.bmm(torch.softmax(scores, -1), values)
            x = output_and_mlp(x, mixed.view(rows, -1), w, shape.eps)
        self._out[:rows] = logits_of(x, model.weights, shape.eps)


def _padded(size: int, least: int) -> int:
    """The next of `least` times 1, 2, 3, 4, 6, 8, 12, 16, ...: a third too large at most, and few of them."""
    whole = -(-size // least)
    power = 1 << max(0, whole.bit_length() - 1)
    return least * next(each for each in (power, power + power // 2, 2 * power) if each >= whole)
