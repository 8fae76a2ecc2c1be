"""Build a model from a Hugging Face directory: local files, fp32, no remote code.

model = load_model(Path("checkpoints/tiny"))
print(model.path, model.why)
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as hf_logging

from slime_core.errors import ModelError
from slime_local.model.base import LocalModel
from slime_local.model.fast import DecoderShape, FastModel
from slime_local.model.plain import PlainModel, probe
from slime_local.model.support import ModelPath, explain_path
from slime_local.model.weights import decoder_order, lay_out

LONGEST_REASON = 1_000
"""Maximum characters of transformers' message, which may list every known model."""


def load_model(hf_dir: Path, *, bf16: bool = False) -> LocalModel:
    """Load a causal LM bound to a fresh flat vector, on the fast path where `explain_path` says so.

    With `bf16` the factors of its products are rounded to bf16; weights, gradients, norms and sums stay in fp32, and so
    does the output head: bf16 has 8 bits, so a logit of 30 would be off by up to 0.06 (MiniMax-M1, arXiv:2506.13585,
    has it in fp32 for that).

    Raises:
        ModelError: no config.json, no causal LM, or weights missing from the files.
    """
    config_path = hf_dir / "config.json"
    if not config_path.is_file():
        raise ModelError(
            f"no model could be loaded from {hf_dir}: it has no config.json; expected a Hugging Face directory with"
            " config.json, model.safetensors and tokenizer files"
        )
    path, why = explain_path(json.loads(config_path.read_text()))
    hf = _load_hf(hf_dir)
    model = _build(hf_dir, path, why, hf, bf16)
    model.linear, model.transposed = _linear_layers(hf)
    return model


def _build(hf_dir: Path, path: ModelPath, why: str, hf: PreTrainedModel, bf16: bool) -> LocalModel:
    names = {name: parameter.data for name, parameter in hf.named_parameters()}
    if path == "plain":
        layout = lay_out((name, tuple(value.shape)) for name, value in names.items())
    else:
        layout = lay_out((name, tuple(names[name].shape)) for name in decoder_order(names, hf.config.num_hidden_layers))
    flat = torch.empty(sum(slot.numel for slot in layout))
    for slot in layout:
        slot.view(flat).copy_(names[slot.name])
    if path == "plain":
        model = PlainModel(hf_dir, why, layout, hf.to(flat.device), flat, bf16)  # type: ignore[arg-type]  # its stub
        probe(model)
        return model
    if hf.generation_config is None:
        raise ModelError(f"the model in {hf_dir} cannot generate; expected a causal LM")
    shape = _decoder_shape(hf, flat.device)
    return FastModel(hf_dir, why, layout, hf.config, hf.generation_config, shape, flat, bf16)


def _linear_layers(hf: PreTrainedModel) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the linear layers' matrices without the output head, and of the ones stored [in, out]."""
    head: object = hf.get_output_embeddings()  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
    layers = {f"{name}.weight": each for name, each in hf.named_modules() if isinstance(each, torch.nn.Linear | Conv1D)}
    linear = {name: each for name, each in layers.items() if each is not head}
    return frozenset(linear), frozenset(name for name, each in linear.items() if isinstance(each, Conv1D))


def _load_hf(hf_dir: Path) -> PreTrainedModel:
    shown = hf_logging.is_progress_bar_enabled()
    _show_progress(False)
    try:
        config = AutoConfig.from_pretrained(hf_dir, local_files_only=True, trust_remote_code=False)
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ModelError(
                f"no causal LM could be loaded from {hf_dir}: transformers has none for model_type "
                f"{config.model_type!r}, {type(config).__name__}; expected a decoder of text, such as qwen3"
            )
        with torch.device("cpu"):
            loaded: object = AutoModelForCausalLM.from_pretrained(
                hf_dir,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
            )
    except ModelError:
        raise
    except Exception as error:  # a configuration, or tensors that do not fit it, fail in many ways
        raise ModelError(f"no causal LM could be loaded from {hf_dir}: {str(error)[:LONGEST_REASON]}") from error
    finally:
        _show_progress(shown)
    hf, report = cast("tuple[PreTrainedModel, _Report]", loaded)
    _check_loaded(hf_dir, hf, report)
    hf.train(False)
    return hf


class _Report(TypedDict):
    missing_keys: set[str]
    mismatched_keys: set[tuple[str, Sequence[int], Sequence[int]]]


def _check_loaded(hf_dir: Path, hf: PreTrainedModel, report: _Report) -> None:
    for name, found, expected in sorted(report["mismatched_keys"]):
        raise ModelError(
            f"the weights in {hf_dir} do not fit its config.json: {name} has shape {list(found)}, and "
            f"{type(hf).__name__} expects {list(expected)}; copy config.json and the weights of the same model"
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"the weights in {hf_dir} lack {len(missing)} tensors of {type(hf).__name__}, the first is {missing[0]};"
            " expected a complete causal LM"
        )
    for name, parameter in hf.named_parameters():
        if not parameter.isfinite().all():
            raise ModelError(
                f"the weights in {hf_dir} are not finite: {name} has NaN or infinity; copy the model again"
            )


def _show_progress(shown: bool) -> None:
    switch = hf_logging.enable_progress_bar if shown else hf_logging.disable_progress_bar
    cast("Callable[[], None]", switch)()


def _decoder_shape(hf: PreTrainedModel, device: torch.device) -> DecoderShape:
    config: PreTrainedConfig = hf.config
    rotary = hf.get_submodule("model.rotary_emb")
    inv_freq = rotary.get_buffer("inv_freq").float().clone().to(device)
    return DecoderShape(
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        eps=config.rms_norm_eps,
        inv_freq=inv_freq,
        rope_scale=float(getattr(rotary, "attention_scaling", 1.0)),
    )
