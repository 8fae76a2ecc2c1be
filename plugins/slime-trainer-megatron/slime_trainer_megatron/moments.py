"""Moments: those of a parameter, whole, whoever keeps them: its rank, or all replicas of it a part each.

With them, where weights are in bf16, goes what a weight is rounded from, in fp32.

megatron-core's own way to save a distributed optimizer's, without Transformer Engine, fails before the first step, and
in a resume counts a step for each parameter. Here a parameter's are gathered, bit for bit, and dealt again.

Example:

    whole = DealtMoments(optimizer).get("exp_avg", parameter)     # on all replicas
"""

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer.cpu_offloading import HybridDeviceOptimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

MOMENTS = {"m": "exp_avg", "v": "exp_avg_sq"}
"""What torch and Megatron call the two."""
MASTER = "master"
"""Beside their names: the weight itself, in fp32."""


class Moments(Protocol):
    """Reads and writes a parameter's moments by torch's names."""

    def get(self, name: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        """In the parameter's shape, zeros where there are none; called on all replicas."""
        ...

    def put(self, name: str, parameter: torch.nn.Parameter, whole: torch.Tensor) -> None:
        """Keep what is this rank's of it."""
        ...


class OwnMoments:
    """Every rank keeps those of all its parameters."""

    def __init__(self, optimizer: MegatronOptimizer) -> None:
        """Read and write the moments of this optimizer."""
        self._optimizer = optimizer.optimizer
        self._state = self._optimizer.state

    def get(self, name: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        """The moment that this rank holds."""
        master = master_of(parameter)
        if name == MASTER:
            return master.data
        found = self._state[master].get(name) if master in self._state else None
        return torch.zeros_like(master) if found is None else found

    def put(self, name: str, parameter: torch.nn.Parameter, whole: torch.Tensor) -> None:
        """Keep all of it."""
        master = master_of(parameter)
        if name == MASTER:
            _put_weight(self._optimizer, master, whole)
        else:
            self._state[master][name].copy_(whole)


class DealtMoments:
    """Every replica keeps a part of those of some parameters."""

    def __init__(self, optimizer: DistributedOptimizer) -> None:
        """Read and write the moments of this distributed optimizer."""
        self._optimizer = optimizer

    def get(self, name: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        """The parts of all replicas; their bits are added up, so that a zero keeps its sign."""
        whole = torch.zeros(parameter.numel(), dtype=torch.float32)
        start, end, state = self._mine(parameter)
        if name in state:
            whole[start:end] = state[name].detach().float()
        dist.all_reduce(whole.view(torch.int32), group=self._optimizer.data_parallel_group)
        return whole.view(parameter.shape)

    def put(self, name: str, parameter: torch.nn.Parameter, whole: torch.Tensor) -> None:
        """Keep this replica's part."""
        start, end, state = self._mine(parameter)
        if end > start and name == MASTER:
            _put_weight(self._optimizer.optimizer, state[name], whole.flatten()[start:end])
        elif end > start:
            state[name].copy_(whole.flatten()[start:end])

    def _mine(self, parameter: torch.nn.Parameter) -> tuple[int, int, Mapping[str, torch.Tensor]]:
        optimizer = self._optimizer
        if parameter not in optimizer.model_param_gbuf_map:
            return 0, 0, {}
        buffer, dtype, bucket = optimizer.model_param_gbuf_map[parameter]
        part = optimizer.gbuf_ranges[buffer][dtype][bucket]["param_map"][parameter]["param"]
        group, place = optimizer.model_param_group_index_map[parameter]
        own = optimizer.optimizer.param_groups[group]["params"][place]
        return part.start, part.end, {**optimizer.optimizer.state[own], MASTER: own}


def _put_weight(optimizer: torch.optim.Optimizer, own: torch.Tensor, part: torch.Tensor) -> None:
    own.data.copy_(part)
    if isinstance(optimizer, HybridDeviceOptimizer):
        optimizer.param_to_inner_param[own].data.copy_(part)


def master_of(parameter: torch.nn.Parameter) -> torch.Tensor:
    """What a rank's own optimizer adds its steps to: Megatron's copy in fp32, or the parameter."""
    found: torch.Tensor = getattr(parameter, "main_param", parameter)
    return found
