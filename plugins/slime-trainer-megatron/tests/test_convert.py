"""Conversion of Hugging Face weights to Megatron parameters and back, in any number of parts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from layout_runs import unfused
from models_and_steps import CONFIG, write_model
from safetensors.torch import load_file

from slime_core.errors import ModelError
from slime_core.roles import WeightSlot
from slime_trainer_megatron.compat import suppress_import_warnings
from slime_trainer_megatron.config_json import FAMILIES, read_directory, read_model
from slime_trainer_megatron.convert import cut, fuse, is_split, split, views_of
from slime_trainer_megatron.families import Model, Weight
from slime_trainer_megatron.hf_files import HfWeights, HfWriter

with suppress_import_warnings():
    from slime_trainer_megatron.export import shape_of


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model", request.param)


def joined(weight: Weight, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    whole = torch.full(shape_of(weight, len(parts)), torch.nan)
    for rank, part in enumerate(parts):
        there = views_of(weight, whole, rank, len(parts))
        for place, rows in zip(there, torch.split(part, [len(each) for each in there]), strict=True):
            place.copy_(rows)
    return whole


@pytest.mark.parametrize("ranks", [1, 2])
def test_conversion_round_trips_bitwise(directory: Path, ranks: int) -> None:
    model, tensors, seen = read_directory(directory), load_file(directory / "model.safetensors"), set[str]()
    for weight in model.weights():
        whole = fuse(model, weight, [tensors[slot.name] for slot in weight.hf])
        parts = [cut(weight, whole, rank, ranks) for rank in range(ranks)]
        assert {tuple(part.shape) for part in parts} == {tuple(parts[0].shape)}
        assert is_split(weight) == (parts[0].numel() < whole.numel()) or ranks == 1
        for slot, back in zip(weight.hf, split(model, weight, joined(weight, parts)), strict=True):
            assert torch.equal(back, tensors[slot.name]), slot.name
            seen.add(slot.name)
    assert seen == tensors.keys()


def test_a_rank_has_whole_groups_of_heads() -> None:
    model = read_model({**CONFIG, "model_type": "qwen3"})
    weight = next(each for each in model.weights() if each.name == "self_attention.linear_qkv.weight")
    tensors = [torch.full(slot.shape, float(at)) for at, slot in enumerate(weight.hf)]
    first = cut(weight, fuse(model, weight, tensors), 0, 2)
    assert first[:, 0].tolist() == [0.0] * 32 + [1.0] * 16 + [2.0] * 16


def test_the_vocabulary_is_padded_to_a_multiple_of_the_ranks() -> None:
    model = read_model({**CONFIG, "model_type": "llama"})
    embedding = next(model.weights())
    whole = torch.randn(embedding.hf[0].shape)
    parts = [cut(embedding, whole, rank, 4) for rank in range(4)]
    assert [len(part) for part in parts] == [25] * 4
    assert parts[3][-3:].abs().max() == 0
    assert torch.equal(split(model, embedding, joined(embedding, parts))[0], whole)


@pytest.mark.parametrize(
    ("slot", "message"), [(WeightSlot("d", (1,)), "no weight 'd'"), (WeightSlot("a", (2, 4)), "shape")]
)
def test_missing_tensor_is_named(tmp_path: Path, slot: WeightSlot, message: str) -> None:
    with HfWriter(tmp_path, [WeightSlot("a", (4, 2))], shard_bytes=100) as writer:
        writer.add("a", torch.zeros(4, 2))
    with pytest.raises(ModelError, match=message):
        HfWeights(tmp_path).check([slot])


def test_weight_names_match_transformers(directory: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    model = read_directory(directory)
    with torch.device("meta"):
        theirs = unfused(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory)).state_dict())
    mine: Mapping[str, tuple[int, ...]] = {slot.name: slot.shape for slot in _slots(model)}
    assert mine == {name: tuple(each.shape) for name, each in theirs.items()}


def _slots(model: Model) -> list[WeightSlot]:
    weights: list[Weight] = list(model.weights())
    return [slot for weight in weights for slot in weight.hf]
