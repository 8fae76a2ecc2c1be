"""What samples come to: lengths, truncation, repetition, turns, pass rates, what an engine said of its own work.

Names are slime's. What depends on the machine, or on what else an engine was at, is `perf/`.

Example:

    sample_metrics("rollout/", samples)["rollout/repetition_frac"]
    pass_rates("passrate/", [[1.0, 0.0], [0.0, 0.0]])           # {"passrate/pass@1": 0.25, "passrate/pass@2": 0.5}
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence

from slime_core.sample import Sample, Status
from slime_core.stats import percentile

PASSING_REWARD = 1.0
"""A sample passes, for pass@k, when its reward is at least this."""
ROUNDS = "round_number"
"""Where in a sample's metadata a generator says how many turns it made, as slime's do."""
LOOKED_AT, REPEATS = 10_000, 10.0
"""Characters at a response's end, and how many times smaller zlib makes them where it repeats itself; slime's."""


def sample_metrics(prefix: str, samples: Sequence[Sample]) -> dict[str, float]:
    """Lengths, truncation and repetition of some samples; nothing of none."""
    if not samples:
        return {}
    return {
        **_four(f"{prefix}response_len/", [sample.response_length for sample in samples]),
        f"{prefix}truncated_ratio": mean([sample.status is Status.TRUNCATED for sample in samples]),
        f"{prefix}repetition_frac": mean([repeats_itself(sample.response) for sample in samples]),
    }


def repeats_itself(text: str) -> bool:
    """Whether a long text is the same again and again: its end shrinks to less than a tenth."""
    if len(text) <= LOOKED_AT:
        return False
    end = text[-LOOKED_AT:].encode("utf-8", "surrogatepass")
    return len(end) > REPEATS * len(zlib.compress(end, 9))


def turns(samples: Sequence[Sample]) -> dict[str, float]:
    """Lengths with and without what tools said, where they said something; turns, where a generator counts them."""
    found: dict[str, float] = {}
    whole = [sample.response_length for sample in samples]
    own = [sample.effective_response_length for sample in samples]
    if whole != own:
        found |= _three("multi_turn/raw_response_length/response_length_", whole)
        found |= _three("multi_turn/wo_obs_response_length/response_length_", own)
    counted = [each for sample in samples if isinstance(each := sample.metadata.get(ROUNDS), int)]
    return found | (_three("multi_turn/multi_turn_metric/round_number_", counted) if counted else {})


def pass_rates(prefix: str, rewards: Sequence[Sequence[float]]) -> dict[str, float]:
    """`pass@1`, `pass@2`, `pass@4`, … of prompts with several samples, by their rewards; nothing of single ones."""
    size = max(map(len, rewards), default=0)
    powers = [2**power for power in range(size.bit_length())] if size > 1 else []
    return {f"{prefix}pass@{k}": pass_at_k(rewards, k) for k in powers}


def pass_at_k(rewards: Sequence[Sequence[float]], k: int) -> float:
    """Mean chance that one of k samples passes, from n samples of each prompt of which c pass.

    The unbiased estimator 1 - C(n-c, k) / C(n, k) of Chen et al. 2021 (arXiv:2107.03374), eq. 1; prompts of fewer
    than k samples are left out.
    """
    chances = [
        _pass_at_k(len(each), sum(reward >= PASSING_REWARD for reward in each), k) for each in rewards if len(each) >= k
    ]
    return mean(chances)


def _pass_at_k(n: int, c: int, k: int) -> float:
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def speculation(samples: Sequence[Sample]) -> dict[str, float]:
    """What came of speculative decoding, over all tokens of some samples; nothing where none was done.

    It depends on what else the engine was at, and so not on the run's seed alone.
    """
    known = [sample.spec_info for sample in samples if sample.spec_info.spec_verify_ct]
    if not known:
        return {}
    accepted, drafted = (sum(getattr(each, f"spec_{name}_token_num") for each in known) for name in ("accept", "draft"))
    made = sum(each.completion_token_num for each in known)
    found = {"perf/spec_accept_length": made / sum(each.spec_verify_ct for each in known)}
    return {**found, "perf/spec_accept_rate": accepted / drafted} if drafted else found


def caching(samples: Sequence[Sample]) -> dict[str, float]:
    """What prompts an engine had computed before, over some samples; nothing where no engine says."""
    known = [sample.prefix_cache_info for sample in samples]
    if not (prompts := sum(each.total_prompt_tokens for each in known)):
        return {}
    cached = sum(each.cached_tokens for each in known)
    return {
        "perf/prefix_cache_hit_rate": cached / prompts,
        "perf/avg_cached_tokens_per_sample": cached / len(known),
    }


def non_generation(seconds: Sequence[float]) -> dict[str, float]:
    """Seconds in tools and environments, one number an execution; nothing where there were none."""
    return _four("perf/non_generation_time/", seconds) if any(seconds) else {}


def measured_metrics(prefix: str, measured: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Mean and 99th percentile, nearest rank, of what generators measured."""
    found: dict[str, float] = {}
    for name, values in sorted(measured.items()):
        found[f"{prefix}{name}/mean"] = mean(values)
        found[f"{prefix}{name}/p99"] = percentile(sorted(values), 0.99)
    return found


def mean(numbers: Sequence[float]) -> float:
    """Arithmetic mean of at least one number."""
    return sum(numbers) / len(numbers)


def _three(prefix: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{prefix}mean": mean(values), f"{prefix}max": float(max(values)), f"{prefix}min": float(min(values))}


def _four(prefix: str, values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {**_three(prefix, ordered), f"{prefix}median": float(median)}
