"""Converts a Hugging Face model directory to a torch_dist checkpoint and back, one weight at a time.

The conversion runs in one process and only copies and rearranges, so a round trip is bitwise exact.

Example:

    to_torch_dist(Path("models/mine"), Path("mine_torch_dist"), print)
    to_hf(Path("runs/mine/checkpoints/rollout_000010"), Path("out"), None, 5 * 10**9, print)
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from slime_core.errors import CheckpointError, ConfigError
from slime_core.outputs import refuse_occupied
from slime_core.roles import WeightDtype
from slime_train import refuse_quantized
from slime_trainer_megatron.collectives import init_single_process
from slime_trainer_megatron.compat import suppress_import_warnings

with suppress_import_warnings():
    from slime_trainer_megatron.checkpoint import (
        ABOUT,
        BACKEND,
        FORMAT,
        copy_other_files,
        initial_model,
        read_about,
        slots_of,
        write_config,
    )
    from slime_trainer_megatron.config_json import Config, config_of, mtp_layer_count, read_model, with_mtp
    from slime_trainer_megatron.convert import fuse, split
    from slime_trainer_megatron.export import as_stored, shape_of, whole_piece
    from slime_trainer_megatron.families import Model, Weight
    from slime_trainer_megatron.hf_files import HfWeights, HfWriter
    from slime_trainer_megatron.torch_dist import METADATA, Piece, Saving, StoredCheckpoint

Say = Callable[[str], None]
"""Callback for a line of progress."""
RELEASE = "release"
"""Megatron's folder name for a checkpoint that was converted, not trained."""
MODEL_PREFIXES = ("decoder.", "embedding.", "mtp.", "output_layer.")
"""Name prefixes of a model's weights."""
MTP_WEIGHT = "mtp.layers.0.eh_proj.weight"
"""A weight that only checkpoints with multi-token prediction have."""
LATEST_FILE = "latest_checkpointed_iteration.txt"
"""File in which Megatron names the newest folder."""


def to_torch_dist(source: Path, target: Path, say: Say) -> Path:
    """Convert a model directory to the checkpoint `target/release`; returns that folder.

    Raises:
        ConfigError: the model's family is not supported, or the target already has a checkpoint.
        ModelError: a weight is missing, of another shape, or quantized.
    """
    config, folder = config_of(source), target / RELEASE
    if folder.exists():
        raise ConfigError(f"{folder} already exists; give another folder, or remove it")
    refuse_occupied("the target", target)
    refuse_quantized(source)
    init_single_process()
    weights, mtp_layers = HfWeights(source), mtp_layer_count(config)
    model = with_mtp(config, mtp_layers)
    if mtp_layers and not all(slot.name in weights for slot in slots_of(model)):
        model = read_model(config)  # a model's files often lack the multi-token-prediction layers
    weights.check(slots_of(model))
    progress = _Progress(say, sum(1 for _ in model.weights()), f"{source} -> {folder}")

    def value(weight: Weight) -> torch.Tensor:
        progress.next()
        return fuse(model, weight, [weights.as_written(slot.name) for slot in weight.hf])

    pieces = [
        whole_piece(model, weight, weights.dtype(weight.hf[0].name), partial(value, weight))
        for weight in model.weights()
    ]
    Saving(folder, pieces, copies=False).finish(wait=True)
    about = {"format": FORMAT, "steps": 0, "model": asdict(model), **initial_model(source)}
    (folder / ABOUT).write_text(json.dumps(about, indent=2), "utf-8")
    (folder / "metadata.json").write_text(json.dumps(BACKEND), "utf-8")
    (target / LATEST_FILE).write_text(RELEASE, "utf-8")
    return folder


def to_hf(source: Path, target: Path, origin: Path | None, shard_bytes: int, say: Say) -> None:
    """Write a checkpoint's weights as a model directory.

    Args:
        source: the checkpoint of a run or of Megatron, or the folder with its files.
        target: the model directory to create.
        origin: the model directory with the configuration and the tokenizer; None: the model that training began with.
        shard_bytes: approximate size of a weight file.
        say: prints one line of progress.

    Raises:
        CheckpointError: the source is incomplete, or its model differs from the origin's.
        ConfigError: the model's family is not supported, or the target already has a model.
    """
    if (target / "config.json").exists():
        raise ConfigError(f"{target} already has a model; give another folder, or remove it")
    folder = files_of(source)
    refuse_occupied("the target", target)
    config, origin = _origin(folder, origin)
    stored = StoredCheckpoint(folder)
    has_mtp = MTP_WEIGHT in stored.shapes()
    model = with_mtp(config, mtp_layer_count(config) if has_mtp else 0)
    weights = list(model.weights())
    places = [_stored_piece(model, weight, stored) for weight in weights]
    written = [stored.dtype_of(place) for place in places]
    known = {place.key for place in places}
    if more := [key for key in sorted(stored.shapes()) if key.startswith(MODEL_PREFIXES) and key not in known]:
        raise CheckpointError(
            f"{folder} belongs to another model: it has {more[0]!r}, which the model of {origin or ABOUT} does not have"
        )
    slots = [
        replace(slot, dtype=WeightDtype(str(dtype).removeprefix("torch.")))
        for weight, dtype in zip(weights, written, strict=True)
        for slot in weight.hf
    ]
    progress = _Progress(say, len(weights), f"{folder} -> {target}")
    with HfWriter(target, slots, shard_bytes) as writer:
        for weight, place, dtype in zip(weights, places, written, strict=True):
            progress.next()
            whole = torch.empty(shape_of(weight), dtype=dtype)
            stored.read([replace(place, value=partial(_identity, whole))])
            for slot, part in zip(weight.hf, split(model, weight, whole), strict=True):
                writer.add(slot.name, part)
    dtype_name = slots[0].dtype.value
    if origin is None:
        write_config(target, config, dtype_name)
        say(f"{target} has no tokenizer: the model directory that training began with no longer exists")
    else:
        copy_other_files(origin, target, dtype_name)


def _origin(folder: Path, origin: Path | None) -> tuple[Config, Path | None]:
    if origin is not None:
        return config_of(origin), origin
    about = read_about(folder) if (folder / ABOUT).is_file() else {}
    config, directory = about.get("config"), Path(str(about.get("hf_checkpoint")))
    if not isinstance(config, dict):
        raise ConfigError(
            f"{folder} does not name its model. Give the model directory that training began with by --origin-hf-dir; "
            "it has the configuration and the tokenizer"
        )
    return config, directory if (directory / "config.json").is_file() else None


def files_of(source: Path) -> Path:
    """The folder with a checkpoint's files: the source itself, its `optim/`, or Megatron's newest checkpoint in it.

    Raises:
        CheckpointError: none of them is a checkpoint.
    """
    newest, tried = source / LATEST_FILE, [source, source / "optim"]
    if newest.is_file():
        name = newest.read_text("utf-8").strip()
        tried.append(source / (f"iter_{int(name):07}" if name.isdigit() else RELEASE))
    for folder in tried:
        if (folder / METADATA).is_file():
            return folder
    raise CheckpointError(
        f"{source} is not a torch_dist checkpoint: there is no {METADATA} in {' or '.join(map(str, tried))}; give "
        "RUN/checkpoints/rollout_NNNNNN, or a checkpoint folder written by Megatron"
    )


def _stored_piece(model: Model, weight: Weight, stored: StoredCheckpoint) -> Piece:
    nothing = torch.empty(0)
    return as_stored(whole_piece(model, weight, nothing.dtype, partial(_identity, nothing)), weight, stored.shapes())


def _identity(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class _Progress:
    """Prints a line for each tenth of the work."""

    def __init__(self, say: Say, count: int, what: str) -> None:
        self._say, self._count, self._done, self._last_tenth = say, count, 0, -1
        say(f"{what}: {count} weights")

    def next(self) -> None:
        self._done += 1
        if (tenth := self._done * 10 // self._count) > self._last_tenth:
            self._last_tenth = tenth
            self._say(f"{self._done}/{self._count} weights")
