"""One rank's part of the model: megatron-core's GPT up to its hidden states.

Example:

    policy = build_policy(model, settings, Policy)
    load_hf(policy, directory, model)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from megatron.core.transformer import MLATransformerConfig, TransformerConfig

from slime_core.roles import Settings
from slime_trainer_megatron.arguments import megatron_arguments
from slime_trainer_megatron.blocks import block_spec, mtp_spec
from slime_trainer_megatron.compat import fake_cuda, suppress_warnings
from slime_trainer_megatron.convert import cut, fuse
from slime_trainer_megatron.families import Latent, LlamaRope, Model, Weight, Yarn
from slime_trainer_megatron.freezing import Patterns, frozen_names, name_of
from slime_trainer_megatron.hf_files import HfWeights
from slime_trainer_megatron.layout import Layout, layers_of_stages
from slime_trainer_megatron.packing import Pack
from slime_trainer_megatron.router import RoutingInput, routers

BIAS = ".router.expert_bias"
"""Name suffix of router biases, which are buffers and are not trained."""


class Policy(GPTModel):  # type: ignore[misc]
    """GPT that returns hidden states; `rows` selects the rows that need logits."""

    _trains = False
    mtp_hidden: Sequence[torch.Tensor] = ()
    """Hidden states of the multi-token-prediction layers, from the last training forward."""

    def begin(self, pack: Pack, part: float, *, trains: bool) -> None:
        """Prepare the routers for a pack that has `part` of the step's tokens; `trains`: a backward pass follows."""
        self._trains = trains
        for router in routers(self):
            padding, routes = pack.padding, pack.routes
            if self.config.sequence_parallel:
                rank, ranks = _tensor()
                padding = padding.chunk(ranks)[rank]
                routes = None if routes is None else routes.chunk(ranks)[rank]
            router.begin(RoutingInput(padding, routes, part), recomputes=trains)

    def _postprocess(self, hidden_states: torch.Tensor, **given: object) -> torch.Tensor:
        if self.mtp_process:
            self.mtp_hidden = self._mtp_forward(hidden_states, given) if self._trains else ()
        return hidden_states

    def _mtp_forward(self, hidden: torch.Tensor, given: Mapping[str, object]) -> Sequence[torch.Tensor]:
        def embedding(**tokens: torch.Tensor) -> torch.Tensor:
            return cast(torch.Tensor, self.embedding(**tokens).detach())

        names = ("input_ids", "position_ids", "attention_mask", "rotary_pos_emb", "packed_seq_params")
        outputs = self.mtp(hidden_states=hidden.detach(), embedding=embedding, **{name: given[name] for name in names})
        return cast(Sequence[torch.Tensor], torch.chunk(outputs, 1 + self.config.mtp_num_layers)[1:])

    def run_pack(self, pack: Pack) -> torch.Tensor:
        """This stage's output for a pack, [T of this rank, 1, width]; with sequence parallelism, a part of it."""
        packed = PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=pack.ends,
            cu_seqlens_kv=pack.ends,
            max_seqlen_q=pack.longest,
            max_seqlen_kv=pack.longest,
        )
        return cast(torch.Tensor, self(pack.tokens[None], pack.positions[None], None, packed_seq_params=packed))

    def rows(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Rows [M, width] of the last stage's hidden states; their gradients are summed over tensor-parallel ranks."""
        if self.config.sequence_parallel:
            whole = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=True)
            return cast(torch.Tensor, whole[:, 0][rows])
        return cast(torch.Tensor, copy_to_tensor_model_parallel_region(hidden[:, 0][rows]))

    def zero_for_unused(self) -> torch.Tensor:
        """A zero that depends on the last stage's output layer, so that unused weights get a gradient of zero."""
        nothing = self.output_weight().sum() * 0.0
        for hidden in self.mtp_hidden:
            nothing = nothing + hidden.sum() * 0.0
        if self.mtp_process and not self.pre_process:
            nothing = nothing + self.embedding.word_embeddings.weight.sum() * 0.0  # the last stage's copy
        return nothing

    def output_weight(self) -> torch.Tensor:
        """This rank's rows of the output layer."""
        shared = self.share_embeddings_and_output_weights
        return cast(torch.Tensor, self.shared_embedding_or_output_weight() if shared else self.output_layer.weight)


def transformer_config(model: Model, settings: Settings) -> TransformerConfig:
    """Megatron's configuration of a model."""
    kind = MLATransformerConfig if model.latent else TransformerConfig
    return kind(
        num_layers=model.layers,
        hidden_size=model.hidden,
        ffn_hidden_size=model.inner,
        num_attention_heads=model.heads,
        num_query_groups=model.groups,
        kv_channels=model.head,
        layernorm_epsilon=model.epsilon,
        add_qkv_bias=model.qkv_bias,
        qk_layernorm=model.qk_norm,
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=model.bf16,
        params_dtype=torch.bfloat16 if model.bf16 else torch.float32,
        pipeline_dtype=torch.bfloat16 if model.bf16 else torch.float32,
        moe_router_dtype="fp32",
        use_cpu_initialization=True,  # initializes on the default device, which is the model's
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        batch_p2p_comm=False,
        deallocate_pipeline_outputs=True,
        variable_seq_lengths=True,
        moe_token_dispatcher_type="alltoall",  # variable lengths require it, even for dense models
        moe_router_load_balancing_type="aux_loss",
        calculate_per_token_loss=True,  # gradients are summed: the core's token weights already cover the whole step
        **{
            **megatron_arguments(settings, "ModelParallelConfig"),
            **megatron_arguments(settings, "TransformerConfig"),
            **_expert_arguments(model),
            "mtp_num_layers": model.further or None,
            **(_latent_arguments(model, model.latent) if model.latent else {"rotary_interleaved": model.interleaved}),
        },
    )


def _expert_arguments(model: Model) -> dict[str, object]:
    if model.experts is None:
        return {"expert_model_parallel_size": 1}  # a dense companion of a model with experts
    arguments: dict[str, object] = {
        "num_moe_experts": model.experts.count,
        "moe_router_topk": model.experts.chosen,
        "moe_ffn_hidden_size": model.experts.inner,
        "moe_router_pre_softmax": not model.experts.normalised,
        "moe_shared_expert_intermediate_size": model.experts.shared or None,
    }
    if model.mixed:
        arguments["moe_layer_freq"] = [int(model.has_experts(layer)) for layer in range(model.layers)]
    if router := model.experts.router:
        arguments |= {
            "moe_router_pre_softmax": False,
            "moe_router_score_function": "sigmoid",
            "moe_router_enable_expert_bias": True,
            "moe_router_bias_update_rate": 0.0,
            "moe_router_topk_scaling_factor": router.scale,
        }
        if router.groups > 1:
            arguments |= {"moe_router_num_groups": router.groups, "moe_router_group_topk": router.best}
    return arguments


def _latent_arguments(model: Model, latent: Latent) -> dict[str, object]:
    arguments: dict[str, object] = {
        "q_lora_rank": latent.queries,
        "kv_lora_rank": latent.values,
        "qk_head_dim": latent.plain,
        "qk_pos_emb_head_dim": latent.placed,
        "v_head_dim": latent.value,
        "rotary_base": model.theta,
        "rope_type": "rope",
        "rotary_scaling_factor": 1.0,
    }
    if isinstance(stretch := model.stretch, Yarn):
        arguments |= {
            "rope_type": "yarn",
            "rotary_scaling_factor": stretch.factor,
            "beta_fast": stretch.fast,
            "beta_slow": stretch.slow,
            "mscale": stretch.scale,
            "mscale_all_dim": stretch.scale_all,
            "original_max_position_embeddings": stretch.length,
        }
    return arguments


PolicyT = TypeVar("PolicyT", bound=Policy)


def build_policy(model: Model, settings: Settings, kind: type[PolicyT]) -> PolicyT:
    """This rank's part of a model, with random weights."""
    with suppress_warnings():
        config = transformer_config(model, settings)
    tensor = parallel_state.get_tensor_model_parallel_world_size()
    has_mtp = model.further > 0 and parallel_state.is_pipeline_last_stage()
    with suppress_warnings(), fake_cuda():
        policy = kind(
            config,
            block_spec(config, model),
            vocab_size=model.vocab + -model.vocab % tensor,
            max_sequence_length=2**31,
            position_embedding_type="rope",
            rotary_base=model.theta,
            rotary_percent=model.placed,
            share_embeddings_and_output_weights=model.tied,
            pre_process=parallel_state.is_pipeline_first_stage(),
            post_process=parallel_state.is_pipeline_last_stage(),
            mtp_block_spec=mtp_spec(config, model) if has_mtp else None,
        )
    if isinstance(model.stretch, LlamaRope):
        waves = policy.rotary_pos_emb.inv_freq
        policy.rotary_pos_emb.inv_freq = _scaled_frequencies(waves, model.stretch)
    return policy


def weights_of(policy: Policy) -> dict[str, torch.Tensor]:
    """This rank's parameters and router biases by name."""
    biases = {name: each for name, each in policy.named_buffers() if name.endswith(BIAS)}
    return {**dict(policy.named_parameters()), **biases}


def own_parameters(policy: Policy, model: Model) -> dict[str, tuple[Weight, torch.Tensor]]:
    """This rank's parameters and router biases in the model's order, by their names in the whole model.

    Excludes a critic's head, and a tied output layer on another stage than the embedding, which is a copy.
    """
    layer = policy.decoder.layers[0].layer_number - 1
    expert = model.experts.count // _expert()[1] * _expert()[0] if model.experts else 0
    mine = weights_of(policy)
    found: dict[str, tuple[Weight, torch.Tensor]] = {}
    for weight in model.weights():
        if (local := weight.within(layer, expert)) in mine:
            found[weight.within()] = weight, mine.pop(local)
    copied = {"value_head.weight", *(("output_layer.weight",) if model.tied else ())}
    assert mine.keys() <= copied, f"unknown parameters: {sorted(mine)}"
    return found


def freeze(policy: Policy, model: Model, patterns: Patterns) -> None:
    """Freeze the weights that the patterns exclude, and their copies; call before gradient buffers exist.

    Raises:
        ConfigError: a pattern matches no name, or all weights are frozen.
    """
    frozen = frozen_names(model, patterns)
    for weight, parameter in own_parameters(policy, model).values():
        if name_of(weight) in frozen:
            parameter.requires_grad_(False)
    if name_of(next(model.weights())) in frozen:
        if model.tied and policy.post_process:
            policy.output_weight().requires_grad_(False)
        if policy.pre_process:
            # Recomputed layers get gradients only if their input requires one.
            policy.embedding.register_forward_hook(_with_gradient)


def _with_gradient(module: torch.nn.Module, given: object, output: torch.Tensor) -> None:
    if torch.is_grad_enabled():
        output.requires_grad_()


def copy_weights(policy: Policy, weights: Mapping[str, torch.Tensor]) -> None:
    """Copy weights, by the names of `weights_of`, into a rank's part."""
    with torch.no_grad():
        for name, mine in weights_of(policy).items():
            mine.copy_(weights[name])


def load_hf(
    policy: Policy,
    directory: Path,
    model: Model,
    into: Callable[[torch.Tensor], torch.Tensor] = lambda parameter: parameter.data,
) -> None:
    """Read this rank's part of a model directory into `into(parameter)` of each parameter.

    Raises:
        ModelError: a weight is missing or has another shape.
    """
    weights = HfWeights(directory)
    weights.check([slot for weight in model.weights() for slot in weight.hf])
    load_parts(policy, model, weights, into)


@torch.no_grad()
def load_parts(policy: Policy, model: Model, weights: HfWeights, into: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Copy this rank's part of whole Hugging Face weights into `into(parameter)` of each parameter."""
    for weight, parameter in own_parameters(policy, model).values():
        into(parameter).copy_(part_of(weights, weight, model))
    if model.tied and policy.post_process and not policy.pre_process:
        embedding = next(model.weights())
        into(policy.output_layer.weight).copy_(part_of(weights, embedding, model))


def part_of(weights: HfWeights, weight: Weight, model: Model) -> torch.Tensor:
    """This rank's part of a parameter, from whole Hugging Face weights."""
    whole = fuse(model, weight, [weights[slot.name] for slot in weight.hf])
    return cut(weight, whole, *(_tensor() if weight.expert is None else _expert_tensor()))


def current_layout() -> Layout:
    """The current layout of all ranks."""
    return Layout(
        dist.get_world_size(),
        tensor=_tensor()[1],
        pipeline=parallel_state.get_pipeline_model_parallel_world_size(),
        context=parallel_state.get_context_parallel_world_size(),
        expert=_expert()[1],
        expert_tensor=_expert_tensor()[1],
    )


def _tensor() -> tuple[int, int]:
    return parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_tensor_model_parallel_world_size()


def _expert() -> tuple[int, int]:
    return parallel_state.get_expert_model_parallel_rank(), parallel_state.get_expert_model_parallel_world_size()


def _expert_tensor() -> tuple[int, int]:
    return parallel_state.get_expert_tensor_parallel_rank(), parallel_state.get_expert_tensor_parallel_world_size()


def weights_with_stages(model: Model, config: TransformerConfig) -> Iterator[tuple[Weight, int]]:
    """Each weight with its pipeline stage."""
    first, last = config.num_layers_in_first_pipeline_stage, config.num_layers_in_last_pipeline_stage
    counts = layers_of_stages(model, config.pipeline_model_parallel_size, first or 0, last or 0)
    stages = [stage for stage, count in enumerate(counts) for _ in range(count)]
    for weight in model.weights():
        if weight.layer is not None:
            yield weight, stages[weight.layer]
        else:
            yield weight, 0 if weight.name.startswith("embedding") else len(counts) - 1


def _scaled_frequencies(waves: torch.Tensor, stretch: LlamaRope) -> torch.Tensor:
    """Llama 3's rotary frequencies (Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.2), as in its code."""
    turns = stretch.length * waves / (2 * torch.pi)
    kept = ((turns - stretch.low) / (stretch.high - stretch.low)).clamp(0, 1)
    return kept * waves + (1 - kept) * waves / stretch.factor
