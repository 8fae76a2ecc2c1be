"""Choose next tokens so that a draw depends on its own row alone: one uniform for each (seed, token index).

    uniform(np.array([7], dtype=np.uint64), 0)      # the first draw of seed 7, in any batch

The uniform comes from the finalizer of SplitMix64 (Steele, Lea, Flood 2014), used as a hash of a counter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slime_core.roles import SamplingParams


@dataclass(frozen=True, slots=True)
class ShapedRow:
    """Sampling request of one row."""

    sampling: SamplingParams
    """Its settings."""
    generated: tuple[int, ...]
    """Tokens that an interrupted call generated earlier."""
    stops: frozenset[int]
    """Stop tokens, which are not drawn before `min_new_tokens`."""


class Shaping:
    """Penalties of rows by their tokens so far; rows are dropped, moved and forked as in a `DecodeState`."""

    def __init__(self, vocab: int) -> None:
        self._vocab, self._rows = vocab, 0
        self._on = False
        """Whether any row changes logits; until then no state is kept."""

    def add(self, rows: Sequence[ShapedRow]) -> None:
        """Append rows."""
        before, self._rows = self._rows, self._rows + len(rows)
        if not self._on:
            if not any(row.sampling.shapes_logits for row in rows):
                return
            self._on = True
            self._take([ShapedRow(SamplingParams(1), (), frozenset())] * before, [])
        self._take(rows, self._kept)

    def _take(self, rows: Sequence[ShapedRow], kept: Sequence[Tensor]) -> None:
        params = [row.sampling for row in rows]
        bias, counts = torch.zeros(len(rows), self._vocab), torch.zeros(len(rows), self._vocab)
        stops = torch.zeros(len(rows), self._vocab, dtype=torch.bool)
        for index, row in enumerate(rows):
            for token, each in row.sampling.logit_bias.items():
                bias[index, token] = each
            stops[index, [token for token in row.stops if token < self._vocab]] = True
            if row.generated:
                counts[index] = torch.bincount(torch.tensor(row.generated), minlength=self._vocab)
        new = (
            torch.tensor([float(each.repetition_penalty) for each in params])[:, None],
            torch.tensor([float(each.presence_penalty) for each in params])[:, None],
            torch.tensor([float(each.frequency_penalty) for each in params])[:, None],
            torch.tensor([each.min_new_tokens for each in params], dtype=torch.long)[:, None],
            bias,
            stops,
            counts,
        )
        self._kept = [torch.cat(both) for both in zip(kept, new, strict=True)] if kept else list(new)

    def select(self, sources: Tensor) -> None:
        """Make row i continue row `sources[i]`."""
        self._rows = len(sources)
        if self._on:
            self._kept = [each[sources] for each in self._kept]

    def append(self, tokens: Tensor) -> None:
        """Record one more token of each row, [rows]."""
        if self._on:
            _, _, _, min_left, _, _, counts = self._kept
            counts[torch.arange(len(tokens)), tokens] += 1
            min_left -= 1

    def shape(self, logits: Tensor) -> Tensor:
        """Logits [rows, V] to draw from, given the model's logits."""
        if not self._on:
            return logits
        repetition, presence, frequency, min_left, bias, stops, counts = self._kept
        seen = counts > 0
        shaped = logits - frequency * counts - presence * seen
        scaled = torch.where(shaped < 0, shaped * repetition, shaped / repetition)
        shaped = torch.where(seen, scaled, shaped) + bias
        return shaped.masked_fill(stops & (min_left > 0), -torch.inf)


Decode = Callable[[Sequence[int]], str]


class StopTexts:
    """The texts that end one response.

    Args:
        texts: in the order in which they are looked for.
        decode: ids to text, special tokens included: a stop text may be one.
    """

    def __init__(self, texts: Sequence[str], decode: Decode) -> None:
        self._texts = tuple(texts)
        self._decode = decode
        # A token is a byte at least, so the text that a token completes began at most so many tokens ago; the spare
        # ones are for characters of several bytes that the first token of the window may cut in two.
        self._window = max((len(text.encode()) for text in texts), default=0) + SPARE

    def completed(self, tokens: Sequence[int]) -> str | None:
        """The first stop text in the end of a response, given all its tokens so far; None if there is none."""
        tail = self._decode(list(tokens[-self._window :]))
        return next((text for text in self._texts if text in tail), None)


SPARE = 8
"""Tokens decoded in addition to the ones that can hold the longest stop text."""


_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(seeds: NDArray[np.uint64], index: NDArray[np.int64] | int) -> NDArray[np.float32]:
    """[rows] in [0, 1) with 24 bits, a pure function of each row's seed and the token's index."""
    counter = np.uint64(_GOLDEN) * (np.atleast_1d(index).astype(np.uint64) + np.uint64(1))
    bits = _mix(_mix(seeds) + counter) >> np.uint64(40)
    return bits.astype(np.float32) * np.float32(2.0**-24)


class Sampler:
    """The sampling settings of rows, as tensors; several requests may draw from one row.

    Temperature 0 takes the likeliest token; its log-probs are computed at temperature 1.
    """

    def __init__(self) -> None:
        self._temperature = self._top_p = self._min_p = torch.zeros(0, 1)
        self._top_k = torch.zeros(0, 1, dtype=torch.long)
        self._greedy = torch.zeros(0, dtype=torch.bool)

    def add(self, rows: Sequence[SamplingParams]) -> None:
        """Append rows."""
        temperature = torch.tensor([[float(each.temperature)] for each in rows])
        self._greedy = torch.cat([self._greedy, temperature[:, 0] == 0])
        self._temperature = torch.cat([self._temperature, torch.where(temperature == 0, 1.0, temperature)])
        self._top_p = torch.cat([self._top_p, torch.tensor([[float(each.top_p)] for each in rows])])
        self._top_k = torch.cat([self._top_k, torch.tensor([[each.top_k] for each in rows])])
        self._min_p = torch.cat([self._min_p, torch.tensor([[float(each.min_p)] for each in rows])])

    def select(self, sources: Tensor) -> None:
        """Give row i the settings of row `sources[i]`."""
        self._greedy, self._temperature = self._greedy[sources], self._temperature[sources]
        self._top_p, self._top_k, self._min_p = self._top_p[sources], self._top_k[sources], self._min_p[sources]

    def draw(
        self, logits: Tensor, shaped: Tensor, row_of: Tensor, seeds: NDArray[np.uint64], index: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Token number `index` of each request.

        Args:
            logits: [rows, V] of the model.
            shaped: [rows, V] what is drawn from: `logits` itself, or with penalties and biases.
            row_of: [requests] the row each request draws from.
            seeds: [requests].
            index: [requests] how many tokens each has drawn.

        Returns:
            Token ids [requests] and their log-probs [requests] under the model's full tempered distribution, before
            penalties, biases, top-k, top-p and min-p.
        """
        log_probs = torch.log_softmax(logits / self._temperature, -1)
        drawn_from = log_probs if shaped is logits else torch.log_softmax(shaped / self._temperature, -1)
        mass = self._truncate(drawn_from.exp()).cumsum(-1)[row_of]
        whole = mass[:, -1:]
        point = torch.as_tensor(uniform(seeds, index))[:, None] * whole
        # If the product was rounded up to the whole mass, no token would lie beyond it.
        point = torch.minimum(point, whole.nextafter(torch.zeros_like(whole)))
        # The first token whose mass lies beyond the point; one of probability 0 never is.
        tokens = torch.searchsorted(mass, point, right=True)[:, 0]
        if bool(self._greedy.any()):
            tokens = torch.where(self._greedy[row_of], shaped.argmax(-1)[row_of], tokens)
        return tokens, log_probs[row_of, tokens]

    def _truncate(self, probs: Tensor) -> Tensor:
        """Zero probabilities outside top-k, top-p and min-p; sorts only if one of them is set."""
        cut = ((self._top_p < 1) | (self._top_k > 0) | (self._min_p > 0))[:, 0]
        if not bool(cut.any()):
            return probs
        some, top_p, top_k = probs[cut], self._top_p[cut], self._top_k[cut]
        ordered, order = some.sort(dim=-1, descending=True, stable=True)
        unlikely = ordered < self._min_p[cut] * ordered[:, :1]
        rank = torch.arange(probs.shape[1])
        outside = (top_k > 0) & (rank >= top_k)
        ordered = ordered.masked_fill(outside, 0.0)
        # As in nucleus sampling after top-k: keep the smallest head that holds top_p of what is left.
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill((top_p < 1) & (before >= top_p * ordered.sum(-1, keepdim=True)), 0.0)
        probs[cut] = torch.zeros_like(some).scatter_(1, order, ordered.masked_fill_(unlikely, 0.0))
        return probs
