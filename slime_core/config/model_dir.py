"""Checks a model directory before anything starts: its config, its tokenizer files and its weights.

Weights are checked by the headers of .safetensors files (https://github.com/huggingface/safetensors). No tensor is
read, so the check is fast for a model of any size.

Example:

    check_model_dir(Path("checkpoints/base"))
    read_model_config(Path("checkpoints/base"))["vocab_size"]
    check_weights(Path("checkpoints/base"))
"""

import json
import struct
from pathlib import Path

from slime_core.config.run_file import short_repr
from slime_core.errors import ModelError
from slime_core.sample import Json

# Weights: check by their headers whether a model's .safetensors files are complete; no tensor is read.

INDEX = "model.safetensors.index.json"
_LENGTH = struct.Struct("<Q")
_MAX_HEADER = 100_000_000
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_WEIGHTS = ("weight", "bias", "qzeros", "_packed", "_blocks", "_scales")
"""Suffixes of integer tensors that are weights or parts of packed weights; other integer tensors are positions."""
_INSTEAD = "give the model that it was made from, or save it dequantized with `save_pretrained` of transformers"
_INTEGERS = frozenset({"I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL"})


def check_weights(directory: Path) -> None:
    """Raise ModelError unless each file contains all tensors that its header and the index list."""
    index = _index(directory / INDEX)
    found = {path.name: _tensors(path) for path in sorted(directory.glob("*.safetensors"))}
    for tensor, file in index.items():
        if file not in found:
            raise ModelError(f"{directory / INDEX} names {file} for {tensor}, and {directory} has no such file")
        if tensor not in found[file]:
            raise ModelError(f"{directory / INDEX} lists {tensor} in {file}, which does not contain it")


def refuse_quantized(directory: Path) -> None:
    """Check that a model's weights are trainable floats of at least 16 bits: no FP8, int4, GPTQ, AWQ or MXFP4.

    Raises:
        ModelError: names the first other weight, or the `quantization_config` of config.json.
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
            reason = f"by its quantization_config the model is quantized ({method}), and cannot be trained"
            raise ModelError(f"{directory / 'config.json'}: {reason}; {_INSTEAD}")


def not_trainable(directory: Path, name: str, dtype: str) -> ModelError:
    """Return the error for an untrainable weight; `dtype` is safetensors' name of its dtype."""
    return ModelError(
        f"{directory}: weight {name!r} is written in {dtype}; expected F32, BF16 or F16. A quantized or cast model "
        f"cannot be trained; {_INSTEAD}"
    )


def _tensors(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else _MAX_HEADER
            header = json.loads(file.read(length) if length < _MAX_HEADER else b"")
            size = file.seek(0, 2)
        header.pop("__metadata__", None)
        tensors = {name: str(each["dtype"]) for name, each in header.items()}
        ends = {name: _LENGTH.size + length + int(each["data_offsets"][1]) for name, each in header.items()}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise ModelError(f"{path} is not a safetensors file, or is cut off in its header: copy it again") from None
    if cut := [name for name, end in ends.items() if end > size]:
        first = min(cut, key=ends.__getitem__)
        tensors_cut = f"{first} is the first of {len(cut)} incomplete tensors"
        promised = f"it has {size} bytes, and its header needs {max(ends.values())}"
        raise ModelError(f"{path} is cut off: {promised}; {tensors_cut}: copy the file again")
    return tensors


def _index(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        table = json.loads(path.read_bytes())["weight_map"]
        return {str(tensor): str(file) for tensor, file in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is not an index of weights: {type(error).__name__}: {error}") from None


# Model directories: required files.


def check_model_dir(directory: Path, key: str = "hf_checkpoint") -> None:
    """Raise ModelError unless a directory contains a model, its configuration and a tokenizer."""
    try:
        names = sorted(each.name for each in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        tried = f"; relative paths start at {Path.cwd()}" if not directory.is_absolute() else ""
        raise ModelError(
            f"no model directory {directory}: {key} must be a local directory in HF format{tried}"
        ) from None
    except OSError as error:
        raise ModelError(f"{key} = {short_repr(str(directory))}: {error.strerror}; give a model directory") from None
    listed = f"{directory} holds {', '.join(names) or 'nothing'}"
    if "config.json" not in names:
        raise ModelError(f"no config.json: {listed}. Is it a model directory in HF format?")
    if not any(name.endswith(".safetensors") for name in names):
        raise ModelError(f"no .safetensors weights: {listed}. Save the model with `save_pretrained` of transformers.")
    if "tokenizer.json" not in names:
        make = f"`AutoTokenizer.from_pretrained(...).save_pretrained({str(directory)!r})` of transformers"
        raise ModelError(f"no tokenizer.json: {listed}. Make one with {make}.")
    read_model_config(directory)
    check_weights(directory)


def read_model_config(directory: Path) -> dict[str, Json]:
    """The config.json of a model directory. Raises ModelError: it is not a JSON object."""
    path = directory / "config.json"
    try:
        config: Json = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds {type(config).__name__}, expected an object")
    return config


def read_positions(directory: Path) -> int | None:
    """Context length of the model in tokens, including the prompt; None if its config.json has no limit."""
    config = read_model_config(directory)
    found = (config.get(key) for key in ("max_position_embeddings", "n_positions"))
    return next((each for each in found if isinstance(each, int)), None)


def read_vocab_size(directory: Path) -> int | None:
    """Size of the model's embedding in tokens; None if its config.json does not contain it."""
    config = read_model_config(directory)
    text = config.get("text_config")
    found = config.get("vocab_size", text.get("vocab_size") if isinstance(text, dict) else None)
    return found if isinstance(found, int) else None
