"""Every family on one rank, against transformers: log-probs, and the gradient of a sum of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from layout_runs import unfused
from models_and_steps import STRETCHED, TEMPERATURE, YARN, dealt, setup_of, signal_of, steps_of, write_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from slime_train import Share
from slime_trainer_megatron.config_json import read_directory
from slime_trainer_megatron.convert import split
from slime_trainer_megatron.packing import Pack, pack_samples
from slime_trainer_megatron.rank import MegatronRank

CASES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "qwen2": ("qwen2", {}),
    "qwen3, tied": ("qwen3", {"tie_word_embeddings": True}),
    "llama": ("llama", {"rope_parameters": STRETCHED}),
    "qwen3_moe": ("qwen3_moe", {}),
    "glm4": ("glm4", {}),
    "glm4, whole heads turned": ("glm4", {"attention_bias": False, "partial_rotary_factor": 1.0}),
    "glm4_moe": ("glm4_moe", {}),
    "glm4_moe, experts everywhere": ("glm4_moe", {"first_k_dense_replace": 0, "n_group": 1, "topk_group": 1}),
    "deepseek_v3": ("deepseek_v3", {}),
    "deepseek_v3, stretched": ("deepseek_v3", {"rope_parameters": YARN, "q_lora_rank": None}),
    "deepseek_v3, wide norms": ("deepseek_v3", {"rms_norm_eps": 1e-3, "topk_group": 4, "num_experts_per_tok": 3}),
}
SAMPLES = (0, 5, 9)


@pytest.fixture(params=CASES)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    family, changes = CASES[request.param]
    return write_model(tmp_path / "model", family, **changes)


def sum_of(log_probs: torch.Tensor) -> torch.Tensor:
    """Write each family with different weights, so that no test passes on another family's weights."""
    return log_probs @ torch.linspace(-1, 1, len(log_probs))


def by_transformers(model: PreTrainedModel, pack: Pack) -> torch.Tensor:
    texts = [pack.tokens[None, start:end] for start, end in pairwise(pack.ends.tolist())]
    logits = torch.cat([model(text, use_cache=False).logits[0] for text in texts])
    rows = (logits[pack.rows] / TEMPERATURE).log_softmax(-1)
    return rows.gather(1, pack.labels[:, None])[:, 0]


def test_log_probs_gradients_and_step_match_transformers(model: Path, tmp_path: Path) -> None:
    from slime_trainer_megatron.model import own_parameters

    (rows,) = steps_of(model, 1)
    usual = setup_of(model, tmp_path, {"num_gpus": 1})
    setup = replace(usual, optim=replace(usual.optim, weight_decay=0.0))
    rank, share = MegatronRank(0, 1, setup), Share.of(dealt(rows, 1)[0], setup)
    pack = pack_samples(share, SAMPLES, (0, 1), 1)
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    wanted = by_transformers(theirs, pack)
    sum_of(wanted).backward()
    log_probs = list[torch.Tensor]()

    def use(samples: Sequence[int], found: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        log_probs.append(found[0].detach())
        return sum_of(found[0])

    rank.passes.run(share, signal_of(share, SAMPLES), use, trains=True)
    (found,) = log_probs
    assert (found - wanted).abs().max() < 2e-6
    gradients = unfused({name: each.grad for name, each in theirs.named_parameters() if each.grad is not None})
    scale = max(float(each.abs().max()) for each in gradients.values())
    seen = set[str]()
    whole = read_directory(model)
    for weight, parameter in own_parameters(rank.policy, whole).values():
        made = getattr(parameter, "main_grad", None)  # the bias of a router has none
        for slot, gradient in zip(weight.hf, split(whole, weight, made) if made is not None else (), strict=False):
            seen.add(slot.name)
            # transformers has no gradient for an expert without tokens.
            far = gradient - gradients.get(slot.name, torch.zeros_like(gradient))
            assert far.abs().max() < 2e-6 * max(1.0, scale), slot.name
    assert seen >= gradients.keys()
    optim = setup.optim
    optimizer = torch.optim.AdamW(
        theirs.parameters(), optim.lr, (optim.adam_beta1, optim.adam_beta2), optim.adam_eps, 0
    )
    torch.nn.utils.clip_grad_norm_(theirs.parameters(), optim.clip_grad)
    optimizer.step()
    rank.optimizer.step(rank.optimizer.prepare())
    stepped = unfused({name: each.detach() for name, each in theirs.named_parameters()})
    for name, each in rank.weights():
        # AdamW's first step has the same size for every gradient, so a gradient that is only rounding has any sign.
        sure = gradients.get(name, torch.zeros_like(each)).abs() > 1e-4 * scale
        assert ((each - stepped[name]).abs() * sure).max() <= 2e-6 if name in stepped else not sure.any(), name
