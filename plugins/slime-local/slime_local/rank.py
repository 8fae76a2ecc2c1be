"""The local trainer: one rank of data-parallel AdamW over flat fp32 vectors.

Weights, gradient and optimized parameters are one vector each, so all-reduce and clipping take a handful of calls.
Samples with the same prompt share its computation; groups of zero advantage are not computed.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist

from slime_core.catalog import discover_in_worker
from slime_core.errors import NonFiniteError
from slime_core.events import BeforeLogProb, BeforeTrainStep, TrainInit
from slime_core.roles import MemoryTag, MemoryTags, RankSetup, StepResult, TrainBatch, WeightSlot
from slime_local.companions import CompanionModels, OldPolicy
from slime_local.device import add_over_ranks, gather_over_ranks, sum_over_ranks, use_device
from slime_local.model import load_model
from slime_local.optimizer import FlatAdamW
from slime_local.parameters import trained_parameters
from slime_local.settings import LocalTrainerSettings
from slime_local.step import LocalStep
from slime_train import (
    Algorithm,
    RankHooks,
    Share,
    check_weights_finite,
    fail_on_all_ranks,
    gradient_norm,
    mismatch_extremes,
    save_train_data,
)


class LocalRank:
    """One process of local training."""

    def __init__(self, rank: int, world_size: int, setup: RankSetup) -> None:
        """Load the model, build advantage and loss, and meet the other ranks."""
        settings = cast(LocalTrainerSettings, setup.settings)
        use_device(settings.device, rank)
        torch.set_float32_matmul_precision(setup.float32_matmul_precision)
        self._rank, self._world_size, self._setup = rank, world_size, setup
        if world_size > 1:
            dist.init_process_group("gloo", init_method=setup.rendezvous, rank=rank, world_size=world_size)
        self._model = load_model(setup.hf_checkpoint, bf16=setup.bf16)
        self._weights = torch.empty(self._model.numel)
        self._model.read_into(self._weights)
        self._model.bind(self._weights)
        self._parameters = trained_parameters(self._model, self._weights, settings, setup.seed)
        self._model.trained = self._parameters.trained
        if settings.gradient_checkpointing:
            self._model.checkpoint_layers()
        self._optimizer = FlatAdamW(self._parameters.vector, self._parameters.decayed, setup.optim)
        catalog = discover_in_worker(setup.plugins, f"trainer {rank}")
        self._hooks = RankHooks(catalog)
        has_companions = setup.reference or setup.teacher or setup.critic
        self._companions = CompanionModels(setup, sum_over_ranks) if has_companions else None
        if settings.gradient_checkpointing and self._companions and self._companions.critic:
            self._companions.critic.model.checkpoint_layers()
        self._old = OldPolicy(setup, setup.old_actor_lag) if setup.old_actor_lag is not None else None
        self._algorithm = Algorithm.in_rank(catalog, setup, sum_over_ranks)
        self._step = LocalStep(
            self._model,
            self._algorithm,
            temperature=setup.rollout_temperature,
            max_tokens=settings.max_tokens_per_micro_batch,
        )
        self._begun: dict[int, Share] = {}
        self._hooks.fire(TrainInit(rank, world_size, setup, self._model, self._optimizer))

    def weight_slots(self) -> Sequence[WeightSlot]:
        """The model's weights, in the order of the flat vector."""
        return [WeightSlot(slot.name, tuple(slot.shape)) for slot in self._model.layout]

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        """Compute what depends on the weights before the rollout's steps; see `PreparesRollout`."""
        rollout_id = batches[0].rollout_id
        self._optimizer.begin_rollout()
        if self._companions:
            self._companions.begin(rollout_id, self._weights)
            for weights, other in self._companions.models():
                self._hooks.fire(BeforeLogProb(self._rank, rollout_id, weights, other))
        self._hooks.fire(BeforeLogProb(self._rank, rollout_id, "actor", self._model))
        with fail_on_all_ranks(self._rank, self._world_size, sum_over_ranks):
            shares = self._shares(batches)
            if not self._trains_critic_alone(rollout_id):
                old = self._old.model(rollout_id) if self._old else None
                shares = [self._step.with_old_log_probs(share, old) for share in shares]
        if self._setup.train_data is not None:
            save_train_data(self._setup.train_data, shares, self._rank)
        self._begun = {share.batch.step: share for share in shares}

    def train_step(self, batch: TrainBatch) -> StepResult:
        """One step, see `TrainerRank.train_step`; begins a rollout for a batch that `begin_rollout` did not get."""
        model, optimizer = self._model, self._optimizer
        if (share := self._begun.pop(batch.step, None)) is None:
            self.begin_rollout([batch])
            share = self._begun.pop(batch.step)
        self._hooks.fire(BeforeTrainStep(self._rank, batch.rollout_id, optimizer.steps, batch, model, optimizer))
        of_policy = not self._trains_critic_alone(batch.rollout_id)
        critic = self._companions.critic if self._companions else None
        try:
            with fail_on_all_ranks(self._rank, self._world_size, sum_over_ranks):
                if critic:
                    critic.backward(self._step.packs(share, share.mask_T), share)
                gradient, sums = self._step.run(share, of_policy=of_policy)
        except NonFiniteError as error:
            raise self._not_finite(str(error)) from error
        gradient = self._parameters.gradient(gradient)
        if of_policy:
            add_over_ranks(gradient)
        norm = self._finite(gradient_norm(gradient), "the gradient norm")
        critic_norm = self._finite(critic.norm(), "the gradient norm of the critic") if critic else 0.0
        scalars = dict(critic.step(critic_norm)) if critic else {}
        if of_policy:
            lr = optimizer.step(gradient, norm)
            self._parameters.apply()
            if not self._weights.sum().isfinite():  # one sum is cheaper than one a weight
                check_weights_finite(self.weights(), optimizer.steps)
            extremes = mismatch_extremes(gather_over_ranks(sums.log_ratios()))
            scalars |= {"grad_norm": norm, "lr-pg_0": lr, **extremes}
        return sums.result(share, scalars)

    def published(self, version: int) -> None:
        """Record that engines have the current weights; see `TracksVersions`."""
        if self._old:
            self._old.published(version, self._weights)

    def measure(self, batch: TrainBatch) -> StepResult:
        """The loss of a batch without a step; see `MeasuresLoss`."""
        (share,) = self._shares([batch])
        _, sums = self._step.run(share, trains=False)
        return sums.result(share, {})

    def _trains_critic_alone(self, rollout_id: int) -> bool:
        return self._setup.critic is not None and rollout_id < self._setup.critic.num_critic_only_steps

    def _shares(self, batches: Sequence[TrainBatch]) -> list[Share]:
        shares = [self._algorithm.share(batch) for batch in batches]
        if self._companions:
            shares = [self._companions.add_log_probs(share, self._step.packs(share, share.mask_T)) for share in shares]
        return self._algorithm.estimate(shares)

    def _finite(self, norm: float, what: str) -> float:
        if not math.isfinite(norm):
            raise self._not_finite(f"{what} is {norm}")
        return norm

    def _not_finite(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"optimizer step {self._optimizer.steps}: {what}; the weights are unchanged. "
            "Lower lr or the loss's clip range, or look at the rewards and log-probs of the latest samples."
        )

    def release(self, tags: MemoryTags) -> None:
        """Free the gradient, the only memory of a rank that can be dropped."""
        if MemoryTag.GRADIENT in tags:
            self._step.release()

    def resume(self, tags: MemoryTags) -> None:
        """Allocate the gradient again."""
        if MemoryTag.GRADIENT in tags:
            self._step.resume()

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The current weights by HF name."""
        for slot in self._model.layout:
            yield slot.name, self._weights[slot.offset : slot.offset + slot.numel].view(slot.shape)

    def save(self, directory: Path, *, hf: bool = True) -> None:
        """Write the model to `hf/`, and the exact optimized vector and moments to `optim/`, on rank 0."""
        if self._rank == 0:
            if hf:
                self._model.save_hf(directory / "hf", self._weights)
            self._parameters.export(directory)
            self._optimizer.save(directory / "optim")
            if self._companions:
                self._companions.save(directory / "optim")
            if self._old:
                self._old.save(directory / "optim")

    def load(self, directory: Path) -> None:
        """Read weights and moments."""
        self._optimizer.load(directory / "optim")
        self._parameters.apply()
        if self._companions:
            self._companions.load(directory / "optim")
        if self._old:
            self._old.load(directory / "optim")
