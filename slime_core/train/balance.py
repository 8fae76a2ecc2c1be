"""Balance: what a group costs in floating-point operations, and groups dealt to ranks so that these are nearly equal.

Example:

    cost = Cost.of_config(plan.model_config())
    shares = karmarkar_karp([cost.of(prompt, responses) for prompt, responses in groups], parts=4)
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slime_core.errors import ConfigError
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiplications and additions of a training forward; the backward pass has twice as many of each kind."""

    token: float
    """Operations of one token in the matrices of all layers."""
    seen: float
    """Operations for each earlier token that a token attends to, in all layers."""
    predicted: float
    """Operations of one predicted token in the output head."""

    @classmethod
    def of_config(cls, config: Mapping[str, Json]) -> "Cost":
        """For the model of a config.json.

        Raises:
            ConfigError: it does not say how large the model is.
        """

        def number(*names: str, default: float | None = None) -> float:
            found = next((value for name in names if isinstance(value := config.get(name), int | float)), default)
            if found is None:
                raise ConfigError(f"balance_by_flops: the model's config.json has no {names[0]}: leave it out")
            return found

        width, layers = number("hidden_size", "n_embd", "d_model"), number("num_hidden_layers", "n_layer", "n_layers")
        heads = number("num_attention_heads", "n_head", "n_heads")
        queries = heads * number("head_dim", default=width / heads)
        keys = queries / heads * number("num_key_value_heads", default=heads)
        inner = number("moe_intermediate_size", "intermediate_size", "n_inner", default=4 * width)
        experts = number("num_experts_per_tok", default=1)
        # No configuration says whether the inner layer is gated: where it is, by SiLU, or by GELU in the Gemma family.
        gated = config.get("hidden_act") in ("silu", "swish") or str(config.get("model_type")).startswith("gemma")
        matrices = width * (2 * queries + 2 * keys) + (3 if gated else 2) * width * inner * experts
        return cls(2 * layers * matrices, 4 * layers * queries, 2 * width * number("vocab_size"))

    def of(self, prompt: int, responses: Sequence[int]) -> float:
        """Operations of a prompt of `prompt` tokens, computed once, and of responses of these lengths."""
        total = sum(responses)
        seen = prompt**2 / 2 + sum(length * (prompt + length / 2) for length in responses)
        return self.token * (prompt + total) + self.seen * seen + self.predicted * total


def karmarkar_karp(sizes: Sequence[float], parts: int) -> list[list[int]]:
    """Indices of `sizes` in `parts` shares of nearly equal sums, every index once.

    The largest differencing method (Karmarkar & Karp 1982, UCB/CSD 82/113): the two partial partitions that differ most
    within are joined, the largest share of one with the smallest of the other. Shares differ by at most the largest
    size.
    """
    # Each entry: (-difference, number of the entry, shares as (sum, indices), largest first).
    empty: tuple[float, tuple[int, ...]] = (0.0, ())
    heap: list[tuple[float, int, list[tuple[float, tuple[int, ...]]]]] = [
        (-size, index, [(size, (index,)), *[empty] * (parts - 1)]) for index, size in enumerate(sizes)
    ]
    heapq.heapify(heap)
    for number in range(len(sizes), 2 * len(sizes) - 1):
        (_, _, one), (_, _, other) = heapq.heappop(heap), heapq.heappop(heap)
        joined = [(a + b, left + right) for (a, left), (b, right) in zip(one, reversed(other), strict=True)]
        joined.sort(key=lambda share: (-share[0], share[1]))
        heapq.heappush(heap, (joined[-1][0] - joined[0][0], number, joined))
    return [list(indices) for _, indices in heap[0][2]] if heap else [[] for _ in range(parts)]
