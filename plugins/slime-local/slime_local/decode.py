"""Decoder: requests come at any time, and each is answered when it ends.

    decoder = Decoder(model, StopConditions(eos_token_ids))
    decoder.admit({0: GenerateRequest(prompt, SamplingParams(64), seed=7)})
    while decoder.busy:
        for number, result in decoder.step().items(): ...

On the fast path with one thread, a request's tokens and log-probs are bitwise independent of the other requests in
the batch and of when they were admitted.
"""

import math
from collections.abc import Collection, Mapping

from slime_core.roles import FinishReason, GenerateRequest
from slime_local.batch import Batch, DecodeResult, StopConditions
from slime_local.model.base import LocalModel

REFILL = 0.75
"""Fraction of the cache to which a full decoder drains before it admits more: each prefill copies the caches."""


class Decoder:
    """Requests that one model decodes; its weights must not change while `busy`."""

    def __init__(self, model: LocalModel, conditions: StopConditions, room: int | None = None) -> None:
        """Decode at most `room` tokens at once, prompts and padding included, but always at least one request."""
        self._model, self._conditions = model, conditions
        self._room = math.inf if room is None else room
        self._is_full = False
        self._waiting: dict[int, GenerateRequest] = {}
        self._batch = Batch(model, conditions)

    @property
    def busy(self) -> bool:
        """Whether a request is still decoding, or about to."""
        return bool(self._waiting or self._batch.numbers)

    @property
    def active(self) -> list[int]:
        """Numbers of the requests that are being decoded; others may wait for room."""
        return self._batch.numbers

    def admit(self, requests: Mapping[int, GenerateRequest]) -> None:
        """Queue requests, each under a number, for the next step.

        Raises:
            ValueError: an empty prompt, a budget of 0, or a prompt that with its budget exceeds the model's positions.
                None of the requests is admitted.
        """
        for request in requests.values():
            self._check(request)
        self._waiting |= requests

    def clear(self) -> None:
        """Free all caches; no request may be decoding."""
        self._batch = Batch(self._model, self._conditions)

    def step(self) -> dict[int, DecodeResult]:
        """Draw one token for every request; returns the results of requests that ended with it.

        Raises:
            ValueError: a stop text without a tokenizer.
        """
        if self._batch.numbers:
            self._batch.advance()
        if fresh := self._fitting():
            self._batch.add(fresh)
        return self._batch.draw()

    def _fitting(self) -> dict[int, GenerateRequest]:
        """Take waiting requests that fit; after the cache was full, only once a quarter of it is free."""
        if not self._waiting:
            return {}
        rows, prompt, budget = self._batch.padded_size
        if self._is_full and rows * (prompt + budget) > REFILL * self._room:
            return {}
        self._is_full = False
        fresh = dict[int, GenerateRequest]()
        for number, request in self._waiting.items():
            rows, prompt = rows + 1, max(prompt, len(request.prompt))
            budget = max(budget, request.sampling.max_new_tokens)
            if rows > 1 and rows * (prompt + budget) > self._room:
                self._is_full = True
                break
            fresh[number] = request
        for number in fresh:
            del self._waiting[number]
        return fresh

    def partial_results(self, numbers: Collection[int]) -> dict[int, DecodeResult]:
        """Results so far of some requests, as if they were aborted now."""
        waiting = self._waiting.keys() & set(numbers)
        return self._batch.partial_results(numbers) | dict.fromkeys(waiting, DecodeResult([], [], FinishReason.ABORT))

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel requests; ignores the ones that have ended."""
        self._waiting = {number: each for number, each in self._waiting.items() if number not in numbers}
        self._batch.drop(numbers)

    def abort(self) -> dict[int, DecodeResult]:
        """End every request with its tokens so far."""
        numbers = [*self._waiting, *self._batch.numbers]
        ended = self.partial_results(numbers)
        self.drop(numbers)
        return ended

    def _check(self, request: GenerateRequest) -> None:
        budget, room = request.sampling.max_new_tokens, self._model.max_positions
        if not request.prompt:
            raise ValueError("a request has an empty prompt; expected at least one token")
        if budget < 1:
            raise ValueError(f"a request has max_new_tokens = {budget}; expected at least 1")
        if len(request.prompt) + budget > room:
            raise ValueError(
                f"a prompt of {len(request.prompt)} tokens with max_new_tokens = {budget} exceeds the model's {room}"
                " positions; shorten one of them"
            )
