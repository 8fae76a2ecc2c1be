"""The driver's side of training: splits a step over the ranks, sends it, gathers reports and publishes weights.

It works the same for every trainer. Ranks wait for each other, so one slow rank delays all. During a long call, a
message names each rank that has not replied.

Example:

    await trainer.connect(await transport.open(await trainer.weight_slots()))
    report = await trainer.train(prepared, rollout_id=3)
    await trainer.publish(version, engines=())
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from slime_core.aio import gather_or_cancel
from slime_core.batching.prepare import MismatchLimits, TrainGroup, check_slots, check_step_result
from slime_core.batching.split import Cost, Shares, split_step, steps_of
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import plugin_errors
from slime_core.config import OptimArgs, Plan, critic_of, old_actor_lag, reference_of, teacher_of
from slime_core.config.fit import Schedule
from slime_core.errors import ConfigError, ContractError
from slime_core.roles import (
    AdvantageSpec,
    CorrectionSpec,
    Launcher,
    LossSpec,
    MemoryTags,
    Optim,
    RankSetup,
    StepResult,
    TrainBatch,
    TrainerSpec,
    Transport,
    WeightChannel,
    WeightSlot,
    WorkerGroup,
    WorkerGroupSpec,
    file_rendezvous,
)
from slime_core.rollout import EnginePool
from slime_core.sample import GroupId

QUIET_SHARE = 0.1
"""Share of a call's time limit before the first message."""
MAX_NAMED = 8
"""Most ranks that a message names."""

log = logging.getLogger(__name__)


async def call_ranks(
    group: WorkerGroup, method: str, arguments: Sequence[object], limit_s: float, report: Callable[[str], None]
) -> list[object]:
    """Call a method of every rank; during a long call, `report` receives lines that name the ranks without a reply.

    Raises:
        WorkerError: a rank raised, died, or did not answer in `limit_s` seconds.
    """
    started = time.monotonic()

    async def watch() -> None:
        while True:
            await asyncio.sleep(limit_s * QUIET_SHARE)
            ranks = [f"rank {rank} ({what})" for rank, what in sorted(group.unanswered().items())]
            more = [f"{len(ranks) - MAX_NAMED} more"] if len(ranks) > MAX_NAMED else []
            waiting = ", ".join(ranks[:MAX_NAMED] + more) or "its answers"
            text = f"trainer: {method} has taken {time.monotonic() - started:.0f} s; waiting for {waiting}"
            log.info(text)
            report(text)

    watching = asyncio.create_task(watch())
    try:
        return await group.call(method, arguments, timeout_s=limit_s)
    finally:
        watching.cancel()


TRAINER_GROUP = "trainer"
"""Name of the ranks' worker group."""
HOST = "slime_train.rank_host:RankHost"
START_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class TrainReport:
    """Results of a rollout's training."""

    steps: Sequence[Mapping[str, float]]
    """Metrics of each optimizer step."""
    scores: Mapping[GroupId, float]
    """Mean absolute advantage of each group."""
    perf: Mapping[str, float] = field(default_factory=dict)
    """Seconds and speed, with names `perf/…`."""
    worked: tuple[float, float] | None = None
    """Begin and end of the optimizer steps, in seconds of `time.monotonic`; None without steps."""


class Trainer:
    """All ranks of the trainer as one object."""

    def __init__(self, plan: Plan, group: WorkerGroup, report: Callable[[str], None]) -> None:
        """Take over started ranks of the plan's trainer; call `start` instead."""
        chosen, keys = plan.roles.one(TrainerSpec), plan.config.optim
        self._group, self._limit_s, self._report = group, plan.config.run.step_timeout_s, report
        self._shares = Shares(chosen.spec.share_of_ranks(chosen.settings), chosen.plugin)
        self._reads, self._balances = chosen.spec.reads(chosen.settings), keys.balance_by_flops
        self._num_steps = keys.num_steps_per_rollout
        self._limits = MismatchLimits(keys.max_mean_logprob_abs_diff, keys.max_logprob_abs_diff)
        self._cost: Cost | None = None
        try:
            self._cost = Cost.of_config(plan.model_config())
        except ConfigError:  # config.json lacks the model's size
            if self._balances:
                raise
        self._turn = asyncio.Condition()
        self._published: int | None = None
        self._saving = False

    @classmethod
    async def start(
        cls,
        plan: Plan,
        launcher: Launcher,
        scratch: Path,
        train_steps: int,
        *,
        report: Callable[[str], None] = lambda text: None,
    ) -> "Trainer":
        """Start the ranks; `report` receives a line of text during long calls.

        Raises:
            WorkerError: a rank could not be built.
        """
        chosen = plan.roles.one(TrainerSpec)
        arguments = {"trainer": chosen.to_choice(), "setup": _rank_setup(plan, scratch, train_steps)}
        needs, preload = chosen.spec.needs(chosen.settings), chosen.spec.preload
        size, nodes = chosen.spec.world_size(chosen.settings), plan.config.cluster.actor_num_nodes or 1
        per_node = size // nodes if needs.gpus else None  # on a CPU only the number of ranks matters
        ranks = WorkerGroupSpec(TRAINER_GROUP, size, HOST, arguments, needs=needs, preload=preload, per_node=per_node)
        return cls(plan, await launcher.start(ranks, timeout_s=START_TIMEOUT_S), report)

    async def _call(self, method: str, arguments: Sequence[object], *, steps: int = 1) -> list[object]:
        return await call_ranks(self._group, method, arguments, self._limit_s * steps, self._report)

    async def _call_all(self, method: str, argument: object) -> list[object]:
        return await self._call(method, [argument] * self._group.size)

    async def watch(self) -> None:
        """Wait until the ranks are closed.

        Raises:
            WorkerError: a rank died between two calls.
        """
        await self._group.watch()

    async def weight_slots(self) -> Sequence[WeightSlot]:
        """Return the weight slots that the ranks publish.

        Raises:
            ContractError: the slots are invalid, or two have the same name.
        """
        [slots, *_] = await self._group.call("weight_slots", timeout_s=START_TIMEOUT_S)
        return check_slots(slots, plugin=self._shares.plugin)

    async def connect(self, channel: WeightChannel) -> None:
        """Make every rank open its end of a channel."""
        await self._group.call("connect", [channel] * self._group.size, timeout_s=START_TIMEOUT_S)

    async def train(self, groups: Sequence[TrainGroup], rollout_id: int) -> TrainReport:
        """Train on a rollout's prepared groups, in `num_steps_per_rollout` optimizer steps.

        Raises:
            NonFiniteError: a loss or gradient is not finite, and the weights are as before that step; or a weight is
                not finite after it.
            MismatchError: the mismatch between the trainer's and the sampler's log-probs is over a limit.
            PluginError: a rank hook raised, or the trainer or a tensor role returned a result that breaks its contract.
            WorkerError: a rank died, raised or did not answer.
        """
        steps: list[Mapping[str, float]] = []
        scores: dict[GroupId, float] = {}
        async with self._turn:
            self._published = None
        dealt = list(steps_of(groups, self._num_steps))
        if not dealt:
            return TrainReport(steps, scores)
        shares = [self._split(step_groups, rollout_id, step) for step, step_groups in enumerate(dealt)]
        by_rank = self._shares.per_rank(list(zip(*shares, strict=True)))
        await self._call("begin_rollout", by_rank, steps=len(dealt))
        began = time.monotonic()
        for step, (step_groups, batches) in enumerate(zip(dealt, shares, strict=True)):
            replies = await self._call_all("train_step", step)
            results = self._checked(replies, batches)
            steps.append(_gather(results, batches[0].step_tokens))
            if len(steps) == 1:
                self._limits.check(steps[0], rollout_id, tokens=sum(result.tokens for result in results))
            for result in results:
                scores.update({step_groups[index].group.id: score for index, score in result.scores.items()})
        ended = time.monotonic()
        return TrainReport(steps, scores, self._perf(groups, ended - began), (began, ended))

    def _perf(self, groups: Sequence[TrainGroup], seconds: float) -> dict[str, float]:
        """Return training speed. Tokens/s cover all ranks and whole sequences.

        TFLOPS are per rank, counting a step as three forward passes.
        """
        lengths = [(each.sample.prompt_length, each.sample.response_length) for one in groups for each in one.samples]
        found = {
            "perf/actor_train_time": seconds,
            "perf/actor_train_tok_per_s": sum(map(sum, lengths)) / seconds,
        }
        if self._cost is not None:
            forward = sum(self._cost.of(prompt, [response]) for prompt, response in lengths)
            found["perf/actor_train_tflops"] = 3 * forward / seconds / self._group.size / 1e12
        return found

    async def measure(self, groups: Sequence[TrainGroup], rollout_id: int) -> Mapping[str, float]:
        """Return means, `loss` included, over the unmasked tokens of held-out groups. Changes nothing.

        Raises:
            PluginError: this trainer cannot measure.
            WorkerError: a rank died, raised or did not answer.
        """
        batches = self._split(groups, rollout_id, step=0)
        given = self._shares.per_rank(batches)
        results = self._checked(await self._call("measure", given), batches)
        return {name.removeprefix("train/"): value for name, value in _gather(results, batches[0].step_tokens).items()}

    def _split(self, groups: Sequence[TrainGroup], rollout_id: int, step: int) -> list[TrainBatch]:
        cost = self._cost if self._balances else None
        return split_step(groups, self._shares.count, rollout_id, cost, self._reads, step)

    def _checked(self, replies: Sequence[object], batches: Sequence[TrainBatch]) -> list[StepResult]:
        """Return the checked report of each share, from the replies of all ranks."""
        groups = self._shares.per_rank([set(batch.group_index_S) for batch in batches])
        plugin = self._shares.plugin
        results = [
            check_step_result(reply, plugin=plugin, rank=rank, groups=own)
            for rank, (reply, own) in enumerate(zip(replies, groups, strict=True))
        ]
        return self._shares.merged(results)

    async def publish(self, version: int, engines: Sequence[int]) -> None:
        """Send the current weights as a version. Engines switch in `load_weights`.

        `engines`: numbers of the engines that read during the send, if the transport waits for them.
        """
        async with self._turn:
            await self._call_all("publish", (version, tuple(engines)))
            self._published = version
            self._turn.notify_all()

    async def release(self, tags: MemoryTags) -> None:
        """Release memory of every rank; `publish_again` then waits for the next version."""
        async with self._turn:
            self._published = None
        await self._call_all("release", tags)

    async def resume(self, tags: MemoryTags) -> None:
        """Reacquire memory of every rank."""
        await self._call_all("resume", tags)

    async def publish_again(self, engine: int, receive: Callable[[int], Coroutine[object, object, None]]) -> None:
        """Send the published version again, to one engine that receives during the call.

        Waits while the trainer's weights are newer than the published version.
        """
        async with self._turn:
            await self._turn.wait_for(lambda: self._published is not None)
            version = self._published
            assert version is not None, "it was waited for"

            async def send() -> None:
                await self._call_all("publish", (version, (engine,)))

            await gather_or_cancel(send(), receive(version))

    async def save(self, directory: Path, *, hf: bool = True) -> None:
        """Write the optimizer and, with `hf`, the model in HF format into a directory, after any earlier save.

        The files are complete when `finish_save` returns True.
        """
        await self.finish_save(wait=True)
        self._saving = True
        await self._call_all("save", (directory, hf))

    async def finish_save(self, wait: bool) -> bool:
        """Return whether the files of the last `save` are complete; with `wait`, wait for them."""
        if self._saving:
            self._saving = not all(await self._call_all("finish_save", wait))
        return not self._saving

    async def load(self, directory: Path) -> None:
        """Restore the state that `save` wrote."""
        await self._call_all("load", directory)


def means(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over optimizer steps."""
    names = sorted({name for step in steps for name in step})
    return {name: sum(step.get(name, 0.0) for step in steps) / len(steps) for name in names}


def _gather(results: Sequence[StepResult], step_tokens: int) -> dict[str, float]:
    """Return metric sums divided by computed tokens, and the scalars that all ranks share.

    Metrics in `over_all_tokens` are divided by the step's tokens instead.
    """
    computed = sum(result.tokens for result in results)
    over_all = frozenset().union(*(result.over_all_tokens for result in results))
    means = {
        name: sum(result.metrics.get(name, 0.0) for result in results)
        / max(1, step_tokens if name in over_all else computed)
        for name in sorted({name for result in results for name in result.metrics})
    }
    return {f"train/{name}": value for name, value in (means | dict(results[0].scalars)).items()}


def _rank_setup(plan: Plan, scratch: Path, train_steps: int) -> RankSetup:
    config, keys = plan.config, plan.config.optim
    optim = optim_of(keys, train_steps)
    advantage, correction = plan.roles.one(AdvantageSpec), plan.roles.maybe(CorrectionSpec)
    critic = critic_of(config, optim) if advantage.spec.uses_values else None
    without = critic.num_critic_only_steps * keys.num_steps_per_rollout if critic else 0
    return RankSetup(
        hf_checkpoint=config.run.hf_checkpoint,
        optim=replace(optim, train_steps=train_steps - without),
        advantage=advantage.to_choice(),
        loss=plan.roles.one(LossSpec).to_choice(),
        correction=correction.to_choice() if correction else None,
        plugins=plan.catalog.plugin_set,
        settings=plan.roles.one(TrainerSpec).settings,
        rollout_temperature=config.rollout.rollout_temperature,
        calculate_per_token_loss=keys.calculate_per_token_loss,
        constant_loss_length=keys.constant_loss_length,
        seed=config.run.seed,
        rendezvous=file_rendezvous(scratch / "rendezvous"),
        reference=reference_of(config),
        teacher=teacher_of(config),
        critic=critic,
        old_actor_lag=old_actor_lag(config),
        train_data=config.debug.save_debug_train_data,
        float32_matmul_precision=config.run.float32_matmul_precision,
        bf16=config.run.bf16,
    )


def optim_of(keys: OptimArgs, train_steps: int) -> Optim:
    """Return the optimizer's settings for trainers, for a run of `train_steps` optimizer steps."""
    warmup = Schedule.of(keys, train_steps).warmup
    return Optim(**shared_fields(Optim, keys) | {"lr_warmup_iters": warmup, "train_steps": train_steps})


def shared_fields(kind: type, values: object) -> dict[str, Any]:
    """Return the attributes of `values` that a dataclass has as fields, by name."""
    return {each.name: getattr(values, each.name) for each in fields(kind) if hasattr(values, each.name)}


class Publisher:
    """Publishes the trainer's weights to the engine over the run's transport, one version at a time."""

    def __init__(
        self,
        trainer: Trainer,
        engine: EnginePool,
        transport: BuiltChoice[Transport],
        channel: WeightChannel,
        rendezvous: bool,
    ) -> None:
        """Take over an opened channel; call `open` instead."""
        self._trainer, self._engine, self._transport, self._channel = trainer, engine, transport, channel
        self._rendezvous = rendezvous

    @classmethod
    async def open(
        cls, trainer: Trainer, engine: EnginePool, transport: BuiltChoice[Transport], *, rendezvous: bool
    ) -> "Publisher":
        """Open the channel for the ranks' weight slots, and the ranks' ends of it.

        Raises:
            ContractError: the weight slots or the channel are invalid.
            RunFolderError: there is no room for the weights.
        """
        slots = await trainer.weight_slots()
        with plugin_errors(f"transport {transport.name!r} (open)", transport.plugin):
            channel: object = await transport.part.open(slots)
        if not isinstance(channel, WeightChannel) or tuple(channel.slots) != tuple(slots):
            raise ContractError(
                f"transport {transport.name!r} of plugin {transport.plugin}: open() returned {channel!r:.80}; expected "
                "a WeightChannel with the slots that it was given"
            )
        await trainer.connect(channel)
        engine.set_resend(trainer.publish_again)
        return cls(trainer, engine, transport, channel, rendezvous)

    async def publish(self, version: int) -> None:
        """Load the trainer's current weights into the engine, as a version.

        Raises:
            SlimeError: sending or loading failed.
        """
        if self._rendezvous:
            sending = self._trainer.publish(version, self._engine.serving)
            await gather_or_cancel(sending, self._engine.load_weights(self._channel, version))
        else:
            await self._trainer.publish(version, ())
            await self._engine.load_weights(self._channel, version)

    async def close(self) -> None:
        """Close the driver's end of the channel."""
        with plugin_errors(f"transport {self._transport.name!r} (close)", self._transport.plugin):
            await self._transport.part.close()
