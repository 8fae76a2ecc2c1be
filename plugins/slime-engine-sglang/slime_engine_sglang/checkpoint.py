"""Reads a model directory without torch: its config, and the names and shapes of its weights.

Example:

    vocabulary = vocabulary_size(Path("base"))
    shapes = weight_shapes(Path("base"))           # {"lm_head.weight": (64, 32), ...}
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from slime_core.errors import ModelError
from slime_core.sample import Json

LONGEST_HEADER = 100_000_000  # Bytes; the safetensors library refuses longer headers
HEAD = "lm_head.weight"
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Config keys for the number of experts."""

Header = Mapping[str, Mapping[str, object]]
"""`dtype`, `shape` and `data_offsets` of each tensor by name, and `__metadata__`."""


def read_config(model: Path) -> Mapping[str, Json]:
    """The model's `config.json`, with the language model's part merged in. Raises ModelError: it cannot be read."""
    path = model / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path} does not contain a JSON object")
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def vocabulary_size(model: Path) -> int | None:
    """Vocabulary size; None if the config does not contain it."""
    found = read_config(model).get("vocab_size")
    return found if isinstance(found, int) else None


def is_mixture(model: Path) -> bool:
    """Whether the model is a mixture of experts."""
    config = read_config(model)
    return any(bool(config.get(name)) for name in EXPERTS)


def weight_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the model's weights by name; a tied head may be missing. Raises ModelError: they cannot be read."""
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{model} has no *.safetensors file, from which the names of the weights are read")
    return {name: shape for file in files for name, shape in header_shapes(read_header(file)).items()}


def header_shapes(header: Header) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that a header lists."""
    tensors = {name: about for name, about in header.items() if name != "__metadata__"}
    return {name: tuple(cast(list[int], about["shape"])) for name, about in tensors.items()}


def read_header(path: Path) -> Header:
    """The header of a safetensors file. Raises ModelError: not a complete safetensors file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LONGEST_HEADER:
                raise ModelError(f"{path} is not a safetensors file: its header would have {length} bytes")
            header = json.loads(file.read(length))
        ends = [about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"]
        size, whole = path.stat().st_size, 8 + length + max(ends, default=0)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise ModelError(f"{path} cannot be read as a safetensors file: {error!r}") from None
    if size < whole:
        raise ModelError(f"{path} is truncated: it has {size} of {whole} bytes")
    return cast(Header, header)
