"""Ranks: runs the work of several ranks of one step as threads of this process, with sums over all of them.

Example:

    Ranks(2).run([lambda total: total(torch.ones(3)), lambda total: total(torch.ones(3))])      # twice [2, 2, 2]
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch

    Total: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
    Work: TypeAlias = Callable[[Total], torch.Tensor]


class Ranks:
    """Adds up what each rank gives to its `sum_over_ranks`."""

    def __init__(self, size: int) -> None:
        """Prepare for `size` ranks."""
        self._given: dict[int, torch.Tensor] = {}
        self._barrier = threading.Barrier(size, timeout=10)

    def run(self, works: "Sequence[Work]") -> "list[torch.Tensor]":
        """The result of each rank's work, which is given its `sum_over_ranks`.

        Raises:
            BrokenBarrierError: one rank asked for a sum that another did not.
        """
        with ThreadPoolExecutor(len(works)) as pool:
            jobs = [pool.submit(self._job, rank, work) for rank, work in enumerate(works)]
        return [job.result() for job in jobs]

    def _job(self, rank: int, work: "Work") -> "torch.Tensor":
        def sum_over_ranks(tensor: "torch.Tensor") -> "torch.Tensor":
            self._given[rank] = tensor.clone()
            self._barrier.wait()
            first, *others = [self._given[each] for each in sorted(self._given)]
            self._barrier.wait()
            return sum(others, first)

        try:
            made = work(sum_over_ranks)
        except Exception:
            self._barrier.abort()
            raise
        return made
