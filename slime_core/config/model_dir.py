"""Model directories: what the policy, a reference and a teacher must be before anything starts.

Example:

    check_model_dir(Path("checkpoints/base"))
    read_model_config(Path("checkpoints/base"))["vocab_size"]
"""

import json
from pathlib import Path

from slime_core.config.chosen import Chosen
from slime_core.config.plain_values import shown
from slime_core.config.run_config import RunConfig
from slime_core.config.weights import check_weights
from slime_core.errors import ModelError
from slime_core.roles import TrainerSpec
from slime_core.sample import Json

_SHAPE = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "tie_word_embeddings")
"""What the configurations of two models agree in where one takes over the other's weights."""


def check_model_dir(directory: Path, key: str = "hf_checkpoint") -> None:
    """See that a directory holds a model, its configuration and a tokenizer.

    Raises:
        ModelError: naming what is missing and how to make it.
    """
    try:
        is_there = directory.is_dir()
    except OSError as error:  # its name is too long, or has no end of links
        raise ModelError(f"{key} = {shown(str(directory))}: {error.strerror}; give a model directory") from None
    if not is_there:
        tried = ""
        if not directory.is_absolute():
            tried = (
                f"; tried {directory.absolute()}, as relative paths are of the working directory, not of the run file"
            )
        raise ModelError(
            f"no model directory {directory}: {key} must be a local directory in HF format{tried}{_of_run(directory)}"
        )
    there = sorted(each.name for each in directory.iterdir())
    listed = f"{directory} holds {', '.join(there) or 'nothing'}"
    if "config.json" not in there:
        raise ModelError(f"no config.json: {listed}. Is it a model directory in HF format?")
    if not any(name.endswith(".safetensors") for name in there):
        raise ModelError(f"no .safetensors weights: {listed}. Save the model with `save_pretrained` of transformers.")
    if "tokenizer.json" not in there:
        raise ModelError(
            f"no tokenizer.json: {listed}. Make one with "
            f"`AutoTokenizer.from_pretrained(...).save_pretrained({str(directory)!r})` of transformers."
        )
    read_model_config(directory)
    check_weights(directory)


def _of_run(directory: Path) -> str:
    """What makes a model of a run's checkpoint, RUN/checkpoints/rollout_000010/hf, or which ones the run has."""
    if directory.name != "hf" or directory.parent.parent.name != "checkpoints":
        return ""
    run = directory.parents[2]
    if run.is_dir():
        there = sorted(each.name for each in (run / "checkpoints").glob("rollout_*"))
        return f". The run {run} has {', '.join(there) or 'no checkpoint yet'}"
    demo = run.name.removeprefix("demo-base-")  # as the demo calls the runs of its warm starts
    makes = f": `slime demo --task {demo}` makes it" if demo != run.name else ": train it first"
    return f". It is of a checkpoint of the run {run}, which is not there{makes}"


def read_model_config(directory: Path) -> dict[str, Json]:
    """The config.json of a model directory.

    Raises:
        ModelError: it is not a JSON object.
    """
    path = directory / "config.json"
    try:
        config: Json = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds {type(config).__name__}, expected an object")
    return config


def read_positions(directory: Path) -> int | None:
    """Tokens of the model's longest text, prompt included; None where its config.json names no limit.

    Raises:
        ModelError: it is not a JSON object.
    """
    config = read_model_config(directory)
    found = (config.get(key) for key in ("max_position_embeddings", "n_positions"))
    return next((each for each in found if isinstance(each, int)), None)


def read_vocab_size(directory: Path) -> int | None:
    """Tokens that the model has an embedding of; None where its config.json does not say.

    Raises:
        ModelError: it is not a JSON object.
    """
    config = read_model_config(directory)
    text = config.get("text_config")
    found = config.get("vocab_size", text.get("vocab_size") if isinstance(text, dict) else None)
    return found if isinstance(found, int) else None


def check_missing_model(config: RunConfig, trainer: Chosen[TrainerSpec]) -> None:
    """Refuse a checkpoint's model in place of hf_checkpoint for what needs the weights that training began with.

    Raises:
        ModelError: naming what needs them.
    """
    if config.missing_model is None:
        return
    reference = config.reference
    compares = reference.use_kl_loss or reference.kl_coef > 0
    needed = None
    if compares and reference.ref_load is None:
        needed = "the reference model (use_kl_loss, kl_coef without ref_load)"
    elif trainer.spec.needs_base(trainer.settings):
        needed = f"the trainer {trainer.reference!r} with these settings"
    if needed:
        raise ModelError(
            f"no model directory {config.missing_model}: {needed} needs the weights of hf_checkpoint, and a "
            "checkpoint has trained ones. Put the directory back, or edit hf_checkpoint in "
            f"{config.run.save / 'run.toml'} and pass --accept-changed-settings"
        )


def check_companion_dirs(config: RunConfig) -> None:
    """See that all models are of the policy's vocabulary, and a refreshed reference of its shape.

    Raises:
        ModelError: naming the key, and what differs.
    """
    policy = read_model_config(config.run.hf_checkpoint)
    for key, directory in (
        ("ref_load", config.reference.ref_load),
        ("opd_teacher_load", config.distillation.opd_teacher_load),
        ("critic_load", config.critic.critic_load),
    ):
        if directory is None:
            continue
        check_model_dir(directory, key)
        other = read_model_config(directory)
        must_agree = _SHAPE if key == "ref_load" and config.reference.ref_update_interval else ("vocab_size",)
        for name in must_agree:
            if policy.get(name) != other.get(name):
                raise ModelError(
                    f"{key} = {directory}: its {name} is {other.get(name)}, and that of hf_checkpoint = "
                    f"{config.run.hf_checkpoint} is {policy.get(name)}; give a model of the same {name}"
                )
