"""Blocks: the layers of a pipeline stage, put together as Megatron's specs.

Three kinds of attention and MLP: grouped heads or DeepSeek's latent ones; one MLP or experts, with shared ones or
without; norms in front of both, and GLM-4's behind them, too.

Example:

    GPTModel(config, block_spec(config, model), ...)
"""

from collections.abc import Callable

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig, multi_latent_attention
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.moe.shared_experts import SharedExpertMLP
from megatron.core.transformer.multi_latent_attention import MLASelfAttention, MLASelfAttentionSubmodules
from megatron.core.transformer.multi_token_prediction import (
    MultiTokenPredictionBlockSubmodules,
    MultiTokenPredictionLayer,
    MultiTokenPredictionLayerSubmodules,
)
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_layer import (
    TransformerLayer,
    TransformerLayerSubmodules,
    get_transformer_layer_offset,
)

from slime_trainer_megatron.families import Model
from slime_trainer_megatron.layers import NormedColumnParallelLinear, PackedAttention, RmsNorm, WholeLinear
from slime_trainer_megatron.router import StepRouter

Added = Callable[[tuple[torch.Tensor, torch.Tensor | None], torch.Tensor, float], torch.Tensor]
"""Adds what a part of a layer made, and its bias, to what went into it."""
OF_LATENT = 1e-6
"""Epsilon of the norms of latent numbers, whatever the epsilon of the other norms is."""
# It takes Transformer Engine's alone for latent numbers, and asks for its type where there is none.
multi_latent_attention.__dict__["TELinear"] = WholeLinear


def block_spec(config: TransformerConfig, model: Model) -> TransformerBlockSubmodules:
    """The layers of this pipeline stage."""
    first = get_transformer_layer_offset(config)
    count = get_num_layers_to_build(config)
    specs = [_layer(config, model, layer) for layer in range(first, first + count)]
    return TransformerBlockSubmodules(layer_specs=specs, layer_norm=RmsNorm)


def further_spec(config: TransformerConfig, model: Model) -> MultiTokenPredictionBlockSubmodules:
    """The layers that predict further tokens, which are on the last stage."""
    specs = []
    for number in range(model.further):
        layer = _layer(config, model, model.layers + number)
        parts = MultiTokenPredictionLayerSubmodules(RmsNorm, RmsNorm, ColumnParallelLinear, layer, RmsNorm)
        specs.append(ModuleSpec(FurtherLayer, submodules=parts))
    return MultiTokenPredictionBlockSubmodules(layer_specs=specs)


def _layer(config: TransformerConfig, model: Model, layer: int) -> ModuleSpec:
    mixture = model.has_experts(layer)
    submodules = TransformerLayerSubmodules(
        input_layernorm=RmsNorm if model.latent else IdentityOp,
        self_attention=_latent() if model.latent else _grouped(config),
        self_attn_bda=get_bias_dropout_add,
        pre_mlp_layernorm=RmsNorm if mixture else IdentityOp,
        mlp=_mixture() if mixture else _mlp(),
        mlp_bda=get_bias_dropout_add,
    )
    return ModuleSpec(SandwichedLayer if model.sandwiched else TransformerLayer, submodules=submodules)


def _grouped(config: TransformerConfig) -> ModuleSpec:
    norm = RmsNorm if config.qk_layernorm else IdentityOp
    submodules = SelfAttentionSubmodules(
        linear_qkv=NormedColumnParallelLinear,
        core_attention=PackedAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=norm,
        k_layernorm=norm,
    )
    return ModuleSpec(SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=submodules)


def _latent() -> ModuleSpec:
    submodules = MLASelfAttentionSubmodules(
        linear_q_proj=ColumnParallelLinear,
        linear_q_down_proj=WholeLinear,
        linear_q_up_proj=LatentUp,
        linear_kv_down_proj=WholeLinear,
        linear_kv_up_proj=LatentUp,
        core_attention=PackedAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=IdentityOp,
        kv_layernorm=IdentityOp,
    )
    return ModuleSpec(MLASelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=submodules)


def _mlp() -> ModuleSpec:
    return ModuleSpec(MLP, submodules=MLPSubmodules(NormedColumnParallelLinear, linear_fc2=RowParallelLinear))


def _mixture() -> ModuleSpec:
    expert = MLPSubmodules(ColumnParallelLinear, linear_fc2=RowParallelLinear)
    experts, shared = (ModuleSpec(kind, submodules=expert) for kind in (SequentialMLP, SharedExpertMLP))
    return ModuleSpec(MoELayer, submodules=MoESubmodules(experts, shared, router=StepRouter))


class FurtherLayer(MultiTokenPredictionLayer):  # type: ignore[misc]
    """A layer that predicts further tokens; what it keeps for the backward pass is not computed again."""

    def _checkpointed_forward(self, forward: Callable[..., torch.Tensor], **given: object) -> torch.Tensor:
        # Megatron's asks autograd to keep what is not a tensor.
        return forward(**given)


class SandwichedLayer(TransformerLayer):  # type: ignore[misc]
    """A layer whose attention and MLP have a norm behind them, before they are added to what went into them."""

    def __init__(self, *given: object, **options: object) -> None:
        """Add the norms behind attention and MLP."""
        super().__init__(*given, **options)
        hidden, epsilon = self.config.hidden_size, self.config.layernorm_epsilon
        self.post_self_attn_layernorm = RmsNorm(self.config, hidden, epsilon)
        self.post_mlp_layernorm = RmsNorm(self.config, hidden, epsilon)
        self.self_attn_bda = _normed(get_bias_dropout_add, self.post_self_attn_layernorm)
        self.mlp_bda = _normed(get_bias_dropout_add, self.post_mlp_layernorm)


def _normed(usual: Callable[[bool, bool], Added], norm: RmsNorm) -> Callable[[bool, bool], Added]:
    def made(training: bool, fused: bool) -> Added:
        added = usual(training, fused)

        def add(
            given: tuple[torch.Tensor, torch.Tensor | None], residual: torch.Tensor, dropout: float
        ) -> torch.Tensor:
            return added((norm(given[0]), None), residual, dropout)

        return add

    return made


class LatentUp(NormedColumnParallelLinear):
    """Makes heads from latent numbers, after a norm over those."""

    epsilon = OF_LATENT
