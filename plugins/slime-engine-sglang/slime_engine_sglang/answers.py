"""Reads SGLang's answers: tokens, log-probs, finish, versions of the weights, and extras.

Example:

    output = output_of(await server.ask("/generate", body), request, server.url)

An answer that does not have SGLang's form raises KeyError, IndexError, TypeError or ValueError: `Server.understood`.
"""

import base64
import itertools
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from slime_core.roles import EngineExtras, Extra, FinishReason, GenerateChunk, GenerateOutput, GenerateRequest
from slime_core.sample import Json, PrefixCacheInfo, SpecInfo

Meta: TypeAlias = Mapping[str, Json]
Span: TypeAlias = tuple[int, int]

ENDS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}
DRAFTED = (
    ("spec_num_correct_drafts", "spec_accept_token_num"),
    ("spec_num_proposed_drafts", "spec_draft_token_num"),
    ("spec_verify_ct",),
)
"""SGLang's counters of speculative decoding, as `SpecInfo` begins, by their names now and in 0.5.9."""


def output_of(reply: Mapping[str, Json], request: GenerateRequest, server: str) -> GenerateOutput:
    """The answer to a request."""
    meta = cast(Meta, reply["meta_info"])
    # Where nothing is to be made, a release may draw a token all the same.
    tokens, log_probs = _columns(reply, meta) if request.sampling.max_new_tokens else ([], [])
    finish, matched = _end(meta)
    if finish is None:
        raise ValueError("finish_reason is null")
    spans = spans_of(meta, len(tokens))
    extras = _extras(meta, request, tokens, spans, server)
    return GenerateOutput(tokens, log_probs, finish, min(version for _, version in spans), matched, extras)


def scored(output: GenerateOutput, reply: Mapping[str, Json], request: GenerateRequest) -> GenerateOutput | None:
    """An answer with the log-probs of its tokens scored as part of a text; None if the scoring was aborted."""
    meta = cast(Meta, reply["meta_info"])
    if _end(meta)[0] is FinishReason.ABORT:
        return None
    count = len(output.tokens)
    entries = cast(Sequence[Sequence[float]], meta["input_token_logprobs"])[-count:]
    # SGLang tells the last id of a vocabulary as 0 here; the log-prob is of the id that was meant.
    if [entry[1] or token for entry, token in zip(entries, output.tokens, strict=True)] != list(output.tokens):
        raise ValueError(f"input_token_logprobs of {len(entries)} tokens that are not the {count} of the response")
    extras = output.extras
    if extras is not None and Extra.TOP_LOG_PROBS in request.want:
        extras = replace(extras, top_log_probs=_likeliest(meta, "input_top_logprobs")[-count:])
    return replace(output, log_probs=[entry[0] for entry in entries], extras=extras)


def context_of(models: Mapping[str, Json]) -> int:
    """Tokens that the model of a server has room for, from `/v1/models`."""
    return int(cast(int, cast(Sequence[Meta], models["data"])[0]["max_model_len"]))


def chunk_of(reply: Mapping[str, Json], request: GenerateRequest, server: str, told: int) -> GenerateChunk:
    """What an event of a stream, which has all tokens so far, says beyond the first `told` of them."""
    meta = cast(Meta, reply["meta_info"])
    tokens, log_probs = _columns(reply, meta)
    finish, matched = _end(meta)
    spans = spans_of(meta, len(tokens))
    new = tokens[told:]
    version = min(version for _, version in _after(spans, told) or spans[-1:])
    extras = _extras(meta, request, tokens, spans, server) if finish is not None else None
    return GenerateChunk(new, log_probs[told:], version, finish, matched, extras)


def spans_of(meta: Meta, count: int) -> Sequence[Span]:
    """How many tokens in a row each version of the weights made; at least one span, even for no tokens."""
    told = cast(Sequence[Mapping[str, int]] | None, meta.get("weight_versions")) or []
    if len(told) == 1 and told[0]["start"] == 0 and told[0]["end"] == count:
        return [(count, int(told[0]["version"]))]
    spans = [(each["end"] - each["start"], int(each["version"])) for each in told]
    runs = itertools.groupby([span for span in spans if span[0]], lambda span: span[1])
    made = [(sum(size for size, _ in run), version) for version, run in runs]
    if not (made and count):
        return [(count, int(cast(str, meta["weight_version"])))]
    if sum(size for size, _ in made) != count:
        raise ValueError(f"weight_versions {told} are not of {count} tokens")
    return made


def _after(spans: Sequence[Span], told: int) -> list[Span]:
    """What is left of spans after so many tokens."""
    left, start = list[Span](), 0
    for size, version in spans:
        start += size
        if start > told:
            left.append((min(size, start - told), version))
    return left


def _columns(reply: Mapping[str, Json], meta: Meta) -> tuple[list[int], list[float]]:
    """Tokens and their log-probs."""
    tokens = cast(list[int], reply["output_ids"])
    entries = cast(Sequence[Sequence[float]], meta["output_token_logprobs"])
    if [entry[1] for entry in entries] != tokens:
        raise ValueError(f"{len(tokens)} output_ids with output_token_logprobs of {len(entries)} other ids")
    return tokens, [entry[0] for entry in entries]


def _end(meta: Meta) -> tuple[FinishReason | None, int | str | None]:
    """Why it ended, and what it stopped at; (None, None) while it goes on."""
    reason = cast(Meta | None, meta["finish_reason"])
    if reason is None:
        return None, None
    matched = reason.get("matched")
    return ENDS[cast(str, reason["type"])], matched if isinstance(matched, int | str) else None


def _extras(
    meta: Meta, request: GenerateRequest, tokens: Sequence[int], spans: Sequence[Span], server: str
) -> EngineExtras:
    """What else the answer says: what was wanted, and what SGLang counts anyhow."""
    want, prompt = request.want, len(request.prompt)
    cached = PrefixCacheInfo(min(cast(int, meta.get("cached_tokens") or 0), prompt), prompt)
    counted = EngineExtras(
        tuple(spans) if len(spans) > 1 else (),
        cached,
        _drafts(meta, len(tokens)),
        server=server,
        retractions=cast(int, meta.get("num_retractions") or 0),
    )
    if not want:
        return counted
    kept, offsets = _kept(meta, len(tokens)) if Extra.TOP_P_TOKENS in want else (None, None)
    return replace(
        counted,
        routed_experts=_experts(meta) if Extra.ROUTED_EXPERTS in want else None,
        top_p_token_ids=kept,
        top_p_token_offsets=offsets,
        prompt_log_probs=_prompt(meta) if Extra.PROMPT_LOG_PROBS in want else None,
        top_log_probs=_likeliest(meta) if Extra.TOP_LOG_PROBS in want else None,
    )


def _drafts(meta: Meta, count: int) -> SpecInfo | None:
    if "spec_verify_ct" not in meta:
        return None
    accepted, drafted, verified = (
        cast(int, next((meta[name] for name in names if meta.get(name)), 0)) for names in DRAFTED
    )
    return SpecInfo(accepted, drafted, verified, count)


def _experts(meta: Meta) -> "array[int]":
    """Experts that were chosen; empty for a model without experts: SGLang is not asked then."""
    told = cast(str | None, meta.get("routed_experts"))
    return array("i", base64.b64decode(told)) if told else array("i")


def _kept(meta: Meta, count: int) -> "tuple[array[int], array[int]]":
    """Ids that were kept for each token, and where each one's begin."""
    kept = cast(Sequence[Sequence[int]], meta.get("output_token_sampling_mask") or [])
    if len(kept) != count:
        raise ValueError(f"output_token_sampling_mask is of {len(kept)} tokens, not of {count}")
    offsets = itertools.accumulate(map(len, kept), initial=0)
    return array("i", itertools.chain.from_iterable(kept)), array("i", offsets)


def _prompt(meta: Meta) -> list[float]:
    """Log-probs of the prompt's tokens but the first, which has none."""
    return [entry[0] for entry in cast(Sequence[Sequence[float]], meta["input_token_logprobs"])[1:]]


def _likeliest(meta: Meta, key: str = "output_top_logprobs") -> list[list[tuple[int, float]]]:
    places = cast(Sequence[Sequence[Sequence[float]] | None], meta.get(key) or [])
    return [[(int(token), log_prob) for log_prob, token, *_ in place or ()] for place in places]
