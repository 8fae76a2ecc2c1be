"""Decoder: requests come at any time, and each is answered when it ends.

    decoder = Decoder(model, Ends(eos_token_ids))
    decoder.admit({0: GenerateRequest(prompt, SamplingParams(64), seed=7)})
    while decoder.busy:
        for number, result in decoder.step().items(): ...

On the fast path and with one thread, a request's tokens and log-probs are bitwise the same whatever is decoded beside
it, and whenever that was admitted.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from slime_core.local.batch import Batch, DecodeResult, Ends
from slime_core.local.model.base import LocalModel
from slime_core.roles import FinishReason, GenerateRequest


class Decoder:
    """What one model is decoding; the weights that it is bound to must not change while `busy`."""

    def __init__(self, model: LocalModel, ends: Ends) -> None:
        self._model, self._ends = model, ends
        self._waiting: dict[int, GenerateRequest] = {}
        self._batch = Batch(model, ends)

    @property
    def busy(self) -> bool:
        """Whether a request is still decoding, or about to."""
        return bool(self._waiting or self._batch.numbers)

    def admit(self, requests: Mapping[int, GenerateRequest]) -> None:
        """Take up requests with the next step, each under a number.

        Raises:
            ValueError: an empty prompt, or one that with its token budget is longer than the model's longest text; a
                budget of 0. None of them is taken up.
        """
        for request in requests.values():
            self._check(request)
        self._waiting |= requests

    def step(self) -> dict[int, DecodeResult]:
        """Draw one token for every request; returns those that ended with it.

        Raises:
            ValueError: a stop text without a tokenizer.
        """
        if self._batch.numbers:
            self._batch.advance()
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._batch.add(waiting)
        return self._batch.draw()

    def so_far(self, numbers: Collection[int]) -> dict[int, DecodeResult]:
        """What some of the requests have made until now, as if they were aborted."""
        waiting = self._waiting.keys() & set(numbers)
        return self._batch.so_far(numbers) | dict.fromkeys(waiting, DecodeResult([], [], FinishReason.ABORT))

    def drop(self, numbers: Collection[int]) -> None:
        """Go on without some requests; those that have ended are passed over."""
        self._waiting = {number: each for number, each in self._waiting.items() if number not in numbers}
        self._batch.drop(numbers)

    def abort(self) -> dict[int, DecodeResult]:
        """End every request with what it has."""
        numbers = [*self._waiting, *self._batch.numbers]
        ended = self.so_far(numbers)
        self.drop(numbers)
        return ended

    def _check(self, request: GenerateRequest) -> None:
        asked, room = request.sampling.max_new_tokens, self._model.max_positions
        if not request.prompt:
            raise ValueError("a request with an empty prompt; expected at least one token")
        if asked < 1:
            raise ValueError(f"a request with max_new_tokens={asked}; expected at least 1")
        if len(request.prompt) + asked > room:
            raise ValueError(
                f"a prompt of {len(request.prompt)} tokens with max_new_tokens={asked} exceeds the model's {room}"
                " positions; shorten one of them"
            )


def decode(
    model: LocalModel,
    requests: Sequence[GenerateRequest],
    ends: Ends,
    *,
    abort: Callable[[], bool] = lambda: False,
) -> list[DecodeResult]:
    """Sample every request to its end; see `Decoder`.

    Args:
        model: bound to the weights to sample with; they must not change meanwhile.
        requests: any mix of prompts and settings.
        ends: what ends a response.
        abort: asked before each token; once true, unfinished responses end with what they have.

    Returns:
        A result for each request, in order.
    """
    decoder = Decoder(model, ends)
    decoder.admit(dict(enumerate(requests)))
    results: dict[int, DecodeResult] = {}
    while decoder.busy:
        results |= decoder.abort() if abort() else decoder.step()
    return [results[number] for number in range(len(requests))]
