"""Recomputation for the backward pass happens, and gives the same results."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from models_and_steps import dealt, setup_of, steps_of, write_model

from slime_trainer_megatron.rank import MegatronRank

SOME = {"num_gpus": 1, "max_tokens_per_gpu": 300}


@pytest.mark.parametrize(
    ("part", "module"),
    [
        ("mla_up_proj", "self_attention.linear_kv_up_proj"),
        ("shared_experts", "mlp.shared_experts.linear_fc1"),
        ("moe", "mlp.router"),
        ("core_attn", "self_attention.core_attention"),
    ],
)
def test_recomputation_is_bitwise_equal(part: str, module: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "deepseek_v3", num_hidden_layers=2)
    (rows,) = steps_of(model, 1)
    again = {**SOME, "recompute_granularity": "selective", "recompute_modules": [part]}
    plain, other = (MegatronRank(0, 1, setup_of(model, tmp_path, settings)) for settings in (SOME, again))
    calls = Counter[str]()
    for name, rank in (("plain", plain), ("other", other)):
        watched = rank.policy.get_submodule(f"decoder.layers.1.{module}")
        watched.register_forward_hook(lambda *given, name=name: calls.update([name]))
    batch = dealt(rows, 1)[0]
    assert plain.train_step(batch).scalars == other.train_step(batch).scalars
    assert all(torch.equal(mine, each) for (_, mine), (_, each) in zip(plain.weights(), other.weights(), strict=True))
    assert calls["other"] == 2 * calls["plain"] > 0
