"""Carry: what an engine said of its answers goes into the samples that a generator made of them, whichever it was.

A call is part of a sample whose tokens begin with its prompt and its answer: so it is found whatever the generator does
with forks, retries and tools. What a generator filled itself is left as it is.

Example:

    carry([(prompt, output)], samples)
"""

from array import array
from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from slime_core.roles import EngineExtras, GenerateOutput
from slime_core.sample import PrefixCacheInfo, Sample, SpecInfo

COUNTERS = {"spec_info": SpecInfo(), "prefix_cache_info": PrefixCacheInfo()}
"""Fields that are summed, and what they are where nothing was counted."""
Call: TypeAlias = tuple[Sequence[int], GenerateOutput]
"""A prompt and what was answered."""


def carry(calls: Sequence[Call], samples: Sequence[Sample]) -> None:
    """Fill the fields of finished samples that the answers have something for.

    A column is filled where the calls have it of all of its sample: experts of every token, top-p sets of every token
    that is trained on. The counters of a call are counted once, in the first sample that it is part of, else in the
    first of all: it cost what it cost.
    """
    known = [_Known(tuple(prompt), tuple(out.tokens), out.extras) for prompt, out in calls if out.extras is not None]
    if not known or not samples:
        return
    wholes = [tuple(sample.tokens) for sample in samples]
    for sample, whole in zip(samples, wholes, strict=True):
        own = sorted((call for call in known if call.is_part_of(whole)), key=lambda call: len(call.prompt))
        if sample.rollout_routed_experts is None:
            sample.rollout_routed_experts = _experts(own, len(whole))
        if sample.rollout_top_p_token_offsets is None:
            sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets = _top_p(own, sample)
    uncounted = {name: [getattr(sample, name) == nothing for sample in samples] for name, nothing in COUNTERS.items()}
    for call in known:
        owner = next((place for place, whole in enumerate(wholes) if call.is_part_of(whole)), 0)
        for name in COUNTERS:
            if (more := getattr(call.extras, name)) is not None and uncounted[name][owner]:
                _add(getattr(samples[owner], name), more)


class _Known(NamedTuple):
    """One call of the engine whose answer holds something to carry over."""

    prompt: tuple[int, ...]
    new: tuple[int, ...]
    extras: EngineExtras

    def is_part_of(self, whole: tuple[int, ...]) -> bool:
        """Whether a sample's tokens begin with the prompt and the answer."""
        begin, end = len(self.prompt), len(self.prompt) + len(self.new)
        return whole[begin:end] == self.new and whole[:begin] == self.prompt


def _experts(calls: Sequence[_Known], tokens: int) -> "array[int] | None":
    """The routed experts of each token, from the first call that has them: its log-probs were made with those."""
    whole, stride = array("i"), 0
    for prompt, new, extras in calls:
        if extras.routed_experts is not None and (seen := len(prompt) + len(new) - 1):
            whole += extras.routed_experts[len(whole) :]
            stride = len(extras.routed_experts) // seen
    return whole if whole and len(whole) == stride * (tokens - 1) else None


def _top_p(calls: Sequence[_Known], sample: Sample) -> "tuple[array[int], array[int]] | tuple[None, None]":
    kept: list[Sequence[int] | None] = [None] * sample.response_length
    for prompt, new, extras in calls:
        if (ids := extras.top_p_token_ids) is None or (offsets := extras.top_p_token_offsets) is None:
            continue
        begin = len(prompt) - sample.prompt_length
        for place in range(max(0, -begin), len(new)):
            kept[begin + place] = ids[offsets[place] : offsets[place + 1]]
    mask = sample.loss_mask or [1] * len(kept)
    if not any(kept) or any(bit and ids is None for bit, ids in zip(mask, kept, strict=True)):
        return None, None
    sizes = accumulate((len(ids or ()) for ids in kept), initial=0)
    return array("i", [each for ids in kept for each in ids or ()]), array("i", sizes)


def _add(total: SpecInfo | PrefixCacheInfo, more: SpecInfo | PrefixCacheInfo) -> None:
    for item in fields(total):
        setattr(total, item.name, getattr(total, item.name) + getattr(more, item.name))
