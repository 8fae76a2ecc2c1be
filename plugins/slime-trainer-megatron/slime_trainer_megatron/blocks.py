"""Blocks: the layers of a pipeline stage as Megatron specs.

Attention has grouped heads, or DeepSeek's latent heads. A layer has one MLP, or experts, with or without shared
experts. Norms precede attention and MLP; in GLM-4, norms also follow them.

Example:

    GPTModel(config, block_spec(config, model), ...)
"""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.transformer import TransformerConfig, multi_latent_attention
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.module import MegatronModule
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
from slime_trainer_megatron.packing import rank_token_indices
from slime_trainer_megatron.router import StepRouter


class RmsNorm(torch.nn.Module):
    """Root mean square norm in fp32."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **rest: object) -> None:
        """Start with ones."""
        super().__init__()
        self.weight = _norm_weight(config, hidden_size)
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden]."""
        return _rms_norm(x, self.weight, self._eps)


class NormedColumnParallelLinear(ColumnParallelLinear):  # type: ignore[misc]
    """A norm followed by a column-parallel linear layer."""

    epsilon: float | None = None
    """Epsilon of the norm; None: the configuration's."""

    def __init__(self, input_size: int, output_size: int, *, config: TransformerConfig, **rest: object) -> None:
        """Build the linear layer and the norm's weight."""
        super().__init__(input_size, output_size, config=config, **rest)
        self.layer_norm_weight = _norm_weight(config, input_size)
        self._eps = config.layernorm_epsilon if self.epsilon is None else self.epsilon

    def forward(self, x: torch.Tensor, *rest: object, **options: object) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[tokens, 1, input] -> [tokens, 1, output of this rank], and no bias."""
        normed = _rms_norm(x, self.layer_norm_weight, self._eps)
        return cast(tuple[torch.Tensor, torch.Tensor | None], super().forward(normed, *rest, **options))


class ReplicatedLinear(torch.nn.Module):
    """A linear layer replicated on every tensor-parallel rank, applied to the rank's part of the tokens."""

    def __init__(self, input_size: int, output_size: int, *, config: TransformerConfig, **rest: object) -> None:
        """Start with random weights."""
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(output_size, input_size, dtype=config.params_dtype))
        config.init_method(self.weight)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        """[..., input] -> [..., output], and no bias."""
        return F.linear(x, self.weight), None


class PackedAttention(MegatronModule):  # type: ignore[misc]
    """Causal attention within each text of a pack; with context parallelism, for this rank's queries."""

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,
        attn_mask_type: AttnMaskType,
        attention_type: str,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: ProcessGroupCollection | None = None,
        **rest: object,
    ) -> None:
        """Store scale and context-parallel group; there are no parameters."""
        super().__init__(config=config)
        self._scale = softmax_scale
        groups = pg_collection or ProcessGroupCollection.use_mpu_process_groups(required_pgs=["tp", "cp"])
        self._cp = groups.cp

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: None,
        packed_seq_params: PackedSeqParams | None = None,
        **rest: object,
    ) -> torch.Tensor:
        """[T, heads, d] and keys and values of fewer heads -> [T, heads * d], T counting this rank's tokens."""
        assert packed_seq_params is not None, "micro-batches are packed"
        ends = packed_seq_params.cu_seqlens_q.long()
        length, size = int(packed_seq_params.max_seqlen_q), self._cp.size()
        token = torch.arange(int(ends[-1]), device=query.device)
        row = torch.bucketize(token, ends[1:], right=True)
        place = row * length + token - ends[row]  # of each token, if every text is padded to one length
        own = place
        if size > 1:
            mine = [rank_token_indices(ends, size, rank).to(query.device) for rank in range(size)]
            own, place = place[mine[self._cp.rank()]], place[torch.cat(mine)]
            key, value = (_gather_context(each, self._cp) for each in (key, value))
        rows = len(ends) - 1
        q, k, v = (_unpack(each, where, rows, length) for each, where in ((query, own), (key, place), (value, place)))
        # Keys and values are repeated per query head; otherwise torch's CPU kernel builds the whole score matrix.
        repeat = q.shape[1] // k.shape[1]
        k, v = (each.repeat_interleave(repeat, 1) if repeat > 1 else each for each in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self._scale)
        return out.transpose(1, 2).flatten(0, 1)[own].flatten(1)


def _norm_weight(config: TransformerConfig, size: int) -> torch.nn.Parameter:
    weight = torch.nn.Parameter(torch.ones(size, dtype=config.params_dtype))
    # With sequence parallelism each rank has a part of the tokens, so gradients are summed over the ranks.
    weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return weight


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x.float(), (x.shape[-1],), None, eps).to(x.dtype) * weight


def _gather_context(part: torch.Tensor, group: torch.distributed.ProcessGroup) -> torch.Tensor:
    """[T of a rank, ...] -> [T of all ranks, ...]; the backward pass sums the gradients."""
    gathered = gather_from_sequence_parallel_region(part.contiguous(), tensor_parallel_output_grad=True, group=group)
    return cast(torch.Tensor, gathered)


def _unpack(tokens: torch.Tensor, place: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """[T, heads, d] -> [rows, heads, length, d], each token at its place, zeros elsewhere."""
    flat = tokens.new_zeros(rows * length, *tokens.shape[1:])
    return flat.index_copy(0, place, tokens).view(rows, length, *tokens.shape[1:]).transpose(1, 2)


BiasDropoutAdd = Callable[[tuple[torch.Tensor, torch.Tensor | None], torch.Tensor, float], torch.Tensor]
"""Adds a sublayer's output and bias to its input."""
LATENT_EPSILON = 1e-6
"""Epsilon of the norms of latent vectors, which differs from the epsilon of other norms."""
# For latent vectors megatron-core uses Transformer Engine's layer, even if that package is not installed.
multi_latent_attention.__dict__["TELinear"] = ReplicatedLinear


def block_spec(config: TransformerConfig, model: Model) -> TransformerBlockSubmodules:
    """The layers of this pipeline stage."""
    first = get_transformer_layer_offset(config)
    count = get_num_layers_to_build(config)
    specs = [_layer(config, model, layer) for layer in range(first, first + count)]
    return TransformerBlockSubmodules(layer_specs=specs, layer_norm=RmsNorm)


def mtp_spec(config: TransformerConfig, model: Model) -> MultiTokenPredictionBlockSubmodules:
    """The layers for multi-token prediction, on the last stage."""
    specs = []
    for number in range(model.further):
        layer = _layer(config, model, model.layers + number)
        parts = MultiTokenPredictionLayerSubmodules(RmsNorm, RmsNorm, ColumnParallelLinear, layer, RmsNorm)
        specs.append(ModuleSpec(MtpLayer, submodules=parts))
    return MultiTokenPredictionBlockSubmodules(layer_specs=specs)


def _layer(config: TransformerConfig, model: Model, layer: int) -> ModuleSpec:
    mixture = model.has_experts(layer)
    submodules = TransformerLayerSubmodules(
        input_layernorm=RmsNorm if model.latent else IdentityOp,
        self_attention=_latent() if model.latent else _grouped(config),
        self_attn_bda=get_bias_dropout_add,
        pre_mlp_layernorm=RmsNorm if mixture else IdentityOp,
        mlp=_expert_layer() if mixture else _mlp(),
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
        linear_q_down_proj=ReplicatedLinear,
        linear_q_up_proj=LatentUpProjection,
        linear_kv_down_proj=ReplicatedLinear,
        linear_kv_up_proj=LatentUpProjection,
        core_attention=PackedAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=IdentityOp,
        kv_layernorm=IdentityOp,
    )
    return ModuleSpec(MLASelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=submodules)


def _mlp() -> ModuleSpec:
    return ModuleSpec(MLP, submodules=MLPSubmodules(NormedColumnParallelLinear, linear_fc2=RowParallelLinear))


def _expert_layer() -> ModuleSpec:
    expert = MLPSubmodules(ColumnParallelLinear, linear_fc2=RowParallelLinear)
    experts, shared = (ModuleSpec(kind, submodules=expert) for kind in (SequentialMLP, SharedExpertMLP))
    return ModuleSpec(MoELayer, submodules=MoESubmodules(experts, shared, router=StepRouter))


class MtpLayer(MultiTokenPredictionLayer):  # type: ignore[misc]
    """A layer for multi-token prediction; its activations are not recomputed."""

    def _checkpointed_forward(self, forward: Callable[..., torch.Tensor], **given: object) -> torch.Tensor:
        # Megatron's version makes autograd save objects that are not tensors.
        return forward(**given)


class SandwichedLayer(TransformerLayer):  # type: ignore[misc]
    """A layer with norms after attention and MLP, before the residual additions."""

    def __init__(self, *given: object, **options: object) -> None:
        """Add the norms after attention and MLP."""
        super().__init__(*given, **options)
        hidden, epsilon = self.config.hidden_size, self.config.layernorm_epsilon
        self.post_self_attn_layernorm = RmsNorm(self.config, hidden, epsilon)
        self.post_mlp_layernorm = RmsNorm(self.config, hidden, epsilon)
        self.self_attn_bda = _with_norm(get_bias_dropout_add, self.post_self_attn_layernorm)
        self.mlp_bda = _with_norm(get_bias_dropout_add, self.post_mlp_layernorm)


def _with_norm(usual: Callable[[bool, bool], BiasDropoutAdd], norm: RmsNorm) -> Callable[[bool, bool], BiasDropoutAdd]:
    def build(training: bool, fused: bool) -> BiasDropoutAdd:
        added = usual(training, fused)

        def add(
            given: tuple[torch.Tensor, torch.Tensor | None], residual: torch.Tensor, dropout: float
        ) -> torch.Tensor:
            return added((norm(given[0]), None), residual, dropout)

        return add

    return build


class LatentUpProjection(NormedColumnParallelLinear):
    """Projects latent vectors to heads, after a norm."""

    epsilon = LATENT_EPSILON
