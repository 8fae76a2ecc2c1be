"""The trainer `megatron`: one rank of megatron-core's model and optimizer behind the core's role.

slime-core's `Algorithm` defines a step; Megatron computes it over ranks.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from slime_core.errors import ConfigError, ContractError, NonFiniteError
from slime_core.events import BeforeLogProb, BeforeTrainStep, TrainInit
from slime_core.roles import RankSetup, StepResult, TrainBatch, WeightSlot
from slime_train import (
    Algorithm,
    RankHooks,
    Share,
    Sums,
    check_weights_finite,
    discover_in_worker,
    fail_on_all_ranks,
    mismatch_extremes,
    save_train_data,
)
from slime_trainer_megatron.compat import replace_cuda, suppress_import_warnings

with suppress_import_warnings():
    from megatron.core import parallel_state, tensor_parallel

    from slime_trainer_megatron.checkpoint import RankState, load, save, slots_of
    from slime_trainer_megatron.companion_models import CompanionModels, OldPolicy
    from slime_trainer_megatron.export import export_weights
    from slime_trainer_megatron.model import Policy, build_policy, current_layout, freeze, load_hf
    from slime_trainer_megatron.optimizer import RankOptimizer, gradients_of
    from slime_trainer_megatron.passes import Passes
    from slime_trainer_megatron.router import routers
    from slime_trainer_megatron.step import MegatronStep
    from slime_trainer_megatron.torch_dist import Saving

from slime_trainer_megatron.arguments import check_model, layout_of, patterns_of
from slime_trainer_megatron.collectives import (
    backend,
    broadcast_json,
    gather_values,
    init_single_process,
    sum_over_ranks,
)
from slime_trainer_megatron.config_json import read_directory
from slime_trainer_megatron.layout import Layout
from slime_trainer_megatron.passes import Head

StepReport = tuple[dict[str, float], int, dict[str, float], list[str]]
ResultT = TypeVar("ResultT")
TIMEOUT = timedelta(days=1)
"""Timeout of collectives; slime-core's shorter timeouts end a hanging call."""


class MegatronRank:
    """One process of training."""

    def __init__(self, rank: int, world_size: int, setup: RankSetup) -> None:
        """Join the other ranks and load this rank's part of the model."""
        settings = setup.settings
        use_device(settings.__dict__["device"], rank)
        torch.set_float32_matmul_precision(setup.float32_matmul_precision)
        self._rank, self._world_size, self._setup = rank, world_size, setup
        mtp_layers: int = settings.__dict__["mtp_num_layers"] or 0
        self._whole = read_directory(setup.hf_checkpoint, bf16=setup.bf16, mtp_layers=mtp_layers)
        check_model(settings, self._whole)
        layout = replace(layout_of(settings), ranks=world_size)
        join_ranks(rank, world_size, setup, layout)
        self.policy = build_policy(self._whole, settings, Policy)
        load_hf(self.policy, setup.hf_checkpoint, self._whole)
        freeze(self.policy, self._whole, patterns_of(settings))
        self._model = gradients_of(self.policy, settings)
        self.optimizer = RankOptimizer(self._model, setup.optim, settings)
        catalog = discover_in_worker(setup.plugins, f"trainer {rank}")
        self._hooks = RankHooks(catalog)
        self._algorithm = Algorithm.in_rank(catalog, setup, _sum_over_shares)
        given = settings.__dict__
        head = Head(self._whole.vocab, setup.rollout_temperature, given["log_probs_chunk_size"])
        self.passes = Passes(
            self._model,
            self.policy,
            self._whole,
            head,
            given["max_tokens_per_gpu"],
            replays=given["use_rollout_routing_replay"],
        )
        self._step = MegatronStep(self.passes, self._algorithm)
        self.companions = CompanionModels(setup, self.policy, self._whole)
        self._old = OldPolicy(setup, setup.old_actor_lag) if setup.old_actor_lag is not None else None
        self._state = RankState(
            self.policy,
            self.optimizer,
            self.companions,
            self._old,
            self._whole,
            setup.hf_checkpoint,
            given["max_shard_size"],
        )
        self._saving: Saving | None = None
        self._prepared: dict[int, Share] = {}
        self._hooks.fire(TrainInit(rank, world_size, setup, self.policy, self.optimizer.megatron))

    def weight_slots(self) -> Sequence[WeightSlot]:
        """The whole model's weights, in the order of its layers."""
        return slots_of(self._whole)

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        """Compute what depends on the current weights; see `PreparesRollout`."""
        rollout_id = batches[0].rollout_id
        self.optimizer.begin_rollout()
        self.companions.begin(rollout_id, self.policy)

        def before_pass(weights: str, policy: Policy) -> None:
            self._hooks.fire(BeforeLogProb(self._rank, rollout_id, weights, policy))

        shares = self.companions.add_log_probs([self._algorithm.share(batch) for batch in batches], before_pass)
        before_pass("actor", self.policy)
        with fail_on_all_ranks(self._rank, self._world_size, sum_over_ranks):
            shares = self._algorithm.estimate(shares)
        if not self._trains_critic_alone(rollout_id):
            old = self._old.passes(rollout_id) if self._old else None
            shares = [self._step.with_old_log_probs(share, old) for share in shares]
        self._save_train_data(shares)
        self._prepared = {share.batch.step: share for share in shares}

    def train_step(self, batch: TrainBatch) -> StepResult:
        """One optimizer step, see `TrainerRank.train_step`; a batch outside `begin_rollout` is a rollout by itself."""
        optimizer = self.optimizer
        if (share := self._prepared.pop(batch.step, None)) is None:
            self.begin_rollout([batch])
            share = self._prepared.pop(batch.step)
        watched = (batch, self.policy, optimizer.megatron)
        self._hooks.fire(BeforeTrainStep(self._rank, batch.rollout_id, optimizer.steps, *watched))
        critic, critic_norm, scalars = self.companions.critic, 0.0, dict[str, float]()
        if critic:
            self._run_checked(lambda: critic.backward(share))
            critic_norm = self._require_finite(critic.prepare(), "the gradient norm of the critic")
        if self._trains_critic_alone(batch.rollout_id):
            assert critic is not None
            scalars |= critic.step(critic_norm)
            self._check_weights(of_policy=False)
            return self._result(share, Sums(), scalars)
        self._model.zero_grad_buffer()
        optimizer.zero_grad()
        sums = self._run_checked(lambda: self._step.run(share))
        norm = self._require_finite(optimizer.prepare(), "the gradient norm")
        if critic:
            scalars |= critic.step(critic_norm)
        scalars |= {"grad_norm": norm, "lr-pg_0": optimizer.step(norm), **self._balance_loss(), **self._mtp_loss()}
        self._check_weights()
        return self._result(share, sums, scalars, extremes=True)

    def _check_weights(self, *, of_policy: bool = True) -> None:
        critic = self.companions.critic
        with fail_on_all_ranks(self._rank, self._world_size, sum_over_ranks):
            if of_policy:
                check_weights_finite(self.policy.named_parameters(), self.optimizer.steps)
            if critic:
                check_weights_finite(critic.policy.named_parameters(), critic.optimizer.steps, "the critic's ")

    def _save_train_data(self, shares: Sequence[Share]) -> None:
        one = parallel_state.get_tensor_model_parallel_rank() == parallel_state.get_context_parallel_rank() == 0
        if self._setup.train_data is not None and one and parallel_state.is_pipeline_last_stage():
            save_train_data(self._setup.train_data, shares, parallel_state.get_data_parallel_rank())

    def published(self, version: int) -> None:
        """Record that engines received the current weights; see `TracksVersions`."""
        if self._old:
            self._old.published(version, self.policy)

    def measure(self, batch: TrainBatch) -> StepResult:
        """The loss of a batch without a step; see `MeasuresLoss`."""
        (share,) = self._algorithm.estimate(self.companions.add_log_probs([self._algorithm.share(batch)]))
        return self._result(share, self._run_checked(lambda: self._step.run(share, trains=False)), {})

    def _trains_critic_alone(self, rollout_id: int) -> bool:
        return self._setup.critic is not None and rollout_id < self._setup.critic.num_critic_only_steps

    def _require_finite(self, norm: float, what: str) -> float:
        if not math.isfinite(norm):
            raise self._non_finite_error(f"{what} is {norm}")
        return norm

    def _run_checked(self, run: Callable[[], ResultT]) -> ResultT:
        error: NonFiniteError | ContractError | None = None
        try:
            found = run()
        except (NonFiniteError, ContractError) as caught:
            error = caught
        try:
            with fail_on_all_ranks(self._rank, self._world_size, sum_over_ranks):
                if error is not None:
                    raise error
        except NonFiniteError as failed:
            raise self._non_finite_error(str(failed)) from failed
        return found

    def _result(self, share: Share, sums: Sums, scalars: dict[str, float], *, extremes: bool = False) -> StepResult:
        report: StepReport | None = None
        if parallel_state.is_pipeline_last_stage():
            if extremes:
                scalars |= mismatch_extremes(gather_values(sums.log_ratios(), parallel_state.get_data_parallel_group()))
            found = sums.result(share, scalars)
            report = dict(found.metrics), found.tokens, scalars, sorted(found.over_all_tokens)
        last = parallel_state.get_pipeline_model_parallel_last_rank()
        metrics, tokens, scalars, over_all = cast(StepReport, broadcast_json(report, last, _pipeline()))
        return StepResult(metrics, tokens, scalars, share.scores(), frozenset(over_all))

    def _balance_loss(self) -> dict[str, float]:
        if not self.policy.config.moe_aux_loss_coeff:
            return {}
        mine = torch.tensor(sum(router.pop_balance_loss() for router in routers(self.policy)), dtype=torch.float64)
        with_experts = sum(map(self._whole.has_experts, range(self._whole.layers + self._whole.further)))
        return {"load_balancing_loss": float(sum_over_ranks(mine)) / with_experts}

    def _mtp_loss(self) -> dict[str, float]:
        if not self._whole.further:
            return {}
        mine = torch.tensor(self.passes.pop_mtp_loss(), dtype=torch.float64)
        return {
            "mtp_loss": float(sum_over_ranks(mine, parallel_state.get_data_parallel_group(with_context_parallel=True)))
        }

    def _non_finite_error(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"optimizer step {self.optimizer.steps}: {what}; the weights are unchanged. "
            "Lower lr or the loss's clip, or check the rewards and log-probs of the newest samples."
        )

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The current weights by Hugging Face's names, one parameter gathered at a time; on rank 0."""
        return export_weights(self.policy, self._whole)

    def save(self, directory: Path, *, hf: bool = True) -> None:
        """Begin to write weights and moments to `optim/`; with `hf`, `hf/` is complete on return."""
        self.finish_save(wait=True)
        self._saving = save(directory, self._state, hf=hf)

    def finish_save(self, *, wait: bool) -> bool:
        """Whether the files of the last `save` are complete; see `SavesAsync`."""
        return self._saving is None or self._saving.finish(wait=wait)

    def load(self, directory: Path) -> None:
        """Read weights and moments that any layout saved."""
        load(directory, self._state)

    def close(self) -> None:
        """Destroy the process groups."""
        leave_ranks()


def use_device(name: str, rank: int) -> None:
    """Set the process's default device: number `rank` modulo the device count.

    megatron-core, losses and advantages then create new tensors on it.

    Raises:
        ConfigError: torch finds no such device, or the device is the CPU although torch sees GPUs.
    """
    if name == "cpu":
        if torch.cuda.is_available():
            raise ConfigError(
                '[trainer.megatron] device = "cpu": this process sees GPUs, which megatron-core would use. Hide them '
                'with `CUDA_VISIBLE_DEVICES= slime train ...`, or set device = "cuda"'
            )
        replace_cuda(torch.device("cpu"))
        return
    module = torch.get_device_module(name)
    if not module.is_available():
        raise ConfigError(
            f"[trainer.megatron] device = {name!r}: torch {torch.__version__} finds no such device; install a "
            'build of torch for it (https://pytorch.org/get-started/locally), or set device = "cpu"'
        )
    device = torch.device(name, rank % module.device_count())
    if name == "cuda":
        torch.cuda.set_device(device)  # megatron-core uses the current device
    torch.set_default_device(device)
    replace_cuda(device)


def join_ranks(rank: int, world_size: int, setup: RankSetup, layout: Layout) -> None:
    """Join the other ranks and create the layout's groups; a second call recreates them if the layout changed."""
    if world_size == 1:
        init_single_process()
    elif not dist.is_initialized():
        dist.init_process_group(
            backend(), init_method=setup.rendezvous, rank=rank, world_size=world_size, timeout=TIMEOUT
        )
    if not parallel_state.is_initialized() or current_layout() != replace(layout, first=0, last=0):
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=layout.tensor,
            pipeline_model_parallel_size=layout.pipeline,
            context_parallel_size=layout.context,
            expert_model_parallel_size=layout.expert,
            expert_tensor_parallel_size=layout.expert_tensor,
        )
    torch.manual_seed(setup.seed)
    tensor_parallel.model_parallel_cuda_manual_seed(setup.seed)


def leave_ranks() -> None:
    """Undo `join_ranks`; idempotent."""
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def _pipeline() -> dist.ProcessGroup:
    group: dist.ProcessGroup = parallel_state.get_pipeline_model_parallel_group()
    return group


def _sum_over_shares(tensor: torch.Tensor) -> torch.Tensor:
    return sum_over_ranks(tensor, parallel_state.get_data_parallel_group())
