"""Dimensions: Megatron arguments that config.json determines; settings may repeat them. Imports no torch.

Example:

    check_dimensions(settings, model)      # ConfigError: num_layers = 36: the config.json of the model says 28 ...
"""

from collections.abc import Mapping
from typing import cast

from slime_core.errors import ConfigError
from slime_core.roles import Coefficient, Positive, Settings
from slime_core.sample import Json
from slime_trainer_megatron.families import Model

DIMENSIONS: Mapping[str, object] = {
    "num_layers": Positive | None,
    "hidden_size": Positive | None,
    "ffn_hidden_size": Positive | None,
    "num_attention_heads": Positive | None,
    "num_query_groups": Positive | None,
    "kv_channels": Positive | None,
    "layernorm_epsilon": Coefficient | None,
    "add_qkv_bias": bool | None,
    "qk_layernorm": bool | None,
    "num_moe_experts": Positive | None,
    "moe_router_topk": Positive | None,
    "moe_ffn_hidden_size": Positive | None,
}
"""Megatron's names, with their constraints."""


def check_dimensions(settings: Settings, model: Model) -> None:
    """Check that dimensions given as settings match the model's.

    Raises:
        ConfigError: a dimension differs.
    """
    wanted = _of(model)
    for name in DIMENSIONS:
        given = settings.__dict__[name]
        if given is not None and given != wanted[name]:
            found = "does not set it" if wanted[name] is None else f"says {_written(wanted[name])}"
            raise ConfigError(
                f"[trainer.megatron] {name} = {_written(given)}: the config.json of the model ({model.family}) {found};"
                " leave it out, or set hf_checkpoint to the directory of a model with this value"
            )


def check_name(name: str, config: Mapping[str, object]) -> None:
    """Check that a model has the sizes of the model that slime calls `name`.

    Raises:
        ConfigError: the sizes differ, the name is unknown, or slime-compat, which lists the names, is missing.
    """
    try:
        from slime_compat.models import check_sizes
    except ModuleNotFoundError:
        raise ConfigError(
            f"[trainer.megatron] model_type = {name!r}: slime-compat, which lists the names of models, is not "
            "installed. In a checkout of slime-core run `pip install -e . -e ./plugins/slime-compat`, or leave "
            "model_type out"
        ) from None
    check_sizes(name, cast(Mapping[str, Json], config), "[trainer.megatron] model_type", "the model of hf_checkpoint")


def _of(model: Model) -> Mapping[str, object]:
    experts = model.experts
    return {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.inner,
        "num_attention_heads": model.heads,
        "num_query_groups": model.groups,
        "kv_channels": model.head,
        "layernorm_epsilon": model.epsilon,
        "add_qkv_bias": model.qkv_bias,
        "qk_layernorm": model.qk_norm,
        "num_moe_experts": experts.count if experts else None,
        "moe_router_topk": experts.chosen if experts else None,
        "moe_ffn_hidden_size": experts.inner if experts else None,
    }


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
