"""Replies: what an engine has made so far, as SGLang's `/generate` tells it.

Example:

    result(prompt, Made([5, 6], [-0.1, -2.0], FinishReason.LENGTH), tokenizer, "default")
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from slime_core.roles import EngineExtras, FinishReason, SamplingParams, Tokenizer
from slime_core.sample import Json
from slime_engine_sglang.serve.bodies import Prompt


@dataclass(slots=True)
class Made:
    """A response so far."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    matched: int | str | None = None
    extras: EngineExtras | None = None
    version: int | None = None
    """Of the weights that made it; None where there is nothing."""


def result(prompt: Prompt, made: Made, tokenizer: Tokenizer, version: str) -> dict[str, Json]:
    """An event of a stream, or the whole answer, as SGLang writes it."""
    count = len(made.tokens)
    meta: dict[str, Json] = {
        "id": prompt.rid,
        "finish_reason": finish_reason(made),
        "prompt_tokens": len(prompt.request.prompt),
        "completion_tokens": count,
        "cached_tokens": 0,
        "weight_version": version,
        "weight_versions": [{"version": version, "start": 0, "end": count}] if count else [],
    }
    if prompt.log_probs:
        entries = zip(made.log_probs, made.tokens, strict=True)
        meta["input_token_logprobs"] = _scored(prompt, made.extras)
        meta["output_token_logprobs"] = [[log_prob, token, None] for log_prob, token in entries]
    return {
        "text": text_of(made, tokenizer, prompt.request.sampling),
        "output_ids": list(made.tokens),
        "meta_info": meta,
    }


def finish_reason(made: Made) -> Json:
    """As SGLang has it; None while it goes on."""
    match made.finish:
        case None:
            return None
        case FinishReason.STOP:
            return {"type": "stop", "matched": made.matched}
        case FinishReason.LENGTH:
            return {"type": "length", "length": len(made.tokens)}
        case FinishReason.ABORT:
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def text_of(made: Made, tokenizer: Tokenizer, asked: SamplingParams) -> str:
    """The text, without what ended it unless `no_stop_trim` says otherwise."""
    trims = made.finish is FinishReason.STOP and not asked.no_stop_trim
    tokens = made.tokens[:-1] if trims and isinstance(made.matched, int) else made.tokens
    text = tokenizer.decode(tokens, skip_special_tokens=asked.skip_special_tokens)
    return text.partition(made.matched)[0] if trims and isinstance(made.matched, str) else text


def _scored(prompt: Prompt, extras: EngineExtras | None) -> list[Json]:
    """Entries of the prompt's tokens from one of them on; the first that is told has no log-prob."""
    ids, start = prompt.request.prompt, prompt.scored_from
    told: Sequence[float] | None = extras.prompt_log_probs if extras is not None else None
    if told is None or start < 0:
        return []
    log_probs = [None, *told][start:]
    return [
        [log_prob if place else None, token, None]
        for place, (log_prob, token) in enumerate(zip(log_probs, ids[start:], strict=True))
    ]
