"""Random models: the shapes of Qwen2.5-0.5B and -1.5B, random weights, the demo's tokenizer; they learn nothing.

Which numbers the weights are changes nothing of what a step costs, so speed can be measured where no hub is reached.

    base = random_model("random-0.5b", Path("runs/bench"))
"""

from collections.abc import Mapping
from pathlib import Path

from slime_local.demo.pretrained import smollm2_base
from slime_local.demo.recipe import make_directory

SHAPES: Mapping[str, Mapping[str, int]] = {
    "random-tiny": {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1024,
    },
    "random-0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
    },
    "random-1.5b": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
    },
}
"""By name; `random-tiny` is for rehearsals on a CPU."""


def random_model(name: str, folder: Path) -> Path:
    """The directory of such a model in a folder, made where it is missing."""
    base = folder / name
    if not (base / "config.json").is_file():
        make_directory("trl_bars.random_models:write_random_model", base, name=name)
    return base


def base_model(name: str, folder: Path) -> Path:
    """The directory that a `--model` names: a random model's, SmolLM2's, or a directory as it is."""
    if name in SHAPES:
        return random_model(name, folder)
    return smollm2_base() if name == "smollm2" else Path(name)


def write_random_model(directory: Path, name: str) -> None:
    """Write it in HF format, weights in fp32."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from slime_local.demo.tiny import build_tokenizer

    tokenizer = build_tokenizer("word")
    shape = SHAPES[name]
    config = Qwen2Config(
        hidden_size=shape["hidden_size"],
        intermediate_size=shape["intermediate_size"],
        num_hidden_layers=shape["num_hidden_layers"],
        num_attention_heads=shape["num_attention_heads"],
        num_key_value_heads=shape["num_key_value_heads"],
        vocab_size=shape["vocab_size"],
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
