"""Weights: whether the .safetensors files of a model are whole, by their headers alone; no tensor is read.

Example:

    check_weights(Path("checkpoints/base"))

The format (https://github.com/huggingface/safetensors): 8 bytes with the header's length, the header as JSON, tensors.
"""

import json
import struct
from pathlib import Path

from pydantic import BaseModel, NonNegativeInt, TypeAdapter

from slime_core.errors import ModelError
from slime_core.sample import Json

INDEX = "model.safetensors.index.json"
_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_WEIGHTS = ("weight", "bias", "qzeros", "_packed", "_blocks", "_scales")
"""How names end that are weights, or parts of packed ones, where their numbers are integers; others are positions."""
_INSTEAD = "give the model that it was made from, or save it dequantized with `save_pretrained` of transformers"
_INTEGERS = frozenset({"I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL"})


def check_weights(directory: Path) -> None:
    """See that every file has all that its header and the index promise.

    Raises:
        ModelError: naming the file, and the first tensor that is missing or cut off.
    """
    index = _index(directory / INDEX)
    found = {path.name: _tensors(path) for path in sorted(directory.glob("*.safetensors"))}
    for tensor, file in index.items():
        if file not in found:
            raise ModelError(f"{directory / INDEX} names {file} for {tensor}, and {directory} has no such file")
        if tensor not in found[file]:
            raise ModelError(f"{directory / INDEX} promises {tensor} in {file}, which does not have it")


def refuse_quantized(directory: Path) -> None:
    """See that a model's weights are floats of 16 bits or more, which can be trained: no FP8, int4, GPTQ, AWQ or MXFP4.

    Raises:
        ModelError: naming the first weight that is not, or the `quantization_config` of config.json.
    """
    for path in sorted(directory.glob("*.safetensors")):
        for tensor, dtype in _tensors(path).items():
            if dtype not in _FLOATS and (dtype not in _INTEGERS or tensor.endswith(_WEIGHTS)):
                raise not_trainable(directory, tensor, dtype)
    config: Json = json.loads((directory / "config.json").read_text("utf-8"))
    texts = [config, config.get("text_config")] if isinstance(config, dict) else []
    for each in texts:
        if isinstance(each, dict) and (quantization := each.get("quantization_config")):
            method = quantization.get("quant_method") if isinstance(quantization, dict) else None
            raise ModelError(
                f"{directory / 'config.json'}: quantization_config says that the model is quantized ({method}), which "
                f"cannot be trained; {_INSTEAD}"
            )


def not_trainable(directory: Path, name: str, dtype: str) -> ModelError:
    """What to say of a weight of another dtype; `dtype` is safetensors' name of it."""
    return ModelError(
        f"{directory}: weight {name!r} is written in {dtype}; expected F32, BF16 or F16. A quantized or cast model "
        f"cannot be trained; {_INSTEAD}"
    )


class _Entry(BaseModel):
    dtype: str
    data_offsets: tuple[NonNegativeInt, NonNegativeInt]


_HEADER = TypeAdapter(dict[str, _Entry | dict[str, str]])


def _tensors(path: Path) -> dict[str, str]:
    """The type of each tensor of a file."""
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else _LONGEST_HEADER
            header = _HEADER.validate_json(file.read(length) if length < _LONGEST_HEADER else b"")
            size = file.seek(0, 2)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise ModelError(f"{path} is not a safetensors file, or is cut off in its header: copy it again") from None
    tensors = {name: each for name, each in header.items() if isinstance(each, _Entry)}  # the rest is metadata
    ends = {name: _LENGTH.size + length + each.data_offsets[1] for name, each in tensors.items()}
    if cut := [name for name, end in ends.items() if end > size]:
        first = min(cut, key=ends.__getitem__)
        raise ModelError(
            f"{path} is cut off: it has {size} bytes, and its header promises {max(ends.values())}; {first} is the "
            f"first of {len(cut)} tensors that are not whole: copy the file again"
        )
    return {name: each.dtype for name, each in tensors.items()}


def _index(path: Path) -> dict[str, str]:
    """Which file has which tensor; empty where there is no index."""
    if not path.is_file():
        return {}
    try:
        table = json.loads(path.read_bytes())["weight_map"]
        return {str(tensor): str(file) for tensor, file in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is not an index of weights: {type(error).__name__}: {error}") from None
