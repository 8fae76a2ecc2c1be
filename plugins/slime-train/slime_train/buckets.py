"""What a rank's `weights()` yields, checked on its way to a transport's sender.

Example:

    sender.send(3, fitting(slots, rank.weights(), plugin="slime-local", whole=rank_number == 0), ())
"""

from collections.abc import Iterator, Sequence

import torch

from slime_core.errors import ContractError
from slime_core.roles import WeightSlot


def fitting(
    slots: Sequence[WeightSlot], buckets: Iterator[tuple[str, torch.Tensor]], *, plugin: str, whole: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buckets, checked: each fits its slot and comes once; with `whole`, every slot gets one.

    Raises:
        ContractError: names the first that does not, or that is missing at the end.
    """
    where = f"trainer of plugin {plugin}, weights()"
    left = {slot.name: slot for slot in slots}
    known = frozenset(left)
    for name, tensor in buckets:
        slot = left.pop(name, None)
        if slot is None:
            what = "comes twice" if name in known else "is not among its weight_slots()"
            raise ContractError(f"{where}: bucket {name!r} {what}")
        made = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        if made != (slot.shape, slot.dtype.value):
            raise ContractError(f"{where}: bucket {name} is {made[0]} {made[1]}; its slot says {slot}")
        yield name, tensor
    if whole and left:
        first = next(iter(left.values()))
        raise ContractError(f"{where}: no bucket for {first}, and {len(left) - 1} more")
