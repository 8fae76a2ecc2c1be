"""Batch: requests decoded together, one token each per step; more can be added between two steps.

    batch = Batch(model, StopConditions(frozenset({2})))
    batch.add({0: request, 1: other})
    batch.draw()                                    # the first token of each; results of requests that ended
    batch.advance()                                 # one forward pass for the requests still running
    batch.draw()

Requests with equal tokens so far share one row, which forks when their draws differ; finished rows are dropped.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from slime_core.roles import FinishReason, GenerateRequest
from slime_local.model.base import LocalModel
from slime_local.sampling import Decode, Sampler, ShapedRow, Shaping, StopTexts


@dataclass(frozen=True, slots=True)
class StopConditions:
    """Stop tokens of the model, in addition to each request's, and the decoding for stop texts."""

    eos_token_ids: frozenset[int] = frozenset()
    """The model's stop tokens."""
    decode: Decode | None = None
    """Ids to text, special tokens included; needed by requests with `stop`."""

    def stop_token_ids(self, request: GenerateRequest) -> frozenset[int]:
        """Every stop token of a request."""
        return request.sampling.stop_token_ids | self.eos_token_ids


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """One response: tokens with the stop token, log-probs under the full tempered distribution."""

    tokens: list[int]
    log_probs: list[float]
    finish: FinishReason
    matched: int | str | None = None
    """The stop token or text that ended it."""


class Batch:
    """The state of R active requests, each under a number; request r draws from row `_row_of[r]`."""

    def __init__(self, model: LocalModel, conditions: StopConditions) -> None:
        self._model, self._conditions = model, conditions
        self._texts: dict[int, tuple[tuple[int, ...], StopTexts]] = {}
        """Of requests with stop texts: tokens of an interrupted call, and the texts."""
        self._numbers = np.zeros(0, dtype=np.int64)
        self._state = model.start_decode()
        self._clear()

    @property
    def numbers(self) -> list[int]:
        """Numbers of the running requests."""
        active: list[int] = self._numbers.tolist()
        return active

    @property
    def padded_size(self) -> tuple[int, int, int]:
        """Number of running requests, longest prompt and largest budget in tokens; all are padded to these."""
        return len(self._numbers), int(self._prompt.max(initial=0)), int(self._budget.max(initial=0))

    def _clear(self) -> None:
        vocab, none = self._model.vocab_size, np.zeros(0, dtype=np.int64)
        self._state.clear()
        self._rows = 0
        self._sampler, self._shaping = Sampler(), Shaping(vocab)
        self._row_of = self._drawn = self._prompt = self._budget = self._stop_set = none
        self._seeds = none.astype(np.uint64)
        self._slot = none  # of the request's tokens in `_tokens` and `_log_probs`
        self._tokens, self._log_probs = np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=np.float32)
        self._stop_sets: dict[frozenset[int], int] = {}
        self._stops = np.zeros((0, vocab), dtype=np.bool_)

    def add(self, requests: Mapping[int, GenerateRequest]) -> None:
        """Add requests and compute their prompts, shared prefixes once.

        Raises:
            ValueError: a stop text without a tokenizer; nothing is added.
        """
        texts = _stop_texts(requests, self._conditions)
        if not len(self._numbers):
            self._clear()
        given = list(requests.values())
        prompts: dict[tuple[int, ...], int] = {}
        rows: dict[Hashable, int] = {}
        row_of, firsts, prompt_of_row = [], list[GenerateRequest](), list[int]()
        for request in given:
            prompt = prompts.setdefault(tuple(request.prompt), len(prompts))
            row_of.append(self._rows + rows.setdefault((prompt, *_row_key(request, self._conditions)), len(rows)))
            if len(rows) > len(firsts):
                firsts.append(request)
                prompt_of_row.append(prompt)
        self._state.add(list(prompts), prompt_of_row, len(self._numbers) + len(given))
        self._rows += len(firsts)
        self._sampler.add([each.sampling for each in firsts])
        self._shaping.add([_shaped_row(each, self._conditions) for each in firsts])
        self._texts |= texts
        self._reserve([each.sampling.max_new_tokens for each in given])
        self._numbers = np.append(self._numbers, np.array(list(requests), dtype=np.int64))
        self._row_of = np.append(self._row_of, row_of)
        self._drawn = np.append(self._drawn, np.zeros(len(given), dtype=np.int64))
        self._prompt = np.append(self._prompt, [len(each.prompt) for each in given])
        self._seeds = np.append(self._seeds, np.array([each.seed % 2**64 for each in given], dtype=np.uint64))
        self._stop_set = np.append(self._stop_set, [self._stop_set_of(each) for each in given])

    def _reserve(self, budgets: Sequence[int]) -> None:
        active = len(self._slot)
        self._budget = np.append(self._budget, budgets)
        for name in ("_tokens", "_log_probs"):
            old = getattr(self, name)
            new = np.zeros((len(self._budget), int(self._budget.max())), dtype=old.dtype)
            width = min(new.shape[1], old.shape[1])
            new[:active, :width] = old[self._slot, :width]
            setattr(self, name, new)
        self._slot = np.arange(len(self._budget))

    def _stop_set_of(self, request: GenerateRequest) -> int:
        stops = frozenset() if request.sampling.ignore_eos else self._conditions.stop_token_ids(request)
        if stops not in self._stop_sets:
            self._stop_sets[stops] = len(self._stops)
            row = np.zeros((1, self._model.vocab_size), dtype=np.bool_)
            row[0, [token for token in stops if token < self._model.vocab_size]] = True
            self._stops = np.concatenate([self._stops, row])
        return self._stop_sets[stops]

    def partial_results(self, numbers: Collection[int]) -> dict[int, DecodeResult]:
        """Results so far of some running requests."""
        places = np.flatnonzero(np.isin(self._numbers, list(numbers)))
        return {int(self._numbers[place]): self._result(place, FinishReason.ABORT) for place in places.tolist()}

    def drop(self, numbers: Collection[int]) -> None:
        """Remove requests."""
        self._keep(~np.isin(self._numbers, list(numbers)))

    def draw(self) -> dict[int, DecodeResult]:
        """Draw the next token of every request; returns and removes the requests that end with it."""
        logits, row_of = self._state.logits, torch.as_tensor(self._row_of)
        shaped = self._shaping.shape(logits)
        drawn = self._sampler.draw(logits, shaped, row_of, self._seeds, self._drawn)
        tokens, log_probs = (each.cpu().numpy() for each in drawn)
        self._tokens[self._slot, self._drawn], self._log_probs[self._slot, self._drawn] = tokens, log_probs
        self._drawn = self._drawn + 1
        stopped = self._stops[self._stop_set, tokens]
        full = self._budget == self._drawn
        ended = {
            int(self._numbers[place]): self._result(place, FinishReason.LENGTH)
            for place in np.flatnonzero(full).tolist()
        }
        for place in np.flatnonzero(stopped).tolist():
            ended[int(self._numbers[place])] = self._result(place, FinishReason.STOP, int(tokens[place]))
        over = stopped | full
        for place, text in self._completed_texts(stopped).items():
            ended[int(self._numbers[place])] = self._result(place, FinishReason.STOP, text)
            over[place] = True
        if ended:
            self._keep(~over)
        return ended

    def _completed_texts(self, stopped: NDArray[np.bool_]) -> dict[int, str]:
        """Completed stop texts by request index, except of requests that a stop token ended."""
        found: dict[int, str] = {}
        for place, number in enumerate(self._numbers.tolist()) if self._texts else ():
            if number in self._texts and not stopped[place]:
                earlier, texts = self._texts[number]
                tokens = self._tokens[self._slot[place], : self._drawn[place]].tolist()
                if text := texts.completed([*earlier, *tokens]):
                    found[place] = text
        return found

    def _result(self, place: int, finish: FinishReason, matched: int | str | None = None) -> DecodeResult:
        slot, length = self._slot[place], self._drawn[place]
        log_probs = self._log_probs[slot, :length].tolist()
        return DecodeResult(self._tokens[slot, :length].tolist(), log_probs, finish, matched)

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        for number in self._numbers[~kept].tolist():
            self._texts.pop(number, None)
        self._numbers, self._row_of, self._drawn = self._numbers[kept], self._row_of[kept], self._drawn[kept]
        self._seeds, self._prompt, self._budget = self._seeds[kept], self._prompt[kept], self._budget[kept]
        self._stop_set, self._slot = self._stop_set[kept], self._slot[kept]

    def advance(self) -> None:
        """Fork rows so that each distinct text has one, and compute the next logits; call after every request drew."""
        tokens = self._tokens[self._slot, self._drawn - 1]
        sources, next_tokens, self._row_of = _fork(self._row_of, tokens, self._model.vocab_size)
        selected, appended = torch.as_tensor(sources), torch.as_tensor(next_tokens)
        self._rows = len(sources)
        self._state.select(selected)
        self._sampler.select(selected)
        self._shaping.select(selected)
        self._shaping.append(appended)
        self._state.step(appended)


def _row_key(request: GenerateRequest, conditions: StopConditions) -> tuple[Hashable, ...]:
    """All that a draw depends on except text and seed; equal for all requests of a row."""
    each = request.sampling
    key: tuple[Hashable, ...] = (each.temperature, each.top_p, each.top_k, each.min_p)
    if not each.shapes_logits:
        return key
    penalties = (each.repetition_penalty, each.presence_penalty, each.frequency_penalty)
    min_tokens = (each.min_new_tokens, conditions.stop_token_ids(request) if each.min_new_tokens else None)
    return (*key, *penalties, tuple(sorted(each.logit_bias.items())), *min_tokens, request.num_generated)


def _shaped_row(request: GenerateRequest, conditions: StopConditions) -> ShapedRow:
    return ShapedRow(request.sampling, _generated_earlier(request), conditions.stop_token_ids(request))


def _generated_earlier(request: GenerateRequest) -> tuple[int, ...]:
    return tuple(request.prompt[len(request.prompt) - request.num_generated :])


def _fork(
    row_of: NDArray[np.int64], tokens: NDArray[np.int64], vocab: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """New rows for the distinct (row, token) pairs: source and token of each, and the new row of each request.

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


def _stop_texts(
    requests: Mapping[int, GenerateRequest], conditions: StopConditions
) -> dict[int, tuple[tuple[int, ...], StopTexts]]:
    found = {}
    for number, request in requests.items():
        if request.sampling.stop:
            if conditions.decode is None:
                raise ValueError("a request with `stop` needs a tokenizer, which decodes tokens to find stop texts")
            found[number] = _generated_earlier(request), StopTexts(request.sampling.stop, conditions.decode)
    return found
