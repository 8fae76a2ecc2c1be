"""The optimizer of one rank: megatron-core's AdamW, with slime-core's schedule and a float64 gradient norm.

Example:

    norm = optimizer.prepare()                  # after gradients are summed over the ranks
    lr = optimizer.step(norm)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.cpu_offloading import HybridDeviceOptimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

from slime_core.roles import Optim, Settings
from slime_train import gradient_norm, learning_rate
from slime_trainer_megatron.arguments import megatron_arguments
from slime_trainer_megatron.compat import fake_cuda, suppress_import_warnings, suppress_warnings
from slime_trainer_megatron.model import Policy

MOMENTS = {"m": "exp_avg", "v": "exp_avg_sq"}
"""Names of the two moments in torch and Megatron."""


MASTER = "master"
"""Key of the fp32 master weight, next to the moments' keys."""


class Moments(Protocol):
    """Reads and writes a parameter's moments by torch's names."""

    def get(self, name: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        """A moment in the parameter's shape, zeros if missing; called on all replicas."""
        ...

    def put(self, name: str, parameter: torch.nn.Parameter, whole: torch.Tensor) -> None:
        """Store this rank's part of a moment."""
        ...


class ReplicatedMoments:
    """Moments that every rank keeps for all its parameters."""

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
        """Store the whole moment."""
        master = master_of(parameter)
        if name == MASTER:
            _put_weight(self._optimizer, master, whole)
        else:
            self._state[master][name].copy_(whole)


class DistributedMoments:
    """Moments that are distributed over the replicas; each keeps parts of some parameters' moments."""

    def __init__(self, optimizer: DistributedOptimizer) -> None:
        """Read and write the moments of this distributed optimizer."""
        self._optimizer = optimizer

    def get(self, name: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Combine the parts of all replicas, as a sum of their bits, so that a zero keeps its sign."""
        whole = torch.zeros(parameter.numel(), dtype=torch.float32)
        start, end, state = self._mine(parameter)
        if name in state:
            whole[start:end] = state[name].detach().float()
        dist.all_reduce(whole.view(torch.int32), group=self._optimizer.data_parallel_group)
        return whole.view(parameter.shape)

    def put(self, name: str, parameter: torch.nn.Parameter, whole: torch.Tensor) -> None:
        """Store this replica's part."""
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
    """The tensor that a rank's optimizer updates: Megatron's fp32 copy, or the parameter."""
    found: torch.Tensor = getattr(parameter, "main_param", parameter)
    return found


def gradients_of(policy: Policy, settings: Settings) -> DistributedDataParallel:
    """The model wrapped to sum gradients over the ranks, without averaging, at the end of a backward pass."""
    config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        use_distributed_optimizer=settings.__dict__["use_distributed_optimizer"],
        **megatron_arguments(settings, "DistributedDataParallelConfig"),
    )
    model = DistributedDataParallel(policy.config, config, policy)

    def finalize(models: list[object], tokens: object, **options: object) -> None:
        finalize_model_grads(models, None, **options)

    policy.config.finalize_model_grads_func = finalize
    if config.overlap_grad_reduce:
        policy.config.no_sync_func = model.no_sync
    return model


class RankOptimizer:
    """The optimizer of a rank's parameters."""

    def __init__(self, model: DistributedDataParallel, optim: Optim, settings: Settings) -> None:
        """Start with zero moments, distributed over the replicas if the gradients are."""
        own, bf16 = megatron_arguments(settings, "OptimizerConfig"), model.module.config.bf16
        if own["optimizer_cpu_offload"]:
            # Offload everything by default, as Megatron's command line does.
            own["optimizer_offload_fraction"] = own["optimizer_offload_fraction"] or 1.0
        config = OptimizerConfig(
            optimizer="adam",
            **own,
            lr=optim.lr,
            min_lr=optim.min_lr,
            weight_decay=optim.weight_decay,
            adam_beta1=optim.adam_beta1,
            adam_beta2=optim.adam_beta2,
            adam_eps=optim.adam_eps,
            clip_grad=optim.clip_grad,
            bf16=bf16,
            params_dtype=model.module.config.params_dtype,
        )
        # megatron-core 0.19 imports models here, with deprecation warnings.
        with fake_cuda(), suppress_import_warnings():
            self.megatron: MegatronOptimizer = get_megatron_optimizer(config, [model])
        """Megatron's optimizer, for hooks."""
        self._optim, self.steps = optim, 0
        self._parts: list[MegatronOptimizer] = self.megatron.chained_optimizers
        if config.use_distributed_optimizer:
            self._groups = [parallel_state.get_intra_distributed_optimizer_instance_group()] * 2
        else:
            experts = parallel_state.get_expert_tensor_model_pipeline_parallel_group()
            self._groups = [parallel_state.get_model_parallel_group(), experts]
        for group in self.megatron.param_groups:
            # Megatron's scheduler would set this at every step; slime-core's schedule replaces it.
            group["weight_decay"] = optim.weight_decay * group["wd_mult"]

    def begin_rollout(self) -> None:
        """Reset both moments and their bias correction if the settings require it; the schedule continues."""
        if not self._optim.reset_optimizer_states:
            return
        for part in self._parts:
            for optimizer in _adams(part):
                for state in optimizer.state.values():
                    for name in {"step", *MOMENTS.values()} & state.keys():
                        state[name].zero_()

    def prepare(self) -> float:
        """The norm of the whole gradient, the same on all ranks."""
        with suppress_warnings():
            self.megatron.prepare_grads()
        total = 0.0
        # A stage without trained experts has no optimizer for them, but must still join the sum.
        for parts, group in zip((self._parts[:1], self._parts[1:]), self._groups, strict=True):
            squares = torch.zeros((), dtype=torch.float64)
            for part in parts:
                for gradient in _gradients_of(part):
                    squares += gradient_norm(gradient.flatten()) ** 2
            dist.all_reduce(squares, group=group)
            total += float(squares)
        return math.sqrt(total)

    def step(self, norm: float) -> float:
        """Apply the gradient, scaled to the norm limit; returns the learning rate used."""
        lr, limit = learning_rate(self._optim, self.steps), self._optim.clip_grad
        if limit and norm > limit:
            with suppress_warnings():
                for parameter in self.parameters():
                    parameter.grad.mul_(limit / (norm + 1e-6))  # type: ignore[union-attr]
        for group in self.megatron.param_groups:
            group["lr"] = lr
        with suppress_warnings():
            self.megatron.step_with_ready_grads()
        self.steps += 1
        return lr

    def zero_grad(self) -> None:
        """Zero the gradient."""
        with suppress_warnings():
            self.megatron.zero_grad()

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """Optimized parameters; with a distributed optimizer, this replica's part."""
        return [each for group in self.megatron.param_groups for each in group["params"]]

    def moment(self, kind: str, parameter: torch.nn.Parameter) -> torch.Tensor:
        """A moment (key of `MOMENTS`) in its parameter's shape; zeros before the first step or if frozen.

        Called on all replicas together.
        """
        if not parameter.requires_grad:
            return torch.zeros_like(parameter, dtype=torch.float32)
        return self._moments_of(parameter).get(MOMENTS[kind], parameter)

    def put_moment(self, kind: str, parameter: torch.nn.Parameter, whole: torch.Tensor) -> None:
        """The inverse of `moment`, after `restore`."""
        if parameter.requires_grad:
            self._moments_of(parameter).put(MOMENTS[kind], parameter, whole)

    def master(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """The fp32 tensor that steps update: the parameter, or its master copy. Called on all replicas."""
        if _is_itself(parameter):
            return parameter.data.float()
        return self._moments_of(parameter).get(MASTER, parameter)

    def put_master(self, parameter: torch.nn.Parameter, whole: torch.Tensor) -> None:
        """The inverse of `master`."""
        parameter.data.copy_(whole)
        if parameter.requires_grad:
            self._moments_of(parameter).put(MASTER, parameter, whole)

    def restore(self, steps: int) -> None:
        """Allocate the moments of a checkpoint after `steps` steps; `put_moment` then fills them.

        Each parameter has its own step count, because AdamW would increment a shared one once per parameter.
        """
        self.steps = steps
        for part in self._parts:
            for optimizer in _adams(part):
                for parameter in [each for group in optimizer.param_groups for each in group["params"]]:
                    state = optimizer.state[parameter]
                    state["step"] = torch.tensor(float(steps), device="cpu")  # the type that AdamW uses
                    for name in MOMENTS.values():
                        state[name] = torch.zeros_like(parameter)
            if isinstance(part.optimizer, HybridDeviceOptimizer):
                part.optimizer._sync_sub_optimizers_state_to_hdo()

    def _moments_of(self, parameter: torch.nn.Parameter) -> Moments:
        for part in self._parts:
            if isinstance(part, DistributedOptimizer):
                if any(parameter in buffer.param_index_map for buffer in part.buffers):
                    return DistributedMoments(part)
            elif any(each is master_of(parameter) for group in part.param_groups for each in group["params"]):
                return ReplicatedMoments(part)
        raise AssertionError(f"no optimizer has a parameter of shape {tuple(parameter.shape)}")


def _gradients_of(part: MegatronOptimizer) -> Sequence[torch.Tensor]:
    get = getattr(part, "get_main_grads_for_grad_norm", None)  # its name in 0.16
    gradients: Sequence[torch.Tensor] = get() if get else part.get_grads_for_grad_norm()
    return gradients


def _adams(part: MegatronOptimizer) -> Sequence[torch.optim.Optimizer]:
    offloads = isinstance(part.optimizer, HybridDeviceOptimizer)
    found: Sequence[torch.optim.Optimizer] = part.optimizer.sub_optimizers if offloads else [part.optimizer]
    return found


def _is_itself(parameter: torch.nn.Parameter) -> bool:
    return parameter.dtype == torch.float32 or not parameter.requires_grad
