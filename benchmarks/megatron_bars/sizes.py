"""Models of random weights by their size.

Example:

    model = write_size(folder / "small", "0.4M")
"""

from collections.abc import Mapping
from pathlib import Path

from models_and_steps import write_model

SIZES: Mapping[str, Mapping[str, object]] = {
    "0.4M": {"hidden_size": 96, "intermediate_size": 256, "head_dim": 24},
    "20M": {
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
        "head_dim": 64,
        "vocab_size": 8192,
    },
}
"""What differs from the tests' model."""


def write_size(directory: Path, size: str) -> Path:
    """A Qwen3 of about so many weights."""
    written: Path = write_model(directory, "qwen3", tie_word_embeddings=True, **SIZES[size])
    return written
