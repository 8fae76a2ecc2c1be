"""The driver's side of training, one for every trainer: split a step over the ranks, dispatch, gather, time out.

Example:

    report = await trainer.train(prepared, rollout_id=3)
    await trainer.publish(version)
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from slime_core.catalog.checks import check_step_result
from slime_core.config import OptimArgs, Plan, critic_of, reference_of, teacher_of
from slime_core.errors import RunFolderError
from slime_core.roles import (
    AdvantageSpec,
    Launcher,
    Optim,
    RankSetup,
    StepResult,
    TrainBatch,
    TrainerSpec,
    WeightChannel,
    WeightSlot,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_core.sample import GroupId
from slime_core.train.balance import Cost
from slime_core.train.limits import MismatchLimits
from slime_core.train.prepare import TrainGroup
from slime_core.train.split import split_step, steps_of

HOST = "slime_core.train.rank_host:RankHost"
START_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What a rollout's training did."""

    steps: Sequence[Mapping[str, float]]
    """Metrics of each optimizer step."""
    scores: Mapping[GroupId, float]
    """Mean absolute advantage of each group."""


class Trainer:
    """The ranks as one object."""

    def __init__(
        self,
        plugin: str,
        group: WorkerGroup,
        channel: WeightChannel,
        keys: OptimArgs,
        timeout_s: float,
        cost: Cost | None,
    ) -> None:
        """Take over started ranks of a plugin's trainer; use `start`."""
        self._plugin = plugin
        self._group = group
        self._num_steps = keys.num_steps_per_rollout
        self._limits = MismatchLimits(keys.max_mean_logprob_abs_diff, keys.max_logprob_abs_diff)
        self._timeout_s = timeout_s
        self._cost = cost
        self.channel = channel
        """Where `publish` puts versions."""

    @classmethod
    async def start(cls, plan: Plan, launcher: Launcher, scratch: Path, train_steps: int) -> "Trainer":
        """Start the ranks and agree the layout of the weights.

        Raises:
            WorkerError: a rank could not be built.
            RunFolderError: there is no room for the weights.
        """
        cost = Cost.of_config(plan.model_config()) if plan.config.optim.balance_by_flops else None
        chosen = plan.one("trainer")
        spec = cast(TrainerSpec, chosen.registered.spec)
        setup = _rank_setup(plan, scratch, train_steps)
        arguments = {"trainer": chosen.choice("trainer"), "setup": setup}
        group = await launcher.start(WorkerGroupSpec("trainer", spec.world_size(chosen.settings), HOST, arguments))
        slots = cast(Sequence[WeightSlot], (await group.call("weight_slots", timeout_s=START_TIMEOUT_S))[0])
        channel = WeightChannel(plan.transport, scratch / "weights.bin", slots)
        _allocate(channel.path, 2 * 4 * channel.numel)
        config = plan.config
        keys, timeout_s = config.optim, config.run.step_timeout_s
        return cls(chosen.registered.plugin, group, channel, keys, timeout_s, cost)

    async def train(self, groups: Sequence[TrainGroup], rollout_id: int) -> TrainReport:
        """Train on a rollout's prepared groups, in `num_steps_per_rollout` optimizer steps.

        Raises:
            NonFiniteError: a loss or gradient is not finite; the weights are as before that step.
            MismatchError: the trainer's log-probs are further from the sampler's than the run allows.
            PluginError: a rank hook raised, or what the trainer or a tensor role returned breaks its contract.
            WorkerError: a rank died, raised or did not answer.
        """
        steps: list[Mapping[str, float]] = []
        scores: dict[GroupId, float] = {}
        for step_groups in steps_of(groups, self._num_steps):
            batches = split_step(step_groups, self._group.size, rollout_id, self._cost)
            replies = await self._group.call("train_step", batches, timeout_s=self._timeout_s)
            results = self._checked(replies, batches)
            steps.append(_gather(results))
            if len(steps) == 1:
                self._limits.check(steps[0], rollout_id, tokens=sum(result.tokens for result in results))
            for result in results:
                scores.update({step_groups[index].group.id: score for index, score in result.scores.items()})
        return TrainReport(steps, scores)

    async def measure(self, groups: Sequence[TrainGroup], rollout_id: int) -> Mapping[str, float]:
        """Means over the trained tokens of groups that are not trained on, `loss` among them; nothing changes.

        Raises:
            PluginError: this trainer cannot tell.
            WorkerError: a rank died, raised or did not answer.
        """
        batches = split_step(groups, self._group.size, rollout_id, self._cost)
        results = self._checked(await self._group.call("measure", batches, timeout_s=self._timeout_s), batches)
        return {name.removeprefix("train/"): value for name, value in _gather(results).items()}

    def _checked(self, replies: Sequence[object], batches: Sequence[TrainBatch]) -> list[StepResult]:
        return [
            check_step_result(reply, plugin=self._plugin, rank=rank, groups=set(batch.group_index_S))
            for rank, (reply, batch) in enumerate(zip(replies, batches, strict=True))
        ]

    async def publish(self, version: int) -> None:
        """Write the current weights as a version; the engine switches by its own `load_weights`."""
        target = (self.channel, version)
        await self._group.call("publish", [target] * self._group.size, timeout_s=self._timeout_s)

    async def save(self, directory: Path) -> None:
        """Write model (HF format) and optimizer into a directory."""
        await self._group.call("save", [directory] * self._group.size, timeout_s=self._timeout_s)

    async def load(self, directory: Path) -> None:
        """Continue from what `save` wrote."""
        await self._group.call("load", [directory] * self._group.size, timeout_s=self._timeout_s)


def means(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each metric over optimizer steps."""
    names = sorted({name for step in steps for name in step})
    return {name: sum(step.get(name, 0.0) for step in steps) / len(steps) for name in names}


def _allocate(path: Path, size: int) -> None:
    """Make a file of zeros whose room is ours: running out of it in mapped memory would kill the ranks."""
    try:
        with path.open("wb") as file:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise RunFolderError(
            f"cannot make room for two copies of the weights, {size / 2**20:.1f} MiB, in {path}: {error.strerror}"
        ) from None


def _rank_setup(plan: Plan, scratch: Path, train_steps: int) -> RankSetup:
    config, keys = plan.config, plan.config.optim
    warmup = keys.lr_warmup_iters
    if keys.lr_warmup_fraction is not None:
        warmup = round(keys.lr_warmup_fraction * (keys.lr_decay_iters or train_steps))
    optim = Optim(
        lr=keys.lr,
        lr_warmup_iters=warmup,
        lr_decay_style=keys.lr_decay_style,
        min_lr=keys.min_lr,
        adam_beta1=keys.adam_beta1,
        adam_beta2=keys.adam_beta2,
        adam_eps=keys.adam_eps,
        weight_decay=keys.weight_decay,
        clip_grad=keys.clip_grad,
        train_steps=train_steps,
        lr_decay_iters=keys.lr_decay_iters,
        lr_wsd_decay_iters=keys.lr_wsd_decay_iters,
        lr_wsd_decay_style=keys.lr_wsd_decay_style,
    )
    needs_critic = cast(AdvantageSpec, plan.one("advantage").registered.spec).uses_values
    critic = critic_of(config, optim) if needs_critic else None
    without = critic.num_critic_only_steps * keys.num_steps_per_rollout if critic else 0
    return RankSetup(
        hf_checkpoint=config.run.hf_checkpoint,
        optim=replace(optim, train_steps=train_steps - without),
        advantage=plan.one("advantage").choice("advantage"),
        loss=plan.one("loss").choice("loss"),
        correction=correction.choice("correction") if (correction := plan.maybe("correction")) else None,
        plugins=plan.catalog.plugin_set,
        settings=plan.one("trainer").settings,
        rollout_temperature=config.rollout.rollout_temperature,
        calculate_per_token_loss=keys.calculate_per_token_loss,
        constant_loss_length=keys.constant_loss_length,
        seed=config.run.seed,
        rendezvous=scratch / "rendezvous",
        reference=reference_of(config),
        teacher=teacher_of(config),
        critic=critic,
        float32_matmul_precision=config.run.float32_matmul_precision,
    )


def _gather(results: Sequence[StepResult]) -> dict[str, float]:
    """Means over the tokens that were computed, and the values that all ranks share."""
    tokens = max(1, sum(result.tokens for result in results))
    names = sorted({name for result in results for name in result.metrics})
    means = {name: sum(result.metrics.get(name, 0.0) for result in results) / tokens for name in names}
    return {f"train/{name}": value for name, value in (means | dict(results[0].scalars)).items()}
