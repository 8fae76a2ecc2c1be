"""Export: the weights in Hugging Face's names, one parameter at a time, from the ranks that hold it to rank 0.

Ranks of one replica work together, and those that have the experts of one; others have nothing to do. Rank 0 never
holds more than one whole parameter.

Example:

    for name, tensor in exported(policy, model, lambda parameter: parameter):
        ...                                             # on rank 0; other ranks iterate without being given anything
"""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from slime_trainer_megatron.collectives import parts_at_first
from slime_trainer_megatron.convert import is_parted, join, split
from slime_trainer_megatron.families import Model
from slime_trainer_megatron.model import Policy, laid_out, own_parameters, stage_of


@torch.no_grad()
def exported(
    policy: Policy, model: Model, values: Callable[[torch.nn.Parameter], torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Of every weight what `values` makes of its parameter, in the model's order.

    Args:
        policy: this rank's part.
        model: the whole.
        values: a tensor of the parameter's shape: itself, a moment.
    """
    mine, layout = own_parameters(policy, model), laid_out()
    groups = parallel_state.get_tensor_model_parallel_group(), parallel_state.get_expert_tensor_parallel_group()
    first = parallel_state.get_data_parallel_rank(with_context_parallel=True) == 0
    firsts = first, parallel_state.get_expert_data_parallel_rank() == 0
    rank = dist.get_rank()
    for weight, stage in stage_of(model, layout.pipeline):
        kind = int(weight.expert is not None)
        parts = [torch.empty(slot.shape) for slot in weight.hf] if rank == 0 else []
        found = mine.get(weight.within())
        if found and firsts[kind]:
            own = values(found[1]).detach()
            if several := parts_at_first(own, groups[kind]) if is_parted(weight) else [own]:
                parts = split(model, weight, join(weight, several))
        if holder := layout.holder(stage, layout.part_of(weight, model)):
            _move(parts, holder)
        if rank == 0:
            yield from zip((slot.name for slot in weight.hf), parts, strict=True)


def _move(parts: list[torch.Tensor], holder: int) -> None:
    """From the rank that holds them to the first of all."""
    for part in parts:
        if dist.get_rank() == 0:
            dist.recv(part, holder)
        elif dist.get_rank() == holder:
            dist.send(part.contiguous(), 0)
