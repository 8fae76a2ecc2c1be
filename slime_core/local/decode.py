"""Sample responses for a batch of requests with a loaded model.

    request = DecodeRequest([1, 2, 3], 64, temperature=1.0, top_p=1.0, top_k=-1, stop_token_ids=frozenset({2}), seed=7)
    [result] = decode(model, [request])

Equal prompts are computed once, finished rows are dropped as they come. On the fast path and with one thread, a
request's tokens and log-probs are bitwise the same whatever else is in the batch.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

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
    """The rows of one call, by request; `rows` are the requests still decoding, ordered by prompt."""

    def __init__(self, model: LocalModel, requests: Sequence[DecodeRequest]) -> None:
        self._requests = requests
        prompts: dict[tuple[int, ...], int] = {}
        prompt_of = [prompts.setdefault(tuple(request.prompt), len(prompts)) for request in requests]
        self._rows = sorted(range(len(requests)), key=prompt_of.__getitem__)
        self._state = model.start_decode(list(prompts), [prompt_of[row] for row in self._rows])
        self._sampler = Sampler([requests[row] for row in self._rows])
        self._tokens: list[list[int]] = [[] for _ in requests]
        self._log_probs: list[list[float]] = [[] for _ in requests]
        self._finish = dict[int, Finish]()

    def run(self, abort: Callable[[], bool]) -> list[DecodeResult]:
        drawn = 0
        waiting = 0  # rows that ended but are still carried along
        while not abort():
            tokens, log_probs = self._sampler.draw(self._state.logits, drawn)
            drawn += 1
            waiting += self._append(tokens.tolist(), log_probs.tolist(), drawn)
            if waiting == len(self._rows):
                break
            # Dropping rows copies the caches: worth it when a fifth is idle.
            if waiting > len(self._rows) // 5:
                alive = torch.tensor([i for i, row in enumerate(self._rows) if row not in self._finish])
                self._rows = [self._rows[i] for i in alive.tolist()]
                self._state.keep(alive)
                self._sampler.keep(alive)
                tokens, waiting = tokens[alive], 0
            self._state.step(tokens)
        return [
            DecodeResult(tokens, log_probs, self._finish.get(row, Finish.ABORT))
            for row, (tokens, log_probs) in enumerate(zip(self._tokens, self._log_probs, strict=True))
        ]

    def _append(self, tokens: list[int], log_probs: list[float], drawn: int) -> int:
        """Record one draw of every row; how many ended with it."""
        ended = 0
        for row, token, log_prob in zip(self._rows, tokens, log_probs, strict=True):
            if row in self._finish:
                continue
            self._tokens[row].append(token)
            self._log_probs[row].append(log_prob)
            request = self._requests[row]
            if token in request.stop_token_ids:
                self._finish[row] = Finish.STOP
            elif drawn == request.max_new_tokens:
                self._finish[row] = Finish.LENGTH
            ended += row in self._finish
        return ended
