"""The local trainer: one rank of data-parallel AdamW over flat fp32 vectors.

Weights, gradient and what is optimized are one vector each, so all-reduce and clipping are a handful of calls
whatever the model. Samples with one prompt share its computation; groups of zero advantage are not computed.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist

from slime_core.catalog import Catalog, discover_in_worker
from slime_core.catalog.checks import blaming
from slime_core.catalog.rank_hooks import RankHooks
from slime_core.catalog.used import Used
from slime_core.errors import NonFiniteError
from slime_core.events import BeforeLogProb, BeforeTrainStep, TrainInit
from slime_core.local.beside import Beside
from slime_core.local.collectives import add_over_ranks, gather_over_ranks, sum_over_ranks
from slime_core.local.device import use_device
from slime_core.local.model import load_model
from slime_core.local.optimizer import FlatAdamW
from slime_core.local.parameters import trained_parameters
from slime_core.local.settings import LocalTrainerSettings
from slime_core.local.step import LocalStep
from slime_core.roles import (
    Advantage,
    Choice,
    Correction,
    Loss,
    LossSpec,
    RankSetup,
    Setup,
    StepResult,
    TrainBatch,
    WeightSlot,
)
from slime_core.train.mismatch import mismatch_extremes


class LocalRank:
    """One process of local training."""

    def __init__(self, rank: int, world_size: int, setup: RankSetup) -> None:
        """Load the model, build advantage and loss, and meet the other ranks."""
        settings = cast(LocalTrainerSettings, setup.settings)
        use_device(settings.device, rank)
        torch.set_float32_matmul_precision(setup.float32_matmul_precision)
        self._rank, self._world_size, self._setup = rank, world_size, setup
        if world_size > 1:
            meeting = f"file://{setup.rendezvous.absolute()}"
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
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
        self._beside = Beside(setup, sum_over_ranks) if setup.reference or setup.teacher or setup.critic else None
        if settings.gradient_checkpointing and self._beside and self._beside.critic:
            self._beside.critic.model.checkpoint_layers()
        loss_spec = cast(LossSpec, catalog.find("loss", setup.loss.name).spec)
        self._step = LocalStep(
            model=self._model,
            advantage=cast(Used[Advantage], _build(catalog, setup.advantage, setup.seed)),
            loss=cast(Used[Loss], _build(catalog, setup.loss, setup.seed)),
            correction=cast(Used[Correction], _build(catalog, setup.correction, setup.seed))
            if setup.correction
            else None,
            skip_zero_advantage=loss_spec.zero_without_advantage(setup.loss.settings)
            and not (setup.reference and setup.reference.kl_loss_coef),
            temperature=setup.rollout_temperature,
            per_token=setup.calculate_per_token_loss,
            constant_length=setup.constant_loss_length,
            sum_over_ranks=sum_over_ranks,
            max_tokens=settings.max_tokens_per_micro_batch,
            beside=self._beside,
        )
        self._hooks.fire(TrainInit(rank, world_size, setup, self._model, self._optimizer))

    def weight_slots(self) -> Sequence[WeightSlot]:
        """Layout of the flat weight vector."""
        return [WeightSlot(slot.name, tuple(slot.shape), slot.offset) for slot in self._model.layout]

    def train_step(self, batch: TrainBatch) -> StepResult:
        """One optimizer step, log-probs included; see `TrainerRank.train_step`."""
        rank, model, optimizer = self._rank, self._model, self._optimizer
        if self._beside:
            self._beside.begin(batch.rollout_id, self._weights)
            for weights, other in self._beside.models():
                self._hooks.fire(BeforeLogProb(rank, batch.rollout_id, weights, other))
        self._hooks.fire(BeforeLogProb(rank, batch.rollout_id, "actor", model))
        self._hooks.fire(BeforeTrainStep(rank, batch.rollout_id, optimizer.steps, batch, model, optimizer))
        of_policy = not (self._setup.critic and batch.rollout_id < self._setup.critic.num_critic_only_steps)
        try:
            gradient, result = self._step.run(batch, of_policy=of_policy)
        except NonFiniteError as error:
            raise self._not_finite(str(error)) from error
        gradient = self._parameters.gradient(gradient)
        if of_policy:
            add_over_ranks(gradient)
        norm = self._finite(float(gradient.norm()), "the gradient norm")
        critic = self._beside.critic if self._beside else None
        critic_norm = self._finite(critic.norm(), "the gradient norm of the critic") if critic else 0.0
        scalars = dict(critic.step(critic_norm)) if critic else {}
        if of_policy:
            lr = optimizer.step(gradient, norm)
            self._parameters.apply()
            extremes = mismatch_extremes(gather_over_ranks(result.log_ratio_T))
            scalars |= {"grad_norm": norm, "lr-pg_0": lr, **extremes}
        return StepResult(result.metrics, result.tokens, scalars, result.scores)

    def measure(self, batch: TrainBatch) -> StepResult:
        """The loss of a batch without a step; see `MeasuresLoss`."""
        _, result = self._step.run(batch, trains=False)
        return StepResult(result.metrics, result.tokens, {}, result.scores)

    def _finite(self, norm: float, what: str) -> float:
        if not math.isfinite(norm):
            raise self._not_finite(f"{what} is {norm}")
        return norm

    def _not_finite(self, what: str) -> NonFiniteError:
        return NonFiniteError(
            f"optimizer step {self._optimizer.steps}: {what}; the weights are as before it. "
            "Lower lr or the loss's clip, or look at the rewards and log-probs of the newest samples."
        )

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The current weights by HF name."""
        for slot in self._model.layout:
            yield slot.name, self._weights[slot.offset : slot.offset + slot.numel].view(slot.shape)

    def save(self, directory: Path) -> None:
        """Rank 0 writes the model to `hf/`, and exactly what is optimized, with its moments, to `optim/`."""
        if self._rank == 0:
            self._model.save_hf(directory / "hf", self._weights)
            self._parameters.export(directory)
            self._optimizer.save(directory / "optim")
            if self._beside:
                self._beside.save(directory / "optim")

    def load(self, directory: Path) -> None:
        """Read weights and moments."""
        self._optimizer.load(directory / "optim")
        self._parameters.apply()
        if self._beside:
            self._beside.load(directory / "optim")


def _build(catalog: Catalog, choice: Choice, seed: int) -> Used[object]:
    """Build a tensor role from its plugin, found again in this process."""
    spec = catalog.find(choice.role, choice.name).spec

    def make(role: str, name: str, **settings: object) -> object:
        other = catalog.find(role, name).spec
        return other.factory(other.settings.model_validate(settings), setup)

    setup = Setup(make, seed)
    with blaming(f"the factory of {choice.role} {choice.name!r}", choice.plugin):
        return Used(choice.name, choice.plugin, spec.factory(choice.settings, setup))
