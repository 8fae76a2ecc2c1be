"""Raises one rank's error before an optimizer step on all ranks, so that none hangs.

Example:

    with fail_on_all_ranks(rank, world_size, sum_over_ranks):
        sums = forward_and_backward(share)          # no collective in here
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from slime_core.errors import ContractError, NonFiniteError

TEXT = 2000
"""Bytes of an error's text that reach the other ranks."""
KINDS = (NonFiniteError, ContractError)


@contextmanager
def fail_on_all_ranks(
    rank: int, world_size: int, sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Run a block on every rank; if it fails on some, every rank raises the error of the first failed rank.

    The block itself may wait for other ranks only before anything in it can fail.

    Args:
        rank: this one.
        world_size: how many there are.
        sum_over_ranks: adds up a tensor over all of them; called once, and once more where a rank has failed.

    Raises:
        NonFiniteError: on all ranks, where the block raised it on one.
        ContractError: on all ranks, where the block raised it on one.
    """
    error: NonFiniteError | ContractError | None = None
    try:
        yield
    except KINDS as caught:
        if world_size == 1:
            raise
        error = caught
    if world_size == 1:
        return
    failed = torch.zeros(world_size, dtype=torch.int32)
    failed[rank] = 0 if error is None else 1 + isinstance(error, ContractError)
    failed = sum_over_ranks(failed)
    if failed.any():
        first = int(failed.nonzero()[0])
        text = torch.zeros(TEXT, dtype=torch.int32)
        if rank == first:
            encoded = list(str(error).encode()[:TEXT])
            text[: len(encoded)] = torch.tensor(encoded, dtype=torch.int32)
        message = bytes(byte for byte in sum_over_ranks(text).tolist() if byte).decode(errors="ignore")
        raise KINDS[int(failed[first]) - 1](f"rank {first}: {message}") from error
