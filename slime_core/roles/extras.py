"""EngineExtras: what an engine says of an answer beyond its tokens, their log-probs and its end.

What costs something is made only for a request that wants it, by its name in `Extra`, and only by an engine whose spec
gives it. What an engine counts anyhow comes unasked. Each field is None or empty where nothing is known.

Example:

    output = await engine.generate(GenerateRequest(prompt, sampling, seed, want=frozenset({Extra.ROUTED_EXPERTS})))
    output.extras.routed_experts
"""

import enum
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Self, TypeAlias, TypeVar

from slime_core.sample import PrefixCacheInfo, SpecInfo

ItemT = TypeVar("ItemT")
CountersT = TypeVar("CountersT", SpecInfo, PrefixCacheInfo)

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
    TOP_LOG_PROBS = "top_log_probs"
    """The likeliest tokens beside each one drawn, as many as `GenerateRequest.top_log_probs` says."""


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
    top_log_probs: Sequence[Sequence[tuple[int, float]]] | None = None
    """Of each new token, the likeliest ids and their log-probs, likeliest first: [n][at most k]."""
    server: str = ""
    """Who answered: an address or a name, for logs."""
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
        versions = merged([span for each, count, version in parts for span in spans_of(each, count, version)])
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
            top_log_probs=_concatenated([each.top_log_probs for each in columns]),
            server=next((each.server for each in reversed(all_known) if each.server), ""),
            retractions=sum(each.retractions for each in all_known),
        )
        return None if made == cls() else made


def spans_of(extras: EngineExtras | None, count: int, version: int) -> tuple[VersionSpan, ...]:
    """The versions of `count` tokens, of which `version` is the oldest or the only one."""
    if extras is not None and extras.versions:
        return extras.versions
    return ((count, version),) if count else ()


def merged(spans: Sequence[VersionSpan]) -> tuple[VersionSpan, ...]:
    """The same spans, neighbours of one version as one."""
    return tuple((sum(count for count, _ in run), version) for version, run in groupby(spans, lambda span: span[1]))


def _summed(counters: Sequence[CountersT | None]) -> CountersT | None:
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


def _concatenated(columns: Sequence[Sequence[ItemT] | None]) -> list[ItemT] | None:
    if any(each is None for each in columns):
        return None
    return [item for each in columns for item in each or ()]
