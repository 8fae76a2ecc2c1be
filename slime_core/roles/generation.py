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
    """What a number may be."""

    least: float
    most: float
    is_open: bool = False
    """Whether `least` itself is left out."""
    off: float | None = None
    """One more value, which turns the setting off."""

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
"""What settings of sampling may be, by their names here; keys, flags and requests take the same."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample, by SGLang's names and in SGLang's ranges.

    A token's logits become, in this order: less `frequency_penalty` times how often the token was made so far, and less
    `presence_penalty` if it was; then divided by `repetition_penalty` where positive and multiplied by it where
    negative, for tokens made so far; then plus `logit_bias`; and divided by `temperature`. Of that distribution the
    draw keeps what `top_k`, `top_p` and `min_p` all keep. The log-probs that come back are those of the logits divided
    by `temperature` and nothing else: what a trainer computes, too.

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
    """Ids that end the response, besides the model's own."""
    min_p: float = 0.0
    """Candidates are kept whose probability is at least this share of the likeliest one's; 0 is off."""
    stop: tuple[str, ...] = ()
    """Texts that end the response with the token that completes one; the tokens of it are kept."""
    ignore_eos: bool = False
    """No token ends the response, neither the model's own nor one of `stop_token_ids`; texts of `stop` do."""
    min_new_tokens: int = 0
    """Tokens before which no stop token is drawn; a text of `stop` ends the response all the same."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens made so far (CTRL, Keskar et al. 2019); 1 is off."""
    presence_penalty: float = 0.0
    """Taken off the logits of tokens made so far (OpenAI API reference, chat completions)."""
    frequency_penalty: float = 0.0
    """Taken off the logits of tokens made so far, as often as each was made (same source)."""
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    """Added to the logits of these ids."""
    skip_special_tokens: bool = True
    """Whether a generator leaves special tokens out of the response's text; engines return tokens."""
    no_stop_trim: bool = True
    """Whether a generator leaves the text of `stop` that ended the response in its text; engines return tokens."""

    def __post_init__(self) -> None:
        """Refuse what SGLang refuses."""
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

    def besides(self, *heeded: str) -> list[str]:
        """Names of parameters that are set and are not `heeded`: an engine refuses them rather than ignore them.

        What is said of the text, which is a generator's to make, is not an engine's to heed.
        """
        defaults = SamplingParams(self.max_new_tokens)
        free = {*heeded, "skip_special_tokens", "no_stop_trim"}
        names = [each.name for each in fields(self) if each.name not in free]
        return [name for name in names if getattr(self, name) != getattr(defaults, name)]

    @property
    def shapes_logits(self) -> bool:
        """Whether the draw's law is another than the model's tempered one, cut off at its tail or not."""
        penalties = (self.repetition_penalty - 1.0, self.presence_penalty, self.frequency_penalty)
        return any(penalties) or bool(self.logit_bias) or self.min_new_tokens > 0


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


# EngineExtras: what an engine says of an answer beyond its tokens, their log-probs and its end.

_CountersT = TypeVar("_CountersT", SpecInfo, PrefixCacheInfo)

VersionSpan: TypeAlias = tuple[int, int]
"""Neighbouring tokens of one version of the weights: how many, and which version."""


class Extra(enum.Enum):
    """What a request may want beyond tokens and log-probs."""

    ROUTED_EXPERTS = "routed_experts"
    """Which experts the routers chose."""
    TOP_P_TOKENS = "top_p_tokens"
    """Among which tokens top-p had each one drawn."""
    PROMPT_LOG_PROBS = "prompt_log_probs"
    """Log-probs of the prompt's tokens. With `max_new_tokens = 0` nothing is made, and they are all of the answer."""


@dataclass(frozen=True, slots=True)
class EngineExtras:
    """What else there is to know of an answer to a prompt of p tokens with n new ones."""

    versions: tuple[VersionSpan, ...] = ()
    """Versions of the weights that made the new tokens, oldest first, tokens in all: n; () is one for all of them."""
    prefix_cache_info: PrefixCacheInfo | None = None
    """Prompt tokens, and how many of them were not computed again."""
    spec_info: SpecInfo | None = None
    """Counters of speculative decoding."""
    routed_experts: "array[int] | None" = None
    """Experts that were chosen for each token but the last, of the prompt, too: flat [(p + n - 1) * layers * top-k]."""
    top_p_token_ids: "array[int] | None" = None
    """Ids that top-p kept, of one new token after the other."""
    top_p_token_offsets: "array[int] | None" = None
    """Where each new token's kept ids begin, and where the last one's end: [n + 1]."""
    prompt_log_probs: Sequence[float] | None = None
    """Of each token of the prompt but the first, as of new tokens: [p - 1]."""
    retractions: int = 0
    """How often the request was put back for want of memory and begun again."""

    def lacks(self, extra: Extra) -> bool:
        """Whether what was wanted is not here."""
        return (self.top_p_token_offsets if extra is Extra.TOP_P_TOKENS else getattr(self, extra.value)) is None

    @classmethod
    def joined(cls, parts: "Sequence[tuple[EngineExtras | None, int, int]]") -> Self | None:
        """Those of an answer that several calls made, each going on from the prompt and all tokens before it.

        A column that one of them lacks is lacking in the whole. Experts of tokens that an earlier call has them of are
        that call's: its log-probs came about with these.

        Args:
            parts: of each call its extras, its new tokens and the version of its weights.
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
    """The same spans, neighbours of one version as one."""
    return tuple((sum(count for count, _ in run), version) for version, run in groupby(spans, lambda span: span[1]))


def _summed(counters: Sequence[_CountersT | None]) -> _CountersT | None:
    """Counters of several calls; those of which nothing is known add nothing."""
    known = [each for each in counters if each is not None]
    if not known:
        return None
    return type(known[0])(*(sum(getattr(each, item.name) for each in known) for item in fields(known[0])))


def _experts(parts: "Sequence[array[int] | None]") -> "array[int] | None":
    """Experts of the whole: of each call those of the tokens that no call before it had them of."""
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


# What an engine is asked and what it answers: a request, the whole answer, or its parts as they are made.


class FinishReason(enum.Enum):
    """Why generation ended."""

    STOP = "stop"
    """A stop token was sampled, or a stop text completed; it is the last token, or ends within it."""
    LENGTH = "length"
    """The token budget was used up."""
    ABORT = "abort"
    """Interrupted; the tokens so far are valid."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One call of an engine."""

    prompt: Sequence[int]
    """Token ids."""
    sampling: SamplingParams
    """How to sample."""
    seed: int
    """Makes the draw a function of the sample's identity, not of its companions."""
    group: GroupId | None = None
    """Whose samples share a beginning with this prompt: several engines keep a group together. Changes no answer."""
    made: int = 0
    """Tokens at the prompt's end that an interrupted call made: penalties and texts of `stop` see them as made."""
    session: str | None = None
    """The conversation that the call is a turn of: several engines keep it with one. Changes no answer."""
    media: Mapping[str, Json] | None = None
    """Images, videos or audio that the prompt's placeholders stand for, as `Sample.multimodal_inputs` has them."""
    want: frozenset[Extra] = frozenset()
    """What is to come back beyond tokens and log-probs."""

    def besides(self, *heeded: str | Extra) -> list[str]:
        """Names of what is asked for and not `heeded` ("media", extras): an engine refuses them.

        `SamplingParams.besides` says the same of the settings of sampling.
        """
        asked = ["media"] if self.media and "media" not in heeded else []
        return asked + sorted(extra.value for extra in self.want if extra not in heeded)


@dataclass(frozen=True, slots=True)
class GenerateOutput:
    """What came back."""

    tokens: Sequence[int]
    """New ids, the stop token included: [n]."""
    log_probs: Sequence[float]
    """Log-prob of each under the tempered distribution: [n]."""
    finish: FinishReason
    """Why it ended."""
    weight_version: int
    """Version of the weights that made it; of several, the oldest."""
    matched: int | str | None = None
    """The stop token, or the text of `stop`, that ended it, where the engine says so."""
    extras: EngineExtras | None = None
    """What else there is to know of it."""

    @property
    def versions(self) -> tuple[VersionSpan, ...]:
        """How many neighbouring tokens each version of the weights made, oldest first."""
        return _spans_of(self.extras, len(self.tokens), self.weight_version)

    @property
    def as_chunk(self) -> "GenerateChunk":
        """The whole as one part."""
        return GenerateChunk(
            self.tokens, self.log_probs, self.weight_version, self.finish, self.matched, extras=self.extras
        )

    @classmethod
    def joined(cls, chunks: "Sequence[GenerateChunk]") -> Self:
        """What `generate` answers for a request whose response came in these parts.

        Raises:
            ValueError: the last of them does not end the response.
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
    """A part of a response, as it is made."""

    tokens: Sequence[int]
    """Ids that no part before it had: [n], at least one but in the last part."""
    log_probs: Sequence[float]
    """Log-prob of each, as in the whole: [n]."""
    weight_version: int
    """Version of the weights that made it; of several, the oldest."""
    finish: FinishReason | None = None
    """Why the response ended; None in all parts but the last."""
    matched: int | str | None = None
    """In the last part: the stop token or text that ended it, where the engine says so."""
    extras: EngineExtras | None = None
    """In the last part: what else there is to know of the whole response."""


class Tokenizer(Protocol):
    """Text to ids and back, and the chat template."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a response."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text, no special tokens added."""
        ...

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ids, special tokens left out or not."""
        ...

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """The messages as the model's prompt text, with or without the beginning of its answer."""
        ...
