"""What an engine says of an answer beyond its tokens: every column has its length, and nothing wanted is missing."""

from array import array
from collections.abc import Iterator, Sequence

from slime_core._numbers import all_finite
from slime_core.catalog.checks._refuse import refuse
from slime_core.errors import ContractError
from slime_core.roles import EngineExtras, GenerateOutput, GenerateRequest
from slime_core.sample import PrefixCacheInfo, SpecInfo

KINDS = {
    "versions": tuple,
    "prefix_cache_info": PrefixCacheInfo,
    "spec_info": SpecInfo,
    "routed_experts": array,
    "top_p_token_ids": array,
    "top_p_token_offsets": array,
    "prompt_log_probs": Sequence,
    "top_log_probs": Sequence,
    "server": str,
    "retractions": int,
}
"""Type of each field that is not None."""


def check_extras(where: str, output: GenerateOutput, request: GenerateRequest) -> None:
    """See that the extras of an answer fit its tokens, and hold what the request wants.

    Raises:
        ContractError: they are not, or do not.
    """
    extras: object = output.extras
    if extras is None:
        extras = EngineExtras()
    elif not isinstance(extras, EngineExtras):
        refuse(f"{where}, extras", "an EngineExtras, or None", extras)
    for name, kind in KINDS.items():
        value = getattr(extras, name)
        if value is not None and not isinstance(value, kind):
            refuse(f"{where}, extras.{name}", f"a value of {kind.__name__}", value)
    missing = sorted(extra.value for extra in request.want if extras.lacks(extra)) if len(output.tokens) else []
    if missing:
        raise ContractError(f"{where}: the request wants {', '.join(missing)}, and the extras have none")
    if problems := list(_misshapen(extras, output, len(request.prompt))):
        raise ContractError(f"{where}, extras: {'; '.join(problems)}")


def _misshapen(extras: EngineExtras, output: GenerateOutput, prompt: int) -> Iterator[str]:
    """What does not fit a prompt of so many tokens and its answer."""
    count = len(output.tokens)
    yield from _misplaced(extras, output)
    if extras.routed_experts is not None:
        seen, size = max(0, prompt + count - 1), len(extras.routed_experts)
        if size % seen if seen else size:
            yield f"routed_experts has {size} entries for {seen} tokens (all but the last); expected a multiple"
    if (extras.top_p_token_ids is None) is not (extras.top_p_token_offsets is None):
        yield "one of top_p_token_ids and top_p_token_offsets is there without the other"
    elif extras.top_p_token_ids is not None and extras.top_p_token_offsets is not None:
        offsets, size = extras.top_p_token_offsets.tolist(), len(extras.top_p_token_ids)
        if len(offsets) != count + 1 or offsets != sorted(offsets) or (offsets[0], offsets[-1]) != (0, size):
            yield f"top_p_token_offsets must be {count + 1} ascending numbers from 0 to {size}, the end of the ids"
    if extras.prompt_log_probs is not None:
        size = len(extras.prompt_log_probs)
        if size != max(0, prompt - 1):
            yield f"prompt_log_probs has {size} entries for a prompt of {prompt} tokens; expected {max(0, prompt - 1)}"
        if not all_finite(extras.prompt_log_probs):
            yield "prompt_log_probs holds NaN or infinity"
    if extras.top_log_probs is not None:
        size = len(extras.top_log_probs)
        if size != count:
            yield f"top_log_probs has {size} entries for {count} tokens"
        if not all_finite([log_prob for likeliest in extras.top_log_probs for _, log_prob in likeliest]):
            yield "top_log_probs holds NaN or infinity"


def _misplaced(extras: EngineExtras, output: GenerateOutput) -> Iterator[str]:
    """What is wrong with the spans of weight versions."""
    if not extras.versions:
        return
    counts, versions = ([span[part] for span in extras.versions] for part in range(2))
    if sum(counts) != len(output.tokens) or min(counts) < 1:
        yield f"versions are of {counts} tokens, and there are {len(output.tokens)}"
    if versions != sorted(set(versions)):
        yield f"versions are {versions}; expected the oldest first, each once"
    if min(versions) != output.weight_version:
        yield f"versions are {versions}, and weight_version is {output.weight_version}; expected the oldest of them"
