"""Checkpoints: weights and moments in Megatron's torch_dist format, readable in any layout, next to `hf/`.

Every rank writes its part from a copy while training continues. Data other than tensors is JSON.

Example:

    saving = save(directory, held, hf=True)
    saving.finish(wait=True)
    load(directory, held)
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist

from slime_core.errors import CheckpointError
from slime_core.roles import WeightSlot
from slime_train import make_portable
from slime_trainer_megatron.companion_models import VERSION, CompanionModels, OldPolicy
from slime_trainer_megatron.config_json import config_of
from slime_trainer_megatron.export import export_weights
from slime_trainer_megatron.families import Model
from slime_trainer_megatron.hf_files import HfWriter
from slime_trainer_megatron.model import Policy
from slime_trainer_megatron.optimizer import MOMENTS, RankOptimizer
from slime_trainer_megatron.torch_dist import Piece, Saving, StoredCheckpoint, rank_parameters

FORMAT = 2
ABOUT = "megatron.json"
BACKEND = {
    "sharded_backend": "torch_dist",
    "sharded_backend_version": 1,
    "common_backend": "torch",
    "common_backend_version": 1,
}
"""Contents of `metadata.json`, which tells Megatron the format."""
OPTIMIZER = "optimizer.state."
"""Megatron's prefix for the names of a moment and its weight."""
CRITIC = "critic."
"""Name prefix of a critic's tensors."""
OLD = "old_actor."
"""Name prefix of the weights that generated the next rollout."""
REFERENCE = "reference."
"""Name prefix of a refreshed reference's weights."""
COPIED_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
"""Patterns of files in a model directory that are copied along with its weights."""


@dataclass(frozen=True)
class RankState:
    """Objects that a rank saves and loads."""

    policy: Policy
    """The rank's part of the weights."""
    optimizer: RankOptimizer
    """The rank's part of the moments."""
    companions: CompanionModels
    """Reference, teacher and critic."""
    old: OldPolicy | None
    """The policy that generated a rollout not yet trained on."""
    model: Model
    """The whole model."""
    source: Path
    """The model directory that training began with, for tokenizer and configuration."""
    shard_bytes: int
    """Approximate bytes of each file of `hf/`."""


def slots_of(model: Model) -> list[WeightSlot]:
    """Every weight, in the order in which they are exported."""
    return [slot for weight in model.weights() for slot in weight.hf]


def save(directory: Path, saved: RankState, *, hf: bool) -> Saving:
    """Begin to write `optim/` for `load`; with `hf`, the model directory `hf/` is complete on return.

    Called on all ranks.
    """
    first = dist.get_rank() == 0
    if hf:
        _write_hf(directory / "hf", saved)
    pieces, critic = [*_trained(saved.policy, saved.optimizer)], saved.companions.critic
    pieces += _trained(critic.policy, critic.optimizer, CRITIC) if critic else ()
    old = saved.old.saved() if saved.old else None
    if reference := saved.companions.refreshed():
        for held in rank_parameters(reference.policy):
            pieces += held.pieces(reference.value_of(held.parameter), REFERENCE) if held.is_written else []
    for held in rank_parameters(old[1]) if old else ():
        pieces += held.pieces(held.parameter.data, OLD) if held.is_written else []
    folder = directory / "optim"
    saving = Saving(folder, pieces)
    if first:
        model = _stored_model(saved.model)
        about = {"format": FORMAT, "steps": saved.optimizer.steps, "model": model, **saved.companions.saved_numbers()}
        about |= initial_model(saved.source)
        if old:
            about[VERSION] = old[0]
        if critic:
            about["critic_steps"] = critic.optimizer.steps
        (folder / ABOUT).write_text(json.dumps(about, indent=2), "utf-8")
        (folder / "metadata.json").write_text(json.dumps(BACKEND), "utf-8")
    return saving


def load(directory: Path, state: RankState) -> None:
    """Read this rank's part of a checkpoint into `state`; it may come from another layout.

    Raises:
        CheckpointError: the checkpoint is missing, incomplete, or belongs to another model.
    """
    folder = directory / "optim"
    about = read_about(folder)
    theirs, mine = about.get("model"), _stored_model(state.model)
    if differ := [key for key in mine if not isinstance(theirs, dict) or theirs.get(key) != mine[key]]:
        raise CheckpointError(
            f"{folder} belongs to another model: {', '.join(differ)} differ from the config.json of hf_checkpoint; "
            "continue with the model that the run began with"
        )
    stored, critic = StoredCheckpoint(folder), state.companions.critic
    _restore(stored, int(str(about["steps"])), state.policy, state.optimizer)
    if critic:
        if "critic_steps" not in about:
            raise CheckpointError(f"{folder} has no critic: its run had none. Continue without a critic, too")
        _restore(stored, int(str(about["critic_steps"])), critic.policy, critic.optimizer, CRITIC)
    if reference := state.companions.restored(about):
        for held in rank_parameters(reference.policy):
            stored.read(held.pieces(reference.value_of(held.parameter), REFERENCE))
    if state.old and VERSION in about:
        for held in rank_parameters(state.old.restored):
            stored.read(held.pieces(held.parameter.data, OLD))
        state.old.restore(int(str(about[VERSION])))


def _trained(policy: Policy, optimizer: RankOptimizer, prefix: str = "") -> Iterator[Piece]:
    """A rank's part of weights and moments, in fp32."""
    for held in rank_parameters(policy):
        parameter = held.with_moments()
        value = held.parameter if parameter is None else optimizer.master(parameter)
        if held.is_written:
            yield from held.pieces(value, prefix)
        if parameter is None:
            continue
        for kind, name in MOMENTS.items():
            moment = optimizer.moment(kind, parameter)  # a collective of all replicas
            if held.is_written:
                yield from held.pieces(moment, f"{prefix}{OPTIMIZER}{name}.")


def _restore(stored: StoredCheckpoint, steps: int, policy: Policy, optimizer: RankOptimizer, prefix: str = "") -> None:
    optimizer.restore(steps)
    for held in rank_parameters(policy):
        if (parameter := held.with_moments()) is None:
            stored.read(held.pieces(held.parameter, prefix))
            continue
        master = torch.empty_like(parameter.data, dtype=torch.float32)
        stored.read(held.pieces(master, prefix))
        optimizer.put_master(parameter, master)
        for kind, name in MOMENTS.items():
            whole = torch.empty_like(master)
            stored.read(held.pieces(whole, f"{prefix}{OPTIMIZER}{name}."))
            optimizer.put_moment(kind, parameter, whole)


def _stored_model(model: Model) -> dict[str, object]:
    return asdict(replace(model, bf16=False))


def read_about(folder: Path) -> dict[str, object]:
    """Contents of a checkpoint's description file.

    Raises:
        CheckpointError: the folder is not a checkpoint of this trainer.
    """
    path = folder / ABOUT
    try:
        about: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}): the checkpoint is incomplete, or another trainer wrote it"
        ) from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} does not have format {FORMAT}, which this release of slime-trainer-megatron reads"
        )
    return about


def initial_model(source: Path) -> dict[str, object]:
    """Path and config of the initial model directory, saved for conversion back to a model directory."""
    return {"hf_checkpoint": str(source.resolve()), "config": dict(config_of(source))}


def copy_other_files(source: Path, target: Path, dtype: str) -> None:
    """Copy configuration and tokenizer, and set the dtype of the written weights in the configuration."""
    target.mkdir(parents=True, exist_ok=True)
    for path in _matching(source, COPIED_FILES):
        if not path.name.endswith(".index.json"):
            shutil.copyfile(path, target / path.name)
    write_config(target, config_of(source), dtype)


def write_config(target: Path, given: Mapping[str, object], dtype: str) -> None:
    """Write a config.json with the dtype of the written weights."""
    config = dict(given)
    for key in {"dtype", "torch_dtype"} & config.keys() or {"dtype"}:
        config[key] = dtype
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    make_portable(target)


def _write_hf(folder: Path, saved: RankState) -> None:
    weights = export_weights(saved.policy, saved.model)
    if dist.get_rank() != 0:
        for _ in weights:
            pass
        return
    with HfWriter(folder, slots_of(saved.model), saved.shard_bytes) as writer:
        for name, tensor in weights:
            writer.add(name, tensor)
    copy_other_files(saved.source, folder, slots_of(saved.model)[0].dtype.value)


def _matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
