"""The wire that slime's functions speak to SGLang, `POST /generate`, answered by the run's own engine.

Example:

    answer = await answer_generate(call, {"input_ids": [1, 5], "sampling_params": {"max_new_tokens": 8}})
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from slime_compat.call import Call
from slime_core.roles import GenerateOutput, SamplingParams
from slime_core.sample import Json

IGNORED = frozenset({"skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "sampling_seed", "n"})
"""Sampling keys that change nothing here: tokens come back whole, seeds are derived from the sample's identity."""


class WireError(ValueError):
    """A request that the engine role cannot serve."""


async def answer_generate(call: Call, payload: Mapping[str, Json]) -> dict[str, Json]:
    """Serve one request; the answer has SGLang's shape.

    Raises:
        WireError: it asks for something that no engine is asked for here.
    """
    if payload.get("stream"):
        raise WireError("stream = true is not served; leave it out")
    prompt = payload.get("input_ids")
    if isinstance(prompt, list):
        ids = [int(cast(int, each)) for each in prompt]
    elif isinstance(text := payload.get("text"), str):
        ids = call.ctx.tokenizer.encode(text)
    else:
        raise WireError("expected input_ids, a list of ints, or text, a string")
    given = payload.get("sampling_params") or {}
    if not isinstance(given, dict):
        raise WireError("sampling_params must be an object")
    output = await call.generate(ids, sampling_of(given, call.ctx.sampling))
    return _answer(call, ids, output)


def sampling_of(given: Mapping[str, Json], default: SamplingParams) -> SamplingParams:
    """SGLang's sampling parameters as the core's.

    Raises:
        WireError: a key that the engine role does not have.
    """
    known = {"max_new_tokens", "temperature", "top_p", "top_k", "stop_token_ids", "stop"}
    if strange := sorted(given.keys() - known - IGNORED):
        raise WireError(f"sampling_params {', '.join(strange)} is not served; served are {', '.join(sorted(known))}")
    if given.get("stop"):
        raise WireError("stop strings are not served; give stop_token_ids")
    changes = {
        name: given[name] for name in ("max_new_tokens", "temperature", "top_p", "top_k") if given.get(name) is not None
    }
    ids = cast("list[int] | None", given.get("stop_token_ids"))
    if ids is not None:
        changes["stop_token_ids"] = frozenset(ids)  # type: ignore[assignment]
    return replace(default, **changes)  # type: ignore[arg-type]


def sampling_params(sampling: SamplingParams) -> dict[str, Json]:
    """The core's sampling parameters as the dict that slime hands to a custom generate function."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_new_tokens": sampling.max_new_tokens,
        "stop": None,
        "stop_token_ids": list[Json](sorted(sampling.stop_token_ids)),
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "spaces_between_special_tokens": False,
    }


def _answer(call: Call, prompt: list[int], output: GenerateOutput) -> dict[str, Json]:
    pairs: list[Json] = [
        [log_prob, token, None] for log_prob, token in zip(output.log_probs, output.tokens, strict=True)
    ]
    return {
        "text": call.ctx.tokenizer.decode(output.tokens),
        "output_ids": list(output.tokens),
        "meta_info": {
            "finish_reason": {"type": output.finish.value},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(output.tokens),
            "cached_tokens": 0,
            "weight_version": str(output.weight_version),
            "output_token_logprobs": pairs,
        },
    }
