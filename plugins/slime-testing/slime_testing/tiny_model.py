"""A Llama of 64 tokens, two layers and 22 688 weights as a Hugging Face directory, written without torch.

Example:

    write_tiny_model(tmp_path / "hf")       # config.json, model.safetensors, tokenizer.json
"""

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

from slime_core.sample import Json

VOCAB, WIDTH, INNER, LAYERS, HEADS, KEY_HEADS = 64, 32, 64, 2, 4, 2
CONFIG: dict[str, Json] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": WIDTH // HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "torch_dtype": "float32",
}
SPECIAL = ("<unk>", "<s>", "</s>")


def write_tiny_model(directory: Path) -> Path:
    """Write it, the same bytes every time; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=2), "utf-8")
    (directory / "model.safetensors").write_bytes(_tensors())
    words = {**{word: number for number, word in enumerate(SPECIAL)}, **{f"t{each}": each for each in range(3, VOCAB)}}
    tokenizer: dict[str, Json] = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number,
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, word in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "truncation": None,
        "padding": None,
        "model": {"type": "WordLevel", "vocab": dict(words), "unk_token": SPECIAL[0]},
    }
    about: dict[str, Json] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(about), "utf-8")
    return directory


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every weight; a norm has one dimension."""
    keys = WIDTH // HEADS * KEY_HEADS
    yield "model.embed_tokens.weight", (VOCAB, WIDTH)
    for layer in range(LAYERS):
        inside = f"model.layers.{layer}"
        for name, rows in (("q_proj", WIDTH), ("k_proj", keys), ("v_proj", keys), ("o_proj", WIDTH)):
            yield f"{inside}.self_attn.{name}.weight", (rows, WIDTH)
        for name in ("gate_proj", "up_proj"):
            yield f"{inside}.mlp.{name}.weight", (INNER, WIDTH)
        yield f"{inside}.mlp.down_proj.weight", (WIDTH, INNER)
        yield f"{inside}.input_layernorm.weight", (WIDTH,)
        yield f"{inside}.post_attention_layernorm.weight", (WIDTH,)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (VOCAB, WIDTH)


def _tensors() -> bytes:
    """A safetensors file: the header's length, the header, the numbers, little-endian."""
    draw = random.Random(0)
    header: dict[str, Json] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, shape in _shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [draw.gauss(0.0, 0.1) for _ in range(count)]
        numbers = struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(numbers)]}
        body += numbers
    said = json.dumps(header).encode()
    said += b" " * (-len(said) % 8)
    return struct.pack("<Q", len(said)) + said + bytes(body)
