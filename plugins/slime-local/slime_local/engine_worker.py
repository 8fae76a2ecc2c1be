"""The local engine, worker side: one process that decodes with the newest weights.

answers = worker.decode(Turn({0: request, 1: other}))                    # .ended: results of finished requests
answers = worker.decode(Turn({}, dropped=frozenset({1})))                # continue without request 1
answers = worker.decode(Turn({}, watched=frozenset({0})))                # .partial: new tokens of request 0
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from slime_core.data import HfTokenizer
from slime_core.errors import ModelError
from slime_core.roles import (
    EngineExtras,
    Extra,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    MemoryTag,
    MemoryTags,
    WeightChannel,
)
from slime_local.batch import DecodeResult, StopConditions
from slime_local.decode import Decoder
from slime_local.device import use_device
from slime_local.model import GroupTokens, load_model
from slime_local.request_queue import Ended, Flags, Turn, TurnResult
from slime_local.weight_reader import WeightReader

CACHE_BYTES = 2 << 30
"""Default bytes of the key/value cache in a worker."""
TURN_S = 0.05
"""Minimum seconds of a turn, even if requests have ended, arrived or are watched. Between turns a worker waits for its
driver, which may be busy. With turns of 16 tokens, about 30 ms, the demo's rollouts take a fifth longer."""


class EngineWorker:
    """Holds one model, whose parameters are views of the received memory if possible."""

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        hf_checkpoint: Path,
        eos_token_ids: frozenset[int],
        number: int,
        flags: Path,
        float32_matmul_precision: str,
        bf16: bool,
        device: str,
        max_total_tokens: int | None = None,
    ) -> None:
        """Build the model; it serves after the first `load_weights`."""
        self._device = use_device(device, rank)
        torch.set_float32_matmul_precision(float32_matmul_precision)
        self._rank, self._flags = rank, Flags(flags)
        self._hf_checkpoint = hf_checkpoint
        self._tokenizer: HfTokenizer | None = None
        self._model = load_model(hf_checkpoint, bf16=bf16)
        self._version = -1
        self._weight_reader = WeightReader(self._model, self._device, number, rank)
        room = CACHE_BYTES // self._model.token_bytes if max_total_tokens is None else max_total_tokens
        self._decoder = Decoder(self._model, StopConditions(eos_token_ids, self._decode_text), room)
        self._scores: dict[int, EngineExtras] = {}
        """Prompt log-probs of running requests, by number."""

    def load_weights(self, published: tuple[WeightChannel, int]) -> None:
        """Serve a version from now on; no request may be decoding.

        Raises:
            ModelError: the channel's weights are not the model's; the previous version is kept.
        """
        channel, version = published
        self._model.bind(self._weight_reader.read(channel, version))
        self._version = version

    def load_checkpoint(self) -> None:
        """Bind the model to the weights of its directory, as version 0; no request may be decoding."""
        weights = torch.empty(self._model.numel)
        self._model.read_into(weights)
        self._model.bind(weights)
        self._version = 0

    def release(self, tags: MemoryTags) -> None:
        """Free keys and values; no request may be decoding."""
        if MemoryTag.KV_CACHE in tags:
            self._decoder.clear()

    def decode(self, turn: Turn) -> TurnResult:
        """Decode until a request ends, a new one waits, or a watched one has run for a turn.

        Results are independent of the other requests and of streaming.
        A budget beyond the model's positions is cut; a prompt that leaves no room ends at once with LENGTH.
        """
        self._decoder.drop(turn.dropped)
        for number in turn.dropped:
            self._scores.pop(number, None)
        answers, fresh = self._examined(turn.admitted)
        if self._flags.aborting:
            ended = dict.fromkeys(fresh, DecodeResult([], [], FinishReason.ABORT)) | self._decoder.abort()
            return TurnResult(answers | self._outputs(ended))
        try:
            self._decoder.admit(fresh)
            ended = self._go_on(ended_already=bool(answers), watched=bool(turn.watched))
            return TurnResult(answers | self._outputs(ended), self._partial_outputs(turn.watched))
        except BaseException:
            self._decoder.abort()  # the driver drops all of them
            self._scores.clear()
            raise

    def _go_on(self, *, ended_already: bool, watched: bool) -> dict[int, DecodeResult]:
        ended: dict[int, DecodeResult] = {}
        earliest = time.monotonic() + TURN_S
        while self._decoder.busy:
            if self._flags.aborting:
                return ended | self._decoder.abort()
            ended |= self._decoder.step()
            if time.monotonic() >= earliest and (watched or ended or ended_already or self._flags.has_news(self._rank)):
                break
        return ended

    def _partial_outputs(self, watched: Collection[int]) -> dict[int, GenerateChunk]:
        results = self._decoder.partial_results(watched) if watched else {}
        return {number: GenerateChunk(each.tokens, each.log_probs, self._version) for number, each in results.items()}

    def _outputs(self, results: Mapping[int, DecodeResult]) -> Ended:
        version = self._version
        return {
            number: GenerateOutput(
                each.tokens, each.log_probs, each.finish, version, each.matched, self._scores.pop(number, None)
            )
            for number, each in results.items()
        }

    def _examined(self, requests: Mapping[int, GenerateRequest]) -> tuple[Ended, dict[int, GenerateRequest]]:
        """Results of requests that cannot be decoded, and the others with budgets cut to the model's positions."""
        answers: Ended = {}
        fresh: dict[int, GenerateRequest] = {}
        for number, request in requests.items():
            sampling = request.sampling
            budget = min(sampling.max_new_tokens, self._model.max_positions - len(request.prompt))
            if (error := self._error_of(request)) is not None:
                answers[number] = error
                continue
            scores = self._score(request) if budget >= 0 and Extra.PROMPT_LOG_PROBS in request.want else None
            if budget < 1:
                answers[number] = GenerateOutput((), (), FinishReason.LENGTH, self._version, extras=scores)
                continue
            if scores is not None:
                self._scores[number] = scores
            if budget < sampling.max_new_tokens:
                fresh[number] = replace(request, sampling=replace(sampling, max_new_tokens=budget))
            else:
                fresh[number] = request
        return answers, fresh

    def _score(self, request: GenerateRequest) -> EngineExtras:
        """Log-probs of one prompt, computed alone so that they do not depend on other requests."""
        first, *rest = request.prompt
        if not rest:
            return EngineExtras(prompt_log_probs=())
        temperature = request.sampling.temperature or 1.0
        scored = self._model.log_probs([GroupTokens([first], [rest])], temperature=temperature)
        return EngineExtras(prompt_log_probs=scored.log_probs_T.tolist())

    def _error_of(self, request: GenerateRequest) -> ModelError | None:
        if not request.prompt:
            return ModelError("a prompt has no tokens; expected at least one")
        if not 0 <= min(request.prompt) <= max(request.prompt) < self._model.vocab_size:
            return ModelError(f"a prompt has token ids outside the vocabulary, 0 to {self._model.vocab_size - 1}")
        if strange := [token for token in request.sampling.logit_bias if token >= self._model.vocab_size]:
            return ModelError(
                f"logit_bias has token ids {strange[:3]}; the vocabulary ends at {self._model.vocab_size - 1}"
            )
        return None

    def _decode_text(self, tokens: Sequence[int]) -> str:
        if self._tokenizer is None:
            self._tokenizer = HfTokenizer.load(self._hf_checkpoint)
        return self._tokenizer.decode(tokens, skip_special_tokens=False)
