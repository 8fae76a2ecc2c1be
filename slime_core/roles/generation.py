"""Defines what a generator sends to an engine and gets back: requests, sampling parameters, outputs, tokenizer.

An engine returns tokens, log-probs and a finish reason. Extras, such as routed experts, cost time or memory, so an
engine computes them only for a request whose `want` names them.

Example:

    sampling = SamplingParams(max_new_tokens=48)
    request = GenerateRequest(prompt, sampling, seed, want=frozenset({Extra.ROUTED_EXPERTS}))
    output = GenerateOutput.joined([chunk async for chunk in engine.stream(request)])
    output.extras.routed_experts
"""

import enum
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Protocol, Self, TypeAlias, TypeVar, cast

from slime_core.sample import GroupId, Json, Message, PrefixCacheInfo, SpecInfo

# SamplingParams: how an engine draws tokens, by SGLang's names and in SGLang's ranges.


@dataclass(frozen=True, slots=True)
class Range:
    """Allowed values of a number."""

    least: float
    most: float
    is_open: bool = False
    """Whether `least` itself is excluded."""
    off: float | None = None
    """An additional allowed value that turns the setting off."""

    def __contains__(self, value: float) -> bool:
        return value == self.off or (
            (self.least < value if self.is_open else self.least <= value) and value <= self.most
        )

    def __str__(self) -> str:
        least = f"over {self.least:g}" if self.is_open else f"{self.least:g} or more"
        off = "" if self.off is None else f", or {self.off:g} for off"
        return f"{least}, at most {self.most:g}{off}"


RANGES: Mapping[str, Range] = {
    "max_new_tokens": Range(0, 10**9),
    "temperature": Range(0, 10),
    "top_p": Range(0, 1, is_open=True),
    "top_k": Range(1, 10**9, off=-1),
    "min_p": Range(0, 1),
    "min_new_tokens": Range(0, 10**9),
    "repetition_penalty": Range(0, 2, is_open=True),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
}
"""Range of each sampling parameter by name; keys, flags and requests share it."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample, by SGLang's names and in SGLang's ranges.

    Logits change in this order. First, `frequency_penalty` times a token's count in the response is subtracted, and
    `presence_penalty` if it occurred. For tokens that occurred, `repetition_penalty` then divides positive logits and
    multiplies negative ones. Then `logit_bias` is added, and the result is divided by `temperature`. The draw keeps
    tokens that `top_k`, `top_p` and `min_p` all keep. Returned log-probs, like a trainer's, use the original logits
    divided by `temperature`.

    Raises:
        ValueError: a setting is out of its range.
    """

    max_new_tokens: int
    """Token budget of the call."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus mass; 1 is off."""
    top_k: int = -1
    """Candidates kept; -1 is off."""
    stop_token_ids: frozenset[int] = frozenset()
    """Ids that end the response, in addition to the model's own."""
    min_p: float = 0.0
    """Keeps candidates whose probability is at least this share of the most likely one's; 0 is off."""
    stop: tuple[str, ...] = ()
    """Texts that end the response with the token that completes one; their tokens are kept."""
    ignore_eos: bool = False
    """Stop tokens (the model's and `stop_token_ids`) do not end the response; texts of `stop` still do."""
    min_new_tokens: int = 0
    """No stop token is drawn before this many tokens. Texts of `stop` still end the response."""
    repetition_penalty: float = 1.0
    """Divides positive, multiplies negative logits of earlier response tokens (CTRL, Keskar et al. 2019); 1 is off."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens generated so far (OpenAI API reference, chat completions)."""
    frequency_penalty: float = 0.0
    """Subtracted from the logits of tokens generated so far, once per occurrence (same source)."""
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    """Added to the logits of these ids."""
    skip_special_tokens: bool = True
    """Whether a generator leaves special tokens out of the response's text; engines return tokens."""
    no_stop_trim: bool = True
    """Whether a generator leaves the text of `stop` that ended the response in its text; engines return tokens."""

    def __post_init__(self) -> None:
        """Reject values that SGLang rejects."""
        for name, allowed in RANGES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"sampling with {name}={getattr(self, name)!r}; expected {allowed}")
        checks = (
            (isinstance(cast(object, self.stop), tuple) and all(self.stop), "stop", "a tuple of texts, none empty"),
            (all(map(_is_id, self.stop_token_ids)), "stop_token_ids", "ids from 0 up"),
            (all(map(math.isfinite, self.logit_bias.values())), "logit_bias", "finite numbers"),
            (all(map(_is_id, self.logit_bias)), "logit_bias", "ids from 0 up"),
        )
        for good, name, expected in checks:
            if not good:
                raise ValueError(f"sampling with {name}={getattr(self, name)!r}; expected {expected}")

    def unsupported(self, *supported: str) -> list[str]:
        """Names of parameters that are set and not listed, for an engine to reject.

        Parameters about the response's text are left out, because they concern generators.
        """
        defaults = SamplingParams(self.max_new_tokens)
        free = {*supported, "skip_special_tokens", "no_stop_trim"}
        names = [each.name for each in fields(self) if each.name not in free]
        return [name for name in names if getattr(self, name) != getattr(defaults, name)]

    @property
    def shapes_logits(self) -> bool:
        """Whether penalties or biases change the distribution beyond temperature and truncation."""
        penalties = (self.repetition_penalty - 1.0, self.presence_penalty, self.frequency_penalty)
        return any(penalties) or bool(self.logit_bias) or self.min_new_tokens > 0


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


# EngineExtras: what an engine returns in addition to tokens, log-probs and the finish reason.

_CountersT = TypeVar("_CountersT", SpecInfo, PrefixCacheInfo)

VersionSpan: TypeAlias = tuple[int, int]
"""A run of consecutive tokens from one weight version: (number of tokens, version)."""


class Extra(enum.Enum):
    """What a request may ask for in addition to tokens and log-probs."""

    ROUTED_EXPERTS = "routed_experts"
    """The experts that the routers chose."""
    TOP_P_TOKENS = "top_p_tokens"
    """The tokens that top-p kept at each position."""
    PROMPT_LOG_PROBS = "prompt_log_probs"
    """Log-probs of the prompt's tokens. With `max_new_tokens = 0` the engine returns only these."""


@dataclass(frozen=True, slots=True)
class EngineExtras:
    """Extras of an output with n new tokens for a prompt of p tokens."""

    versions: tuple[VersionSpan, ...] = ()
    """Weight versions of the new tokens, oldest first; their counts sum to n. (): one version for all tokens."""
    prefix_cache_info: PrefixCacheInfo | None = None
    """Prompt tokens, and how many of them came from the prefix cache."""
    spec_info: SpecInfo | None = None
    """Counters of speculative decoding."""
    routed_experts: "array[int] | None" = None
    """Chosen experts of all tokens of prompt and response except the last: flat [(p + n - 1) * layers * top-k]."""
    top_p_token_ids: "array[int] | None" = None
    """Ids that top-p kept, concatenated over the new tokens."""
    top_p_token_offsets: "array[int] | None" = None
    """Offset of each new token's kept ids, and the total length: [n + 1]."""
    prompt_log_probs: Sequence[float] | None = None
    """Log-prob of each prompt token except the first, defined as for new tokens: [p - 1]."""
    retractions: int = 0
    """How often the engine ran out of KV memory, requeued the request and restarted it."""

    def lacks(self, extra: Extra) -> bool:
        """Whether this extra is missing."""
        return (self.top_p_token_offsets if extra is Extra.TOP_P_TOKENS else getattr(self, extra.value)) is None

    @classmethod
    def joined(cls, parts: "Sequence[tuple[EngineExtras | None, int, int]]") -> Self | None:
        """Combined extras of several calls, each of which continued from the prompt and all earlier tokens.

        A column that one call lacks is missing from the result. If several calls have a token's experts, the first
        call's are kept, because its log-probs were computed with them.

        Args:
            parts: for each call, its extras, its number of new tokens and its weight version.
        """
        versions = merge_spans([span for each, count, version in parts for span in _spans_of(each, count, version)])
        all_known = [each or EngineExtras() for each, _, _ in parts]
        columns = [each or EngineExtras() for each, count, _ in parts if count] or all_known
        ids, offsets = _top_p(columns)
        made = cls(
            versions=versions if len(versions) > 1 else (),
            prefix_cache_info=_summed([each.prefix_cache_info for each in all_known]),
            spec_info=_summed([each.spec_info for each in all_known]),
            routed_experts=_experts([each.routed_experts for each in columns]),
            top_p_token_ids=ids,
            top_p_token_offsets=offsets,
            prompt_log_probs=columns[0].prompt_log_probs,
            retractions=sum(each.retractions for each in all_known),
        )
        return None if made == cls() else made


def _spans_of(extras: EngineExtras | None, count: int, version: int) -> tuple[VersionSpan, ...]:
    if extras is not None and extras.versions:
        return extras.versions
    return ((count, version),) if count else ()


def merge_spans(spans: Sequence[VersionSpan]) -> tuple[VersionSpan, ...]:
    """The same spans, with consecutive ones of one version merged."""
    return tuple((sum(count for count, _ in run), version) for version, run in groupby(spans, lambda span: span[1]))


def _summed(counters: Sequence[_CountersT | None]) -> _CountersT | None:
    """Sum of the counters of several calls; unknown counters (None) add nothing."""
    known = [each for each in counters if each is not None]
    if not known:
        return None
    return type(known[0])(*(sum(getattr(each, item.name) for each in known) for item in fields(known[0])))


def _experts(parts: "Sequence[array[int] | None]") -> "array[int] | None":
    """Concatenated experts; of each call, only the tokens that no earlier call covered."""
    whole = array("i")
    for part in parts:
        if part is None:
            return None
        whole += part[len(whole) :]
    return whole


def _top_p(parts: Sequence[EngineExtras]) -> "tuple[array[int], array[int]] | tuple[None, None]":
    ids, offsets = array("i"), array("i", [0])
    for part in parts:
        if part.top_p_token_ids is None or part.top_p_token_offsets is None:
            return None, None
        offsets.extend(len(ids) + end for end in part.top_p_token_offsets[1:])
        ids += part.top_p_token_ids
    return ids, offsets


# Engine calls: a request, the whole output, or its chunks while streaming.


class FinishReason(enum.Enum):
    """Why generation ended."""

    STOP = "stop"
    """A stop token was sampled or a stop text completed, at or within the last token."""
    LENGTH = "length"
    """The token budget was used up."""
    ABORT = "abort"
    """Interrupted; the tokens so far are valid."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One request to an engine."""

    prompt: Sequence[int]
    """Token ids."""
    sampling: SamplingParams
    """How to sample."""
    seed: int
    """Makes the draw a function of the sample's identity, independent of other requests in the batch."""
    group: GroupId | None = None
    """Group whose samples share a prompt prefix. One of several engines serves it. Does not affect outputs."""
    num_generated: int = 0
    """Tokens at the prompt's end that an interrupted call generated. Penalties and `stop` count them as generated."""
    session: str | None = None
    """Conversation of which the call is a turn. One of several engines serves it. Does not affect outputs."""
    media: Mapping[str, Json] | None = None
    """Images, videos or audio for the prompt's placeholders, in the form of `Sample.multimodal_inputs`."""
    want: frozenset[Extra] = frozenset()
    """Extras to return in addition to tokens and log-probs."""

    def unsupported(self, *supported: str | Extra) -> list[str]:
        """Names of requested features ("media", extras) that are not listed, for an engine to reject."""
        asked = ["media"] if self.media and "media" not in supported else []
        return asked + sorted(extra.value for extra in self.want if extra not in supported)


@dataclass(frozen=True, slots=True)
class GenerateOutput:
    """Output of one request."""

    tokens: Sequence[int]
    """New ids, the stop token included: [n]."""
    log_probs: Sequence[float]
    """Log-prob of each new token at the sampling temperature: [n]."""
    finish: FinishReason
    """Why generation ended."""
    weight_version: int
    """Version of the weights that made it; of several, the oldest."""
    matched: int | str | None = None
    """The stop token or the text of `stop` that ended it, if the engine reports it."""
    extras: EngineExtras | None = None
    """Extras that the request wanted."""

    @property
    def versions(self) -> tuple[VersionSpan, ...]:
        """Spans of consecutive tokens from one weight version, oldest first."""
        return _spans_of(self.extras, len(self.tokens), self.weight_version)

    @property
    def as_chunk(self) -> "GenerateChunk":
        """The whole output as one chunk."""
        return GenerateChunk(
            self.tokens, self.log_probs, self.weight_version, self.finish, self.matched, extras=self.extras
        )

    @classmethod
    def joined(cls, chunks: "Sequence[GenerateChunk]") -> Self:
        """The output that `generate` would return for a response that was streamed in these chunks.

        Raises:
            ValueError: the last chunk does not end the response.
        """
        if not chunks or chunks[-1].finish is None:
            raise ValueError(f"{len(chunks)} chunks without an end; expected all of a response, up to its finish")
        last = chunks[-1]
        tokens = [token for chunk in chunks for token in chunk.tokens]
        log_probs = [each for chunk in chunks for each in chunk.log_probs]
        extras = last.extras
        spans = merge_spans([(len(chunk.tokens), chunk.weight_version) for chunk in chunks if chunk.tokens])
        if extras is not None and extras.versions:
            spans = extras.versions
        elif len(spans) > 1:
            extras = replace(extras or EngineExtras(), versions=spans)
        oldest = min((version for _, version in spans), default=last.weight_version)
        return cls(tokens, log_probs, chunks[-1].finish, oldest, last.matched, extras)


@dataclass(frozen=True, slots=True)
class GenerateChunk:
    """A part of a response while streaming."""

    tokens: Sequence[int]
    """New ids since the previous chunk: [n]. Only the last chunk may be empty."""
    log_probs: Sequence[float]
    """Log-prob of each new token: [n]."""
    weight_version: int
    """Version of the weights that made it; of several, the oldest."""
    finish: FinishReason | None = None
    """Why the response ended; None except in the last chunk."""
    matched: int | str | None = None
    """In the last chunk: the stop token or text that ended it, if the engine reports it."""
    extras: EngineExtras | None = None
    """In the last chunk: extras of the whole response."""


class Tokenizer(Protocol):
    """Text to ids and back, and the chat template."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a response."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without added special tokens."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ids, with or without special tokens."""

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """The messages as the model's prompt text, optionally with the start of its answer."""
