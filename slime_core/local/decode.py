"""Sample responses for a batch of requests with a loaded model.

    request = DecodeRequest([1, 2, 3], 64, temperature=1.0, top_p=1.0, top_k=-1, stop_token_ids=frozenset({2}), seed=7)
    [result] = decode(model, [request])

Requests with equal texts so far share one row, which forks where their draws part; rows are dropped as they end. On
the fast path and with one thread, a request's tokens and log-probs are bitwise the same whatever else is in the batch.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from slime_core.local.model.base import LocalModel
from slime_core.local.sampling import Sampler


class Finish(enum.Enum):
    """Why a response ended; the values are those of the engine role."""

    STOP = "stop"
    """A stop token was drawn; it is the last token."""
    LENGTH = "length"
    """The token budget was used up."""
    ABORT = "abort"
    """Interrupted; the tokens so far are valid."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """One response to sample.

    Raises:
        ValueError: an empty prompt or a setting out of range.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    temperature: float
    """0 takes the likeliest token every time."""
    top_p: float
    top_k: int
    """-1 is off."""
    stop_token_ids: frozenset[int]
    seed: int
    """With the token's index, all that a draw depends on."""

    def __post_init__(self) -> None:
        checks = (
            (len(self.prompt) > 0, "prompt", "at least one token"),
            (self.max_new_tokens >= 1, "max_new_tokens", "at least 1"),
            (self.temperature >= 0, "temperature", "0 or more"),
            (0 < self.top_p <= 1, "top_p", "over 0 and at most 1"),
            (self.top_k == -1 or self.top_k >= 1, "top_k", "at least 1, or -1 for off"),
        )
        for good, name, expected in checks:
            if not good:
                raise ValueError(f"decode request with {name}={getattr(self, name)!r}; expected {expected}")


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """One response: tokens with the stop token, log-probs under the full tempered distribution."""

    tokens: list[int]
    log_probs: list[float]
    finish: Finish


def decode(
    model: LocalModel, requests: Sequence[DecodeRequest], *, abort: Callable[[], bool] | None = None
) -> list[DecodeResult]:
    """Sample every request to its end, in lockstep.

    Args:
        model: bound to the weights to sample with; they must not change meanwhile.
        requests: any mix of prompts and settings.
        abort: asked before each token; once true, unfinished responses end with what they have.

    Returns:
        A result for each request, in order.

    Raises:
        ValueError: a prompt with its token budget is longer than the model's longest text.
    """
    for request in requests:
        if len(request.prompt) + request.max_new_tokens > model.max_positions:
            raise ValueError(
                f"a prompt of {len(request.prompt)} tokens with max_new_tokens={request.max_new_tokens} exceeds the"
                f" model's {model.max_positions} positions; shorten one of them"
            )
    if not requests:
        return []
    return _Batch(model, requests).run(abort or (lambda: False))


class _Batch:
    """The state of one call. R requests; `_alive` are those still decoding, and `_row_of` the row each draws from."""

    def __init__(self, model: LocalModel, requests: Sequence[DecodeRequest]) -> None:
        prompts: dict[tuple[int, ...], int] = {}
        rows: dict[tuple[int, float, float, int], int] = {}
        row_of, firsts = [], list[DecodeRequest]()
        for request in requests:
            prompt = prompts.setdefault(tuple(request.prompt), len(prompts))
            settings = (prompt, request.temperature, request.top_p, request.top_k)
            row_of.append(rows.setdefault(settings, len(rows)))
            if len(rows) > len(firsts):
                firsts.append(request)
        self._state = model.start_decode(list(prompts), [prompt for prompt, *_ in rows], len(requests))
        self._sampler = Sampler(firsts)
        self._alive, self._row_of = np.arange(len(requests)), np.array(row_of)
        self._vocab = model.vocab_size
        self._seeds = np.array([request.seed % 2**64 for request in requests], dtype=np.uint64)
        self._budget = np.array([request.max_new_tokens for request in requests])
        self._stop_set, self._stops = _stop_table(requests, model.vocab_size)
        self._tokens = np.zeros((len(requests), int(self._budget.max())), dtype=np.int64)
        self._log_probs = np.zeros(self._tokens.shape, dtype=np.float32)
        self._lengths = np.zeros(len(requests), dtype=np.int64)
        self._finish = [Finish.ABORT] * len(requests)

    def run(self, abort: Callable[[], bool]) -> list[DecodeResult]:
        drawn = 0
        while len(self._alive) and not abort():
            if drawn:
                self._extend(self._tokens[self._alive, drawn - 1])
            self._draw(drawn)
            drawn += 1
        return [
            DecodeResult(self._tokens[i, :length].tolist(), self._log_probs[i, :length].tolist(), finish)
            for i, (length, finish) in enumerate(zip(self._lengths.tolist(), self._finish, strict=True))
        ]

    def _draw(self, index: int) -> None:
        """Draw token number `index` of each living request, and retire those that end with it."""
        alive = self._alive
        row_of = torch.from_numpy(self._row_of)
        drawn = self._sampler.draw(self._state.logits, row_of, self._seeds[alive], index)
        tokens = drawn[0].numpy()
        self._tokens[alive, index], self._log_probs[alive, index] = tokens, drawn[1].numpy()
        self._lengths[alive] = index + 1
        stopped = self._stops[self._stop_set[alive], tokens]
        full = self._budget[alive] == index + 1
        for request in alive[full]:
            self._finish[request] = Finish.LENGTH
        for request in alive[stopped]:
            self._finish[request] = Finish.STOP
        goes_on = ~(stopped | full)
        self._alive, self._row_of = alive[goes_on], self._row_of[goes_on]

    def _extend(self, tokens: NDArray[np.int64]) -> None:
        """One row for each distinct text, each a step further."""
        sources, next_tokens, self._row_of = _fork(self._row_of, tokens, self._vocab)
        self._state.select(torch.from_numpy(sources))
        self._sampler.select(torch.from_numpy(sources))
        self._state.step(torch.from_numpy(next_tokens))


def _fork(
    row_of: NDArray[np.int64], tokens: NDArray[np.int64], vocab: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows for the distinct (row, token) pairs: each new row's source and token, and the new row of each request.

    A row's first continuation stays where it is, if that is among the new rows; others fill what is free.
    """
    pairs, new_of = np.unique(row_of * vocab + tokens, return_inverse=True)
    parents = pairs // vocab
    stays = np.diff(parents, prepend=-1) != 0
    stays &= parents < len(pairs)
    place = np.empty_like(pairs)
    place[stays] = parents[stays]
    place[~stays] = np.setdiff1d(np.arange(len(pairs)), parents[stays], assume_unique=True)
    sources, next_tokens = np.empty_like(pairs), np.empty_like(pairs)
    sources[place], next_tokens[place] = parents, pairs % vocab
    return sources, next_tokens, place[new_of]


def _stop_table(requests: Sequence[DecodeRequest], vocab: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The stop set of each request, [R], and which tokens each set holds, [sets, V]."""
    sets: dict[frozenset[int], int] = {}
    set_of = np.array([sets.setdefault(request.stop_token_ids, len(sets)) for request in requests])
    table = np.zeros((len(sets), vocab), dtype=np.bool_)
    for stop_token_ids, index in sets.items():
        table[index, [token for token in stop_token_ids if token < vocab]] = True
    return set_of, table
