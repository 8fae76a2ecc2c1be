"""Tiny Hugging Face models with random weights, one directory each, built when first asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Slime

TinyHf = Callable[..., Path]

COMMON = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": None,  # Hugging Face freezes the row of a padding token; flat batches have none
}
GROUPED = {**COMMON, "num_key_value_heads": 2, "head_dim": 16}


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model and tokenizer, untrained."""
    from slime_local.demo.tiny import write_tiny_model

    directory = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny_model(directory, task="chain", seed=0)
    return directory


@pytest.fixture(scope="session")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of one vocabulary: `tiny_model`, and one of another seed."""
    from slime_local.demo.tiny import write_tiny_model

    directory = tmp_path_factory.mktemp("models") / "other"
    write_tiny_model(directory, task="chain", seed=1)
    return tiny_model, directory


@pytest.fixture
def slime(capsys: pytest.CaptureFixture[str]) -> Slime:
    """`slime("demo", "--seed", 1)`, in this process."""
    return Slime(capsys)


@pytest.fixture(scope="session")
def tiny_hf(tmp_path_factory: pytest.TempPathFactory) -> TinyHf:
    """`tiny_hf("qwen3", tie_word_embeddings=True)`: a directory with config.json and model.safetensors."""
    made: dict[str, Path] = {}

    def build(family: str, **changes: object) -> Path:
        key = f"{family} {sorted(changes.items())}"
        if key not in made:
            made[key] = tmp_path_factory.mktemp(family)
            _write(made[key], family, changes)
        return made[key]

    return build


def _write(directory: Path, family: str, changes: dict[str, object]) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    base = GROUPED if family in ("llama", "mistral", "qwen2", "qwen3") else COMMON
    config = AutoConfig.for_model(family, **{**base, **changes})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Not the initialisation a training starts from: here every weight must matter.
            parameter.normal_(std=0.12).add_("norm" in name or "ln_" in name)
    model.save_pretrained(directory)
