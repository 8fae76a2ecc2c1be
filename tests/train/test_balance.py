"""Dealing groups to ranks by what they cost: every one once, and close to even."""

import random
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from slime_core.batching.split import Cost, karmarkar_karp
from slime_core.errors import ConfigError
from tests.tables import table

SIZES = st.lists(st.floats(0.0, 1e6), max_size=40)


@given(sizes=SIZES, parts=st.integers(1, 6))
def test_every_one_is_dealt_once_and_shares_differ_by_the_largest_at_most(sizes: list[float], parts: int) -> None:
    shares = karmarkar_karp(sizes, parts)
    assert len(shares) == parts
    assert sorted(index for share in shares for index in share) == list(range(len(sizes)))
    sums = [sum(sizes[index] for index in share) for share in shares]
    assert max(sums) - min(sums) <= max(sizes, default=0.0) * (1 + 1e-9) + 1e-6


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8), parts=st.integers(2, 3))
def test_the_largest_share_is_close_to_the_best_there_is(sizes: list[int], parts: int) -> None:
    """Within 4/3 of the optimum, which an exhaustive search finds: no worse than longest first is."""
    best = min(
        max(sum(size for size, owner in zip(sizes, owners, strict=True) if owner == part) for part in range(parts))
        for owners in product(range(parts), repeat=len(sizes))
    )
    found = max(sum(sizes[index] for index in share) for share in karmarkar_karp(sizes, parts))
    assert best <= found <= best * 4 / 3


@table("family", ["llama", "gpt2", "qwen3", "gemma", "gemma2"])
def test_a_cost_is_what_torch_counts(family: str) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4}
    more = {"vocab_size": 50, "n_inner": 80} if family == "gpt2" else {"vocab_size": 50, "num_key_value_heads": 2}
    config = AutoConfig.for_model(family, **sizes, **more, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config)
    cost = Cost.of_config(config.to_dict())
    for length in (8, 64):
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            model(torch.zeros(1, length, dtype=torch.long))
        whole = counted.get_total_flops()
        # Hugging Face multiplies what the mask hides too, and predicts from the prompt's tokens.
        expected = cost.token * length + cost.seen * length**2 + cost.predicted * length
        assert whole == pytest.approx(expected, rel=0.01)


def test_a_group_shares_its_prompt_and_attends_to_it() -> None:
    cost = Cost(token=1.0, seen=10.0, predicted=100.0)
    assert cost.of(4, [2, 3]) == (4 + 5) + 10.0 * (8 + 2 * (4 + 1) + 3 * (4 + 1.5)) + 100.0 * 5


def differencing(sizes: list[float], parts: int) -> list[float]:
    """Sums that the method ends with, sorted: of lists of sums, join the two that differ most within."""
    left = [[0.0] * (parts - 1) + [size] for size in sizes]
    while len(left) > 1:
        left.sort(key=lambda sums: sums[-1] - sums[0])
        one, other = left.pop(), left.pop()
        left.append(sorted(low + high for low, high in zip(one, reversed(other), strict=True)))
    return left[0]


@table("parts", [2, 3, 4])
@table("seed", range(6))
def test_it_is_the_largest_differencing_method_whatever_the_unit(parts: int, seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.random() for _ in range(13)]
    shares = karmarkar_karp(sizes, parts)
    sums = sorted(sum(sizes[index] for index in share) for share in shares)
    assert sums == pytest.approx(differencing(sizes, parts), rel=1e-9)
    assert karmarkar_karp([size * 2**40 for size in sizes], parts) == shares
    assert karmarkar_karp([size / 2**40 for size in sizes], parts) == shares


SIZES_OF_A_MODEL = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 100,
    "vocab_size": 50,
}


@table(
    "names",
    [
        {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
        {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
        {"intermediate_size": "n_inner"},
    ],
)
def test_what_other_families_call_a_size_is_the_same_size(names: dict[str, str]) -> None:
    other = {names.get(name, name): size for name, size in SIZES_OF_A_MODEL.items()}
    assert Cost.of_config(other) == Cost.of_config(SIZES_OF_A_MODEL)


def test_a_cost_by_hand() -> None:
    """Attention 4 matrices of 64 x 64, the inner layer 2 of 64 x 100, or 3 where it is gated; two operations each."""
    plain = Cost.of_config(SIZES_OF_A_MODEL)
    assert plain == Cost(2 * 3 * (4 * 64 * 64 + 2 * 64 * 100), 4 * 3 * 64, 2 * 64 * 50)
    for gate in ("silu", "swish"):
        assert Cost.of_config({**SIZES_OF_A_MODEL, "hidden_act": gate}).token == 2 * 3 * (4 * 64 * 64 + 3 * 64 * 100)
    assert Cost.of_config({**SIZES_OF_A_MODEL, "hidden_act": "gelu"}) == plain
    gemma = {**SIZES_OF_A_MODEL, "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh"}
    assert Cost.of_config(gemma).token == 2 * 3 * (4 * 64 * 64 + 3 * 64 * 100)
    experts = {**SIZES_OF_A_MODEL, "num_experts_per_tok": 4}
    assert Cost.of_config(experts).token == 2 * 3 * (4 * 64 * 64 + 4 * 2 * 64 * 100)
    assert Cost.of_config({**experts, "moe_intermediate_size": 10}).token == 2 * 3 * (4 * 64 * 64 + 4 * 2 * 64 * 10)
    wide = {name: size for name, size in SIZES_OF_A_MODEL.items() if name != "intermediate_size"}
    assert Cost.of_config(wide).token == 2 * 3 * (4 * 64 * 64 + 2 * 64 * 256)
    few = {**SIZES_OF_A_MODEL, "head_dim": 32, "num_key_value_heads": 2}
    assert Cost.of_config(few) == Cost(2 * 3 * (2 * 64 * 128 + 2 * 64 * 64 + 2 * 64 * 100), 4 * 3 * 128, 2 * 64 * 50)


@table("name", [name for name in SIZES_OF_A_MODEL if name != "intermediate_size"])
def test_the_size_that_is_missing_is_named(name: str) -> None:
    config = {key: size for key, size in SIZES_OF_A_MODEL.items() if key != name}
    with pytest.raises(ConfigError, match=rf"the model's config.json has no {name}: leave it out"):
        Cost.of_config(config)


def test_a_model_of_unknown_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"balance_by_flops: the model's config.json has no hidden_size"):
        Cost.of_config({"vocab_size": 5})
