"""Data for the tests: models with random weights, steps of samples split into shares, setups.

Example:

    model = write_model(folder / "qwen3", "qwen3", tie_word_embeddings=True)
    (step,) = steps_of(model, count=1)
    batches = dealt(step, shares=2)
"""

import json
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from slime_core.roles import Choice, Optim, PluginSet, RankSetup, SampleField, TrainBatch
from slime_train import Algorithm, GrpoSettings, PolicyLossSettings, Share, discover_in_worker
from slime_trainer_megatron.arguments import settings_model
from slime_trainer_megatron.config_json import mtp_layer_count, read_directory, with_mtp
from slime_trainer_megatron.families import Model

CONFIG: Mapping[str, object] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}
STRETCHED: Mapping[str, object] = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
CLASSES = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
BY_SIGMOIDS: Mapping[str, object] = {
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 0,
}
OWN: Mapping[str, Mapping[str, object]] = {
    "deepseek_v3": {
        **BY_SIGMOIDS,
        "num_key_value_heads": 4,
        "q_lora_rank": 20,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "head_dim": 8,
    },
    "glm4": {"attention_bias": True, "partial_rotary_factor": 0.5, "pad_token_id": None},
    "glm4_moe": {**BY_SIGMOIDS, "attention_bias": True, "use_qk_norm": True, "partial_rotary_factor": 0.5},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True},
}
"""Config keys that only one family has."""
YARN: Mapping[str, object] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
    "original_max_position_embeddings": 16,
}
TEMPERATURE = 0.8
GROUPS, EACH = 8, 4


def write_model(directory: Path, family: str, *, seed: int = 0, **changes: object) -> Path:
    """Write a model directory without a tokenizer; every weight affects the output."""
    directory.mkdir(parents=True)
    config = {**CONFIG, "model_type": family, "architectures": [CLASSES[family]], **OWN.get(family, {}), **changes}
    draw = torch.Generator().manual_seed(seed)
    slots = [slot for weight in with_mtp(config, mtp_layer_count(config)).weights() for slot in weight.hf]
    tensors = {slot.name: torch.randn(slot.shape, generator=draw) * 0.12 + ("norm" in slot.name) for slot in slots}
    (directory / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    return directory


@dataclass(frozen=True)
class Row:
    """A sample."""

    group: int
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    mask: tuple[int, ...]
    log_probs: tuple[float, ...]
    reward: float
    routes: tuple[int, ...] | None = None
    """Experts of all tokens but the last, in every layer."""


def steps_of(model: Path, count: int) -> list[list[Row]]:
    """Steps of eight groups of four samples; their log-probs are close to the local trainer's."""
    from slime_local.model import GroupTokens, load_model

    draw, local = random.Random(0), load_model(model)
    routes = Routes(read_directory(model))
    weights = torch.empty(local.numel)
    local.read_into(weights)
    local.bind(weights)
    made = []
    for _ in range(count):
        rows = []
        for group in range(GROUPS):
            prompt = tuple(draw.randrange(3, 97) for _ in range(draw.randrange(2, 25)))
            texts = [tuple(draw.randrange(3, 97) for _ in range(draw.randrange(1, 41))) for _ in range(EACH)]
            found = local.log_probs([GroupTokens(prompt, tuple(texts))], temperature=TEMPERATURE).log_probs_T.tolist()
            for text in texts:
                near, found = found[: len(text)], found[len(text) :]
                noisy = tuple(each + draw.gauss(0, 0.1) for each in near)
                mask = tuple(int(draw.random() < 0.9) for _ in text)
                reward = float(draw.random() < 0.5)
                rows.append(Row(group, prompt, text, mask, noisy, reward, routes.drawn(len(prompt) + len(text) - 1)))
        made.append(rows)
    return made


class Routes:
    """Draws random experts for tokens; every fourth sample has none."""

    def __init__(self, model: Model) -> None:
        self._draw, self._model, self._count = random.Random(1), model, 0

    def drawn(self, tokens: int) -> tuple[int, ...] | None:
        self._count += 1
        experts = self._model.experts
        if experts is None or self._count % 4 == 0:
            return None
        each = [self._draw.sample(range(experts.count), experts.chosen) for _ in range(tokens * self._model.layers)]
        return tuple(expert for chosen in each for expert in chosen)


def dealt(rows: Sequence[Row], shares: int, rollout: int = 0, step: int = 0) -> list[TrainBatch]:
    """A step of a rollout, split into shares of whole groups."""
    tokens = sum(sum(row.mask) for row in rows)
    samples = sum(any(row.mask) for row in rows)
    return [
        _batch(
            [(at, row) for at, row in enumerate(rows) if row.group % shares == share], tokens, samples, rollout, step
        )
        for share in range(shares)
    ]


def _batch(rows: Sequence[tuple[int, Row]], tokens: int, samples: int, rollout: int, step: int) -> TrainBatch:
    groups = sorted({row.group for _, row in rows})
    prompts = {row.group: row.prompt for _, row in rows}
    return TrainBatch(
        prompts_P=tuple(prompts[group] for group in groups),
        prompt_index_S=array("i", [groups.index(row.group) for _, row in rows]),
        group_index_S=array("i", [row.group for _, row in rows]),
        rollout_index_S=array("i", [at for at, _ in rows]),
        response_lengths_S=array("i", [len(row.response) for _, row in rows]),
        rewards_S=array("d", [row.reward for _, row in rows]),
        weights_S=array("d", [1.0] * len(rows)),
        tokens_T=array("i", [token for _, row in rows for token in row.response]),
        loss_mask_T=array("b", [each for _, row in rows for each in row.mask]),
        rollout_log_probs_T=array("f", [each for _, row in rows for each in row.log_probs]),
        step_tokens=tokens,
        step_samples=samples,
        rollout_id=rollout,
        step=step,
        fields_S={SampleField.ROLLOUT_ROUTED_EXPERTS: tuple(row.routes for _, row in rows)},
    )


def setup_of(model: Path, folder: Path, settings: Mapping[str, object], **fields: object) -> RankSetup:
    """Setup of a Megatron rank; ranks rendezvous in `folder`."""
    usual: dict[str, object] = {
        "optim": Optim(1e-4, 0, "constant", 0.0, 0.9, 0.95, 1e-8, 0.01, 1.0, train_steps=10),
        "advantage": Choice("advantage", "slime-train/grpo", "slime-train", GrpoSettings()),
        "loss": Choice("loss", "slime-train/policy_loss", "slime-train", PolicyLossSettings()),
        "correction": None,
        "plugins": PluginSet(only=()),
        "settings": settings_model().model_validate(settings),
        "rollout_temperature": TEMPERATURE,
        "calculate_per_token_loss": True,
        "seed": 0,
        "rendezvous": f"file://{folder}/rendezvous",
    }
    return RankSetup(hf_checkpoint=model, **{**usual, **fields})  # type: ignore[arg-type]


def trained_on(share: Share, setup: RankSetup) -> Sequence[int]:
    """The samples that a step of this setup computes."""
    algorithm = Algorithm.in_rank(discover_in_worker(setup.plugins, "trainer 0"), setup, lambda mine: mine)
    (estimated,) = algorithm.estimate([share])
    return share.samples_with(algorithm.signal(estimated))


def signal_of(share: Share, samples: Sequence[int]) -> torch.Tensor:
    """A signal [T] that only these samples have."""
    return torch.zeros_like(share.mask_T).index_fill(0, share.tokens_of(samples), 1.0)
