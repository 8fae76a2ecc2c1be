"""What is trained: all weights, some by name, or low-rank updates; the rest stays, and a resume is exact."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from slime_core.errors import ModelError
from slime_core.roles import Optim
from slime_local.model import GroupTokens, LocalModel, load_model
from slime_local.optimizer import FlatAdamW
from slime_local.parameters import Parameters, trained_parameters
from slime_local.settings import LocalTrainerSettings
from tests.tables import table

GROUPS = [GroupTokens([5, 6, 7], [[8, 9], [8, 10, 2]]), GroupTokens([11, 12], [[13, 2]])]
TinyHf = Callable[..., Path]
OPTIM = Optim(1e-2, 0, "constant", 0.0, 0.9, 0.95, 1e-8, 0.01, 1.0, train_steps=9)


class Training:
    """Steps on the log-probs of fixed texts."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.model: LocalModel = load_model(directory)
        self.weights = self.model.flat.clone()
        self.model.bind(self.weights)
        chosen = LocalTrainerSettings.model_validate(settings)
        self.parameters: Parameters = trained_parameters(self.model, self.weights, chosen, seed=3)
        self.model.trained = self.parameters.trained
        self.optimizer = FlatAdamW(self.parameters.vector, self.parameters.decayed, OPTIM)

    def loss(self, gradient: torch.Tensor | None = None) -> torch.Tensor:
        return -self.model.log_probs(GROUPS, grad=gradient).log_probs_T.sum()

    def step(self) -> float:
        full = torch.zeros(self.model.numel)
        loss = self.loss(full)
        loss.backward()
        gradient = self.parameters.gradient(full)
        self.optimizer.step(gradient, float(gradient.norm()))
        self.parameters.apply()
        return loss.item()

    def changed(self, before: torch.Tensor) -> set[str]:
        return {slot.name for slot in self.model.layout if not torch.equal(slot.view(before), slot.view(self.weights))}


FAMILIES = pytest.mark.parametrize("family", ["qwen3", "gpt2"])  # the fast path, and the plain one
LORA = {"lora_rank": 4, "lora_alpha": 8.0}


@FAMILIES
def test_lora_makes_low_rank_updates_and_lowers_the_loss(tiny_hf: TinyHf, family: str) -> None:
    training = Training(tiny_hf(family), **LORA)
    before = training.weights.clone()
    losses = [training.step() for _ in range(8)]
    assert losses[-1] < losses[0]
    assert training.changed(before) == training.parameters.trained
    for slot in training.model.layout:
        update = slot.view(training.weights) - slot.view(before)
        if slot.name in training.parameters.trained:
            singular = torch.linalg.svdvals(update.double())
            assert singular[4] < 1e-4 * singular[0]
    assert not any("embed" in name or "lm_head" in name or "wte" in name for name in training.parameters.trained)


@FAMILIES
def test_lora_gradient_matches_finite_differences(tiny_hf: TinyHf, family: str) -> None:
    training = Training(tiny_hf(family), **LORA)
    for _ in range(2):
        training.step()  # so that B is not 0
    full = torch.zeros(training.model.numel)
    training.loss(full).backward()
    gradient = training.parameters.gradient(full)
    draw = torch.Generator().manual_seed(0)
    direction = torch.randn(len(gradient), generator=draw)
    direction /= direction.norm()
    losses, size = [], 3e-3
    for sign in (1, -2):
        training.parameters.vector.add_(direction, alpha=sign * size)
        training.parameters.apply()
        losses.append(training.loss().item())
    assert (losses[0] - losses[1]) / (2 * size) == pytest.approx(float(gradient @ direction), rel=0.02, abs=0.01)


def test_merged_lora_equals_the_unmerged_forward(tiny_hf: TinyHf) -> None:
    """Against Hugging Face's own layers with x A^T B^T added to each output, as LoRA is defined."""
    directory = tiny_hf("llama")
    training = Training(directory, **LORA)
    for _ in range(3):
        training.step()
    hf = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    offset, vector = 0, training.parameters.vector
    for slot in training.model.layout:
        if slot.name not in training.parameters.trained:
            continue
        rows, columns = slot.shape
        a = vector[offset : offset + 4 * columns].view(4, columns)
        b = vector[offset + 4 * columns : offset + 4 * (columns + rows)].view(rows, 4)
        offset += 4 * (columns + rows)
        hf.get_submodule(slot.name.removesuffix(".weight")).register_forward_hook(
            lambda _, given, out, a=a, b=b: out + 2.0 * given[0] @ a.t() @ b.t()
        )
    assert offset == len(vector)
    ids = torch.tensor([[5, 6, 7, 8, 10, 2]])
    with torch.no_grad():
        expected = torch.log_softmax(hf(ids).logits[0, 2:5], -1).gather(1, ids[0, 3:, None])[:, 0]
    found = training.model.log_probs([GroupTokens([5, 6, 7], [[8, 10, 2]])]).log_probs_T
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_only_the_named_layers_are_adapted(tiny_hf: TinyHf) -> None:
    training = Training(tiny_hf("qwen3"), **LORA, lora_target_modules=["q_proj", "model.layers.1.mlp.down_proj"])
    before = training.weights.clone()
    training.step()
    training.step()  # with B at 0, the first step moves B alone
    assert training.changed(before) == {
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
    }
    with pytest.raises(ModelError, match=r"no linear layer 'query'; it has .*q_proj"):
        Training(tiny_hf("qwen3"), **LORA, lora_target_modules=["query"])
    with pytest.raises(ModelError, match=r'write several as a list, \["q_proj", "v_proj"\]'):
        Training(tiny_hf("qwen3"), **LORA, lora_target_modules=["q_proj,v_proj"])


@FAMILIES
def test_frozen_weights_stay_and_others_train(tiny_hf: TinyHf, family: str) -> None:
    names = [slot.name for slot in load_model(tiny_hf(family)).layout]
    frozen = {name for name in names if "mlp" in name or "wte" in name or "embed" in name}
    some = Training(tiny_hf(family), freeze_params_name_list=["mlp", "embed|wte"])
    every = Training(tiny_hf(family))
    before = some.weights.clone()
    full, part = torch.zeros(every.model.numel), torch.zeros(every.model.numel)
    every.loss(full).backward()
    some.loss(part).backward()
    for slot in some.model.layout:
        if slot.name not in frozen:
            assert torch.equal(slot.view(full), slot.view(part)), slot.name
    some.step()
    assert some.changed(before) == set(names) - frozen


def test_only_the_named_weights_are_trained(tiny_hf: TinyHf) -> None:
    training = Training(tiny_hf("qwen3"), only_train_params_name_list=[r"layers\.1\..*norm", "k_proj"])
    before = training.weights.clone()
    training.step()
    changed = training.changed(before)
    assert all(("layers.1." in name and "norm" in name) or "k_proj" in name for name in changed)
    assert len(changed) == 4 + 2


@table(
    "settings, message",
    [
        ({"freeze_params_name_list": ["mpl"]}, "no weight of .* matches 'mpl'; its weights are model.embed_tokens"),
        ({"freeze_params_name_list": ["."]}, "freezes all weights"),
    ],
)
def test_useless_patterns_are_refused(tiny_hf: TinyHf, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Training(tiny_hf("qwen3"), **settings)


@table(
    "settings, message",
    [
        ({"lora_alpha": 16.0}, "no effect here: set lora_rank"),
        ({"lora_target_modules": ["q_proj"]}, "no effect here: set lora_rank"),
        ({"lora_rank": 4, "freeze_params_name_list": ["mlp"]}, "lora_target_modules"),
        ({"only_train_params_name_list": ["a"], "freeze_params_name_list": ["b"]}, "give one of them"),
        ({"freeze_params_name_list": ["("]}, "not a regular expression"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalTrainerSettings.model_validate(settings)


@FAMILIES
def test_adapters_are_saved_in_peft_format(tiny_hf: TinyHf, tmp_path: Path, family: str) -> None:
    """The update of every layer, made of the file as peft makes it, is the one in the merged weights."""
    training = Training(tiny_hf(family), **LORA)
    before = training.weights.clone()
    for _ in range(3):
        training.step()
    training.parameters.export(tmp_path)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert len(tensors) == 2 * len(training.parameters.trained)
    for slot in training.model.layout:
        if slot.name not in training.parameters.trained:
            continue
        module = f"base_model.model.{slot.name.removesuffix('.weight')}"
        assert module.rpartition(".")[2] in config["target_modules"]
        update = tensors[f"{module}.lora_B.weight"] @ tensors[f"{module}.lora_A.weight"]
        update = (update.t() if config["fan_in_fan_out"] else update) * config["lora_alpha"] / config["r"]
        torch.testing.assert_close(slot.view(training.weights), slot.view(before) + update)


def test_adapters_that_peft_would_drop_are_explained(tiny_hf: TinyHf, tmp_path: Path) -> None:
    """Measured with peft 0.21: of DeepSeek-V3 it loads 12 of 16 adapters, of GLM4-MoE 10 of 14, without a word."""
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1}
    model = tiny_hf("glm4_moe", num_key_value_heads=2, head_dim=16, topk_group=1, first_k_dense_replace=1, **experts)
    Training(model, **LORA).parameters.export(tmp_path / "all")
    said = (tmp_path / "all" / "adapter" / "README.txt").read_text()
    assert "layers named down_proj, gate_proj, up_proj have one adapter each" in said
    assert not (tmp_path / "all" / "adapter" / "adapter_config.json").exists()
    Training(model, **LORA, lora_target_modules=["q_proj"]).parameters.export(tmp_path / "some")
    assert (tmp_path / "some" / "adapter" / "adapter_config.json").exists()
