"""Layers of plain torch, for a machine without Transformer Engine: norms, and attention over packed sequences.

`slime_trainer_megatron.blocks` puts them together. Parameters have the names of Transformer Engine's layers. Sequences
of one micro-batch are computed together, each at the beginning of a row: causality alone then keeps every token from
the padding after it, so that no mask is built.
"""

from typing import cast

import torch
import torch.nn.functional as F
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.layers import ColumnParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule

from slime_trainer_megatron.packing import mine_of_whole


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
    """A norm and the column-parallel product after it."""

    epsilon: float | None = None
    """Of the norm; None: as the configuration has it."""

    def __init__(self, input_size: int, output_size: int, *, config: TransformerConfig, **rest: object) -> None:
        """Add the norm to the class it extends."""
        super().__init__(input_size, output_size, config=config, **rest)
        self.layer_norm_weight = _norm_weight(config, input_size)
        self._eps = config.layernorm_epsilon if self.epsilon is None else self.epsilon

    def forward(self, x: torch.Tensor, *rest: object, **options: object) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[tokens, 1, input] -> [tokens, 1, output of this rank], and no bias to be added later."""
        normed = _rms_norm(x, self.layer_norm_weight, self._eps)
        return cast(tuple[torch.Tensor, torch.Tensor | None], super().forward(normed, *rest, **options))


class WholeLinear(torch.nn.Module):
    """A product that every tensor-parallel rank has whole, of its own part of the tokens."""

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
    """Causal attention within each sequence of a micro-batch; with context parallelism, this rank's queries."""

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
        """Take the shape of the heads; there are no parameters."""
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
        """[T, heads, d], keys and values of fewer heads -> [T, heads * d], T the tokens that this rank has."""
        assert packed_seq_params is not None, "micro-batches are packed"
        ends = packed_seq_params.cu_seqlens_q.long()
        length, size = int(packed_seq_params.max_seqlen_q), self._cp.size()
        token = torch.arange(int(ends[-1]), device=query.device)
        row = torch.bucketize(token, ends[1:], right=True)
        place = row * length + token - ends[row]  # of each token of the whole texts, in rows of one length
        own = place
        if size > 1:
            mine = [mine_of_whole(ends, size, rank).to(query.device) for rank in range(size)]
            own, place = place[mine[self._cp.rank()]], place[torch.cat(mine)]
            key, value = (_of_all(each, self._cp) for each in (key, value))
        rows = len(ends) - 1
        q, k, v = (_spread(each, where, rows, length) for each, where in ((query, own), (key, place), (value, place)))
        # Keys and values are repeated for their queries: on a CPU torch has no kernel without the whole matrix else.
        repeat = q.shape[1] // k.shape[1]
        k, v = (each.repeat_interleave(repeat, 1) if repeat > 1 else each for each in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self._scale)
        return out.transpose(1, 2).flatten(0, 1)[own].flatten(1)


def _norm_weight(config: TransformerConfig, size: int) -> torch.nn.Parameter:
    weight = torch.nn.Parameter(torch.ones(size, dtype=config.params_dtype))
    # With sequence parallelism each rank has a part of the tokens: their gradients are added up over the ranks.
    weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return weight


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x.float(), (x.shape[-1],), None, eps).to(x.dtype) * weight


def _of_all(part: torch.Tensor, group: torch.distributed.ProcessGroup) -> torch.Tensor:
    """[T of a rank, ...] -> [T of all ranks, ...]; their gradients are added up."""
    gathered = gather_from_sequence_parallel_region(part.contiguous(), tensor_parallel_output_grad=True, group=group)
    return cast(torch.Tensor, gathered)


def _spread(tokens: torch.Tensor, place: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """[T, heads, d] -> [rows, heads, length, d], each token at its place, zeros elsewhere."""
    flat = tokens.new_zeros(rows * length, *tokens.shape[1:])
    return flat.index_copy(0, place, tokens).view(rows, length, *tokens.shape[1:]).transpose(1, 2)
