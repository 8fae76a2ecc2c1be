"""SGLang's `/generate`: request bodies, responses, and checks that refuse requests which SGLang would not honor.

Example:

    facts = Facts(vocabulary=64, context=256, longest_prompt=250, seeded=True, returns_experts=False)
    check(request, facts)                                       # or a ModelError
    body = generate_body(request, "an-id", facts, eos_token_ids)
    output = parse_output(await server.ask("/generate", body), request)

A response in another format raises KeyError, IndexError, TypeError or ValueError; see `Server.parse`.
"""

import base64
import functools
import itertools
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from slime_core.errors import ModelError
from slime_core.roles import (
    EngineExtras,
    Extra,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
)
from slime_core.sample import Json, PrefixCacheInfo, SpecInfo
from slime_engine_sglang.arguments import NEWEST_RELEASE, Release

SCORED_AT = (0.0, 1.0)
"""Temperatures at which SGLang can score a text, since it scores with unscaled logits."""
PLAIN = ("temperature", "top_p", "top_k", "stop_token_ids", "min_p", "stop", "ignore_eos")
"""Sampling settings that do not change the log-probs."""
MAX_KEPT = 4096  # Largest top_k for which SGLang lists the candidates that top-p kept
SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Facts:
    """Limits of a server and its model, from the server's info and its model directory."""

    vocabulary: int | None  # Vocabulary size; None if the model's config does not contain it
    context: int  # Maximum tokens of prompt and response together
    longest_prompt: int  # Maximum tokens of a prompt
    seeded: bool  # Whether the server uses request seeds
    returns_experts: bool  # Whether the server can return the routed experts
    is_mixture: bool = False  # Whether the model is a mixture of experts
    release: Release = NEWEST_RELEASE  # The server's release of SGLang
    tp_size: int = 1  # Tensor-parallel size of one replica
    replicas: int = 1  # Number of replicas (`dp_size`)


def check(request: GenerateRequest, facts: Facts) -> None:
    """Refuse a request that the server would partly ignore or crash on. Raises ModelError: names setting and reason."""
    for why in _reasons(request, facts):
        raise ModelError(f"the engine sglang {why}")


def _reasons(request: GenerateRequest, facts: Facts) -> Iterator[str]:
    sampling = request.sampling
    shaping = shaping_settings(sampling)
    if shaping and sampling.temperature not in SCORED_AT:
        yield (
            f"supports {', '.join(shaping)} only at temperature 1 and 0, not at {sampling.temperature:g}: SGLang "
            "returns log-probs of the changed distribution, and the model's own log-probs only at these temperatures"
        )
    if request.num_generated and (
        ignored := [name for name in ("presence_penalty", "repetition_penalty") if name in shaping]
    ):
        yield f"does not support {', '.join(ignored)} for an interrupted response: SGLang ignores its earlier tokens"
    if request.media and (refused := request.unsupported(*Extra)):
        yield f"does not support {', '.join(refused)}"
    if sampling.min_p and facts.seeded:
        yield "does not support min_p with deterministic = true: it would crash the server"
    if request.num_generated and sampling.stop:
        yield "does not support stop for an interrupted response: SGLang would miss a stop text that began earlier"
    if not request.prompt:
        yield "got a prompt without tokens; expected at least one"
    # An id outside the vocabulary crashes the whole server.
    elif facts.vocabulary is not None and not 0 <= min(request.prompt) <= max(request.prompt) < facts.vocabulary:
        yield f"got a prompt with ids outside the model's vocabulary, 0 to {facts.vocabulary - 1}"
    if request.want:
        yield from _unknown_extras(request, facts)


@functools.lru_cache(maxsize=64)
def shaping_settings(sampling: SamplingParams) -> Sequence[str]:
    """Names of settings that change the sampling distribution, except settings that only truncate it."""
    return tuple(sampling.unsupported(*PLAIN)) if sampling.shapes_logits else ()


def _unknown_extras(request: GenerateRequest, facts: Facts) -> Iterator[str]:
    sampling = request.sampling
    if Extra.ROUTED_EXPERTS in request.want and facts.is_mixture and not facts.returns_experts:
        yield "cannot return routed_experts: its server was started without --enable-return-routed-experts"
    if Extra.PROMPT_LOG_PROBS in request.want and sampling.temperature not in SCORED_AT:
        yield f"returns prompt_log_probs only at temperature 1 and 0, not at {sampling.temperature:g}"
    if Extra.TOP_P_TOKENS in request.want and not facts.release.has_masks:
        yield f"cannot return top_p_tokens: its server's SGLang {facts.release.version} does not support them"
    elif Extra.TOP_P_TOKENS in request.want and _mask_top_k(request, facts) is None:
        yield f"returns top_p_tokens only for a top_k or a vocabulary of at most {MAX_KEPT}"


def _mask_top_k(request: GenerateRequest, facts: Facts) -> int | None:
    """The `top_k` that makes SGLang return kept tokens without changing the draw; None if there is none."""
    top_k = request.sampling.top_k if request.sampling.top_k > 0 else facts.vocabulary
    return top_k if top_k is not None and top_k <= MAX_KEPT else None


def token_budget(request: GenerateRequest, facts: Facts) -> int:
    """Maximum tokens of a response, 0 if the prompt is too long. To be scored, both must fit into one prompt."""
    free = facts.longest_prompt - len(request.prompt)
    if free < 0:
        return 0
    room = free if shaping_settings(request.sampling) else facts.context - len(request.prompt)
    return min(request.sampling.max_new_tokens, room)


def has_room(request: GenerateRequest, facts: Facts) -> bool:
    """Whether the request fits the model's context: prompt and one token, or only the prompt to score."""
    if request.sampling.max_new_tokens == 0 and Extra.PROMPT_LOG_PROBS in request.want:
        return len(request.prompt) <= facts.longest_prompt
    return token_budget(request, facts) > 0


def generate_body(request: GenerateRequest, rid: str, facts: Facts, eos_token_ids: Set[int]) -> dict[str, Json]:
    """The `/generate` body of a checked request, with a unique request id."""
    body: dict[str, Json] = {
        "rid": rid,
        "input_ids": list(request.prompt),
        "sampling_params": _sampling(request, facts, eos_token_ids),
        "return_logprob": True,
    }
    if not request.want:
        return body
    if Extra.PROMPT_LOG_PROBS in request.want:
        body["logprob_start_len"] = 0
    if Extra.TOP_P_TOKENS in request.want:
        body["return_sampling_mask"] = True
    if Extra.ROUTED_EXPERTS in request.want and facts.is_mixture:
        body["return_routed_experts"] = True
    return body


def score_body(request: GenerateRequest, tokens: Sequence[int], rid: str) -> dict[str, Json]:
    """The `/generate` body that scores a response with the model's own log-probs and generates nothing."""
    return {
        "rid": rid,
        "input_ids": [*request.prompt, *tokens],
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": len(request.prompt) - 1,
    }


def _sampling(request: GenerateRequest, facts: Facts, eos_token_ids: Set[int]) -> dict[str, Json]:
    sampling = request.sampling
    parameters = {**_plain_parameters(sampling), "max_new_tokens": token_budget(request, facts)}
    if facts.seeded:
        parameters["sampling_seed"] = request.seed % SEEDS
    if Extra.TOP_P_TOKENS in request.want and sampling.temperature > 0:
        parameters["top_k"] = _mask_top_k(request, facts)
    if shaping_settings(sampling):
        parameters |= _shaping_parameters(request)
    if stops := sampling.stop_token_ids | eos_token_ids:
        parameters["stop_token_ids"] = list[Json](sorted(stops))
    return parameters


@functools.lru_cache(maxsize=64)
def _plain_parameters(sampling: SamplingParams) -> Mapping[str, Json]:
    parameters: dict[str, Json] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
    }
    if sampling.min_p:
        parameters["min_p"] = sampling.min_p
    if sampling.ignore_eos:
        parameters["ignore_eos"] = True
    if sampling.stop:
        parameters["stop"] = list(sampling.stop)
    return parameters


def _shaping_parameters(request: GenerateRequest) -> dict[str, Json]:
    """Settings that change the logits, adjusted for earlier tokens of an interrupted response."""
    sampling, before = request.sampling, request.prompt[len(request.prompt) - request.num_generated :]
    parameters: dict[str, Json] = {}
    for name in shaping_settings(sampling):
        if name.endswith("_penalty"):
            parameters[name] = getattr(sampling, name)
    if (least := sampling.min_new_tokens - request.num_generated) > 0:
        parameters["min_new_tokens"] = least
    biases = defaultdict[int, float](float)
    if sampling.frequency_penalty:
        for token in before:
            biases[token] -= sampling.frequency_penalty
    for token, bias in sampling.logit_bias.items():
        biases[token] += bias
    if biases:
        parameters["logit_bias"] = {str(token): bias for token, bias in biases.items()}
    return parameters


Meta: TypeAlias = Mapping[str, Json]
Span: TypeAlias = tuple[int, int]

ENDS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}
DRAFTED = (
    ("spec_num_correct_drafts", "spec_accept_token_num"),
    ("spec_num_proposed_drafts", "spec_draft_token_num"),
    ("spec_verify_ct",),
)  # SGLang's counters of speculative decoding in the order of `SpecInfo`, with the newest and the 0.5.9 name of each


def parse_output(reply: Mapping[str, Json], request: GenerateRequest) -> GenerateOutput:
    """The response to a request."""
    meta = cast(Meta, reply["meta_info"])
    # Some releases generate a token although max_new_tokens is 0.
    tokens, log_probs = _tokens_and_log_probs(reply, meta) if request.sampling.max_new_tokens else ([], [])
    finish, matched = _finish(meta)
    if finish is None:
        raise ValueError("finish_reason is null")
    spans = version_spans(meta, len(tokens))
    extras = _extras(meta, request, tokens, spans)
    return GenerateOutput(tokens, log_probs, finish, min(version for _, version in spans), matched, extras)


def with_scores(output: GenerateOutput, reply: Mapping[str, Json]) -> GenerateOutput | None:
    """A response with the log-probs of a scoring request; None if the scoring request was aborted."""
    meta = cast(Meta, reply["meta_info"])
    if _finish(meta)[0] is FinishReason.ABORT:
        return None
    count = len(output.tokens)
    entries = cast(Sequence[Sequence[float]], meta["input_token_logprobs"])[-count:]
    # SGLang reports the last id of the vocabulary as 0 here; its log-prob is right.
    if [entry[1] or token for entry, token in zip(entries, output.tokens, strict=True)] != list(output.tokens):
        raise ValueError(f"input_token_logprobs has {len(entries)} tokens that differ from the response's {count}")
    return replace(output, log_probs=[entry[0] for entry in entries])


def context_length(models: Mapping[str, Json]) -> int:
    """Context length of a server's model in tokens, from `/v1/models`."""
    return int(cast(int, cast(Sequence[Meta], models["data"])[0]["max_model_len"]))


def parse_chunk(reply: Mapping[str, Json], request: GenerateRequest, num_sent: int) -> GenerateChunk:
    """The new part of a stream event: tokens after the first `num_sent`. An event contains all tokens so far."""
    meta = cast(Meta, reply["meta_info"])
    tokens, log_probs = _tokens_and_log_probs(reply, meta)
    finish, matched = _finish(meta)
    spans = version_spans(meta, len(tokens))
    new = tokens[num_sent:]
    version = min(version for _, version in _after(spans, num_sent) or spans[-1:])
    extras = _extras(meta, request, tokens, spans) if finish is not None else None
    return GenerateChunk(new, log_probs[num_sent:], version, finish, matched, extras)


def version_spans(meta: Meta, count: int) -> Sequence[Span]:
    """Spans of tokens as (size, weight version); at least one span, even without tokens."""
    entries = cast(Sequence[Mapping[str, int]] | None, meta.get("weight_versions")) or []
    if len(entries) == 1 and entries[0]["start"] == 0 and entries[0]["end"] == count:
        return [(count, int(entries[0]["version"]))]
    spans = [(each["end"] - each["start"], int(each["version"])) for each in entries]
    runs = itertools.groupby([span for span in spans if span[0]], lambda span: span[1])
    runs_by_version = [(sum(size for size, _ in run), version) for version, run in runs]
    if not (runs_by_version and count):
        return [(count, int(cast(str, meta["weight_version"])))]
    if sum(size for size, _ in runs_by_version) != count:
        raise ValueError(f"weight_versions {entries} do not cover {count} tokens")
    return runs_by_version


def _after(spans: Sequence[Span], num_sent: int) -> list[Span]:
    left, start = list[Span](), 0
    for size, version in spans:
        start += size
        if start > num_sent:
            left.append((min(size, start - num_sent), version))
    return left


def _tokens_and_log_probs(reply: Mapping[str, Json], meta: Meta) -> tuple[list[int], list[float]]:
    tokens = cast(list[int], reply["output_ids"])
    entries = cast(Sequence[Sequence[float]], meta["output_token_logprobs"])
    if [entry[1] for entry in entries] != tokens:
        raise ValueError(f"{len(tokens)} output_ids differ from the {len(entries)} ids of output_token_logprobs")
    return tokens, [entry[0] for entry in entries]


def _finish(meta: Meta) -> tuple[FinishReason | None, int | str | None]:
    reason = cast(Meta | None, meta["finish_reason"])
    if reason is None:
        return None, None
    matched = reason.get("matched")
    return ENDS[cast(str, reason["type"])], matched if isinstance(matched, int | str) else None


def _extras(meta: Meta, request: GenerateRequest, tokens: Sequence[int], spans: Sequence[Span]) -> EngineExtras:
    want, prompt = request.want, len(request.prompt)
    cached = PrefixCacheInfo(min(cast(int, meta.get("cached_tokens") or 0), prompt), prompt)
    counted = EngineExtras(
        tuple(spans) if len(spans) > 1 else (),
        cached,
        _drafts(meta, len(tokens)),
        retractions=cast(int, meta.get("num_retractions") or 0),
    )
    if not want:
        return counted
    kept, offsets = _kept_ids(meta, len(tokens)) if Extra.TOP_P_TOKENS in want else (None, None)
    return replace(
        counted,
        routed_experts=_experts(meta) if Extra.ROUTED_EXPERTS in want else None,
        top_p_token_ids=kept,
        top_p_token_offsets=offsets,
        prompt_log_probs=_prompt(meta) if Extra.PROMPT_LOG_PROBS in want else None,
    )


def _drafts(meta: Meta, count: int) -> SpecInfo | None:
    if "spec_verify_ct" not in meta:
        return None
    accepted, drafted, verified = (
        cast(int, next((meta[name] for name in names if meta.get(name)), 0)) for names in DRAFTED
    )
    return SpecInfo(accepted, drafted, verified, count)


def _experts(meta: Meta) -> "array[int]":
    """The routed experts; empty for a model without experts, for which SGLang returns none."""
    encoded = cast(str | None, meta.get("routed_experts"))
    return array("i", base64.b64decode(encoded)) if encoded else array("i")


def _kept_ids(meta: Meta, count: int) -> "tuple[array[int], array[int]]":
    kept = cast(Sequence[Sequence[int]], meta.get("output_token_sampling_mask") or [])
    if len(kept) != count:
        raise ValueError(f"output_token_sampling_mask covers {len(kept)} tokens, not {count}")
    offsets = itertools.accumulate(map(len, kept), initial=0)
    return array("i", itertools.chain.from_iterable(kept)), array("i", offsets)


def _prompt(meta: Meta) -> list[float]:
    return [entry[0] for entry in cast(Sequence[Sequence[float]], meta["input_token_logprobs"])[1:]]
