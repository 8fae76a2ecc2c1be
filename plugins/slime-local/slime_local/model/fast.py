"""The fast path: Llama, Mistral, Qwen2 and Qwen3 decoders on flat tokens, every shared prefix computed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import embedding
from torch.utils.checkpoint import checkpoint
from transformers import GenerationConfig, PreTrainedConfig

from slime_local.model.attention import attend, attention_input
from slime_local.model.base import DecodeState, LocalModel, check_log_probs_call
from slime_local.model.fast_decode import FastDecode
from slime_local.model.head import Pairs, token_log_probs
from slime_local.model.mlp import gated_mlp
from slime_local.model.ops import plus_times, rms_scale, rounded
from slime_local.model.pack import Packed, pack_groups
from slime_local.model.static_decode import StaticDecode
from slime_local.model.tokens import GroupTokens, TokenLogProbs
from slime_local.model.weights import (
    DecoderTrained,
    DecoderWeights,
    LayerWeights,
    Slot,
    leaves,
    rounded_layers,
    view_weights,
)


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Dimensions of a decoder that its weights do not determine, and its rotary frequencies."""

    layers: int
    heads: int
    kv_heads: int
    eps: float
    inv_freq: Tensor
    """[D/2] radians a position."""
    rope_scale: float
    """Multiplies cos and sin (yarn)."""


class FastModel(LocalModel):
    """Hand-written forward and backward over views of the flat vector."""

    path = "fast"

    def __init__(
        self,
        source: Path,
        why: str,
        layout: tuple[Slot, ...],
        config: PreTrainedConfig,
        generation_config: GenerationConfig,
        shape: DecoderShape,
        flat: Tensor,
        bf16: bool = False,
    ) -> None:
        super().__init__(source, why, layout, config.vocab_size, config.max_position_embeddings)
        self.shape, self.bf16 = shape, bf16
        self._config, self._generation_config = config, generation_config
        self._slots = {slot.name: slot for slot in layout}
        self._cos, self._sin = _rope_tables(shape, 256)
        self._checkpoints = False
        self._serving: tuple[LayerWeights, ...] = ()
        self.bind(flat)

    @property
    def flat(self) -> Tensor:
        """The bound vector, [numel]."""
        return self._flat

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of a token."""
        shape = self.shape
        return 2 * shape.layers * shape.kv_heads * 2 * len(shape.inv_freq) * self._flat.element_size()

    def _bind(self, flat: Tensor) -> None:
        self._flat = flat
        self.weights = view_weights(flat, self._slots, self.shape.layers)
        self._is_rounded = False

    @property
    def serving(self) -> tuple[LayerWeights, ...]:
        """The layers for decoding; in bf16 a copy, made once for each `bind`, since memory traffic bounds decoding.

        The copy keeps its address, which recorded CUDA graphs read.
        """
        if not self.bf16:
            return self.weights.layers
        if not self._is_rounded:
            self._serving = rounded_layers(self.weights, self._serving)
            self._is_rounded = True
        return self._serving

    def rope(self, positions: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """The cos and sin of positions [N], all below `longest`: [N, 1, D/2] each."""
        if longest > self._cos.shape[0]:
            self._cos, self._sin = _rope_tables(self.shape, 2 * longest)
        return embedding(positions, self._cos).unsqueeze(1), embedding(positions, self._sin).unsqueeze(1)

    def checkpoint_layers(self) -> None:
        """Keep only each layer's input; see `LocalModel.checkpoint_layers`."""
        self._checkpoints = True

    def log_probs(
        self, groups: Sequence[GroupTokens], *, temperature: float = 1.0, grad: Tensor | None = None
    ) -> TokenLogProbs:
        """Log-prob and entropy of every response token; see `LocalModel.log_probs`."""
        check_log_probs_call(groups, temperature, grad, self.numel)
        with torch.set_grad_enabled(grad is not None):
            return self._log_probs(groups, temperature, grad)

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return self.weights.norm.shape[0]

    def values(self, groups: Sequence[GroupTokens], head: Tensor, *, grad: Tensor | None = None) -> Tensor:
        """A linear function of the states that predict each response token; see `LocalModel.values`."""
        check_log_probs_call(groups, 1.0, grad, self.numel)
        with torch.set_grad_enabled(grad is not None):
            x, weights, packed = self._trunk(groups, grad)
            return (x * rms_scale(x, self.shape.eps) * weights.norm).mv(head)[packed.source]

    def _log_probs(self, groups: Sequence[GroupTokens], temperature: float, grad: Tensor | None) -> TokenLogProbs:
        x, weights, packed = self._trunk(groups, grad)
        pairs = Pairs.of(packed.source, packed.targets, len(x), self.vocab_size)
        log_probs, entropy = token_log_probs(x, weights.norm, weights.head, pairs, temperature, self.shape.eps)
        return TokenLogProbs(log_probs, entropy[packed.source])

    def _trunk(self, groups: Sequence[GroupTokens], grad: Tensor | None) -> tuple[Tensor, DecoderWeights, Packed]:
        """States [M, d] before the final norm of the nodes that predict, the weights they came from, and the layout."""
        shape, weights, bf16 = self.shape, self.weights, self.bf16
        if grad is not None:
            gradients = view_weights(grad.detach(), self._slots, shape.layers)
            weights = leaves(weights, gradients, DecoderTrained.of(self.trained, shape.layers))
        packed = pack_groups(groups, shape.heads, shape.kv_heads)
        longest = max(len(g.prompt) + max(map(len, g.responses)) for g in groups)
        cos, sin = self.rope(packed.positions, longest)
        heads = (shape.heads, shape.kv_heads)
        x = embedding(packed.tokens, weights.embed)

        def layer(x: Tensor, w: LayerWeights, last: bool) -> Tensor:
            qkv = attention_input(x, w.norm, w.qkv, w.qkv_bias, w.q_norm, w.k_norm, cos, sin, heads, shape.eps, bf16)
            mixed = attend(qkv, packed.last_plan if last else packed.plan)
            x = plus_times(x.index_select(0, packed.kept) if last else x, mixed, rounded(w.o, bf16).t())
            return gated_mlp(x, w.mlp_norm, w.gate_up, w.down, shape.eps, bf16)

        for index, w in enumerate(weights.layers):
            last = index == shape.layers - 1
            if grad is not None and self._checkpoints:
                # Layers draw no random numbers, so the generator's state need not be saved.
                x = checkpoint(layer, x, w, last, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x, w, last)
        return x, weights, packed

    def start_decode(self) -> DecodeState:
        """A decode without rows."""
        return FastDecode(self) if self._flat.is_cpu else StaticDecode(self)

    def _save_weights(self, directory: Path, flat: Tensor) -> None:
        self._config.save_pretrained(directory)
        self._generation_config.save_pretrained(directory)
        # A copy each: safetensors refuses tensors that share storage.
        tensors = {slot.name: slot.view(flat).clone() for slot in self.layout}
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def _rope_tables(shape: DecoderShape, length: int) -> tuple[Tensor, Tensor]:
    angles = torch.outer(torch.arange(length, dtype=torch.float32), shape.inv_freq)
    return angles.cos() * shape.rope_scale, angles.sin() * shape.rope_scale
