"""The engines of a run: those of the policy as one, and a pool for each model that is served beside it.

Example:

    engine = policy_engines(builder, launcher, tokenizer, folder)
    judge = served_models(builder, launcher, folder)["judge"]
    await judge.start()
    answer = await judge.generate(request)
"""

from collections.abc import Mapping
from dataclasses import replace

from slime_core.config import TEACHES, Chosen
from slime_core.errors import ConfigError
from slime_core.roles import (
    Engine,
    EngineRole,
    EngineSetup,
    EngineSpec,
    GenerateOutput,
    GenerateRequest,
    Launcher,
    SamplingParams,
    ServesCheckpoint,
    Tokenizer,
    WeightChannel,
)
from slime_core.rollout import CheckedEngine, CheckpointEngine, EnginePool, Limits
from slime_core.run.building import build_used
from slime_core.run.folder import RunFolder
from slime_core.run.setup import Builder
from slime_core.run.trainer import TRAINER_GROUP

LONGEST_SILENCE_S = 300.0
"""Seconds that an engine may be silent where nobody says: however long a sample may take, one answer does not."""


class ServedPool:
    """Implements `slime_core.roles.ServedModel`."""

    def __init__(self, tokenizer: Tokenizer, pool: EnginePool) -> None:
        """Of engines that serve their model directory, not started."""
        self._tokenizer, self._pool = tokenizer, pool

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the served model."""
        return self._tokenizer

    async def start(self) -> None:
        """Start the engines, and have them serve their model directory.

        Raises:
            WorkerError: none could be started.
        """
        await self._pool.start()
        await self._pool.load_weights(WeightChannel("none", ()), 0)

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """One continuation; errors as of the engines."""
        return await self._pool.generate(request)

    async def close(self) -> None:
        """Stop the engines."""
        await self._pool.close()


def policy_engines(build: Builder, launcher: Launcher, tokenizer: Tokenizer, folder: RunFolder) -> EnginePool:
    """The run's engines as one, not started.

    Raises:
        ConfigError: there will be no trainer, and this engine needs one.
    """
    config = build.plan.config
    count, chosen = config.rollout.rollout_num_engines, build.plan.roles.one(EngineSpec)
    setup = EngineSetup(
        build.make,
        config.run.seed,
        hf_checkpoint=config.run.hf_checkpoint,
        eos_token_ids=tokenizer.eos_token_ids,
        launcher=launcher,
        scratch=folder.scratch,
        count=count,
        max_concurrency=config.rollout.max_concurrency,
        beside=TRAINER_GROUP if config.cluster.colocate else None,
        offloads=config.cluster.offloads_rollout,
        float32_matmul_precision=config.run.float32_matmul_precision,
        bf16=config.run.bf16,
        want=build.plan.want,
    )
    why = "debug_rollout_only" if config.debug.debug_rollout_only else ""
    return _pool(build, chosen, setup, serves_checkpoint=why)


def served_models(build: Builder, launcher: Launcher, folder: RunFolder) -> Mapping[str, ServedPool]:
    """The models beside the policy, not started; from now on the builder gives them to factories.

    Raises:
        ConfigError: an engine needs a trainer.
        ModelError: a tokenizer cannot be read.
    """
    run, found = build.plan.config.run, dict[str, ServedPool]()
    for name, served in build.plan.served.items():
        tokenizer, teaches = build.tokenizer_of(served.model), name == build.plan.config.distillation.opd_teacher_model
        setup = EngineSetup(
            build.make,
            run.seed,
            hf_checkpoint=served.model,
            eos_token_ids=tokenizer.eos_token_ids,
            launcher=launcher,
            scratch=folder.scratch,
            name=f"model-{name}",
            count=served.engines,
            role=EngineRole.TEACHER if teaches else EngineRole.JUDGE,
            max_concurrency=build.plan.config.rollout.max_concurrency,
            float32_matmul_precision=run.float32_matmul_precision,
            bf16=run.bf16,
            want=TEACHES if teaches else frozenset(),
        )
        pool = _pool(build, served.engine, setup, serves_checkpoint=f"served_models.{name}")
        found[name] = ServedPool(tokenizer, pool)
    build.models.update(found)
    return found


def _pool(build: Builder, chosen: Chosen[EngineSpec], setup: EngineSetup, *, serves_checkpoint: str) -> EnginePool:
    """Engines of one kind as one; `serves_checkpoint` says why no trainer gives them weights, empty if one does."""
    run, rollout = build.plan.config.run, build.plan.config.rollout

    def make_engine(number: int) -> Engine:
        name = f"{setup.name}-{number}" if setup.count > 1 else setup.name
        scratch = setup.scratch / name
        scratch.mkdir(parents=True, exist_ok=True)
        own = build.own("engine", replace(setup, scratch=scratch, name=name, number=number))
        used = build_used(chosen, own)
        if not serves_checkpoint:
            return CheckedEngine(used)
        if not isinstance(used.part, ServesCheckpoint):
            raise ConfigError(
                f"{serves_checkpoint}: engine {used.name!r} of plugin {used.plugin} gets its weights from a "
                "trainer alone (it has no load_checkpoint): choose another engine"
            )
        return CheckpointEngine(used)

    probe = GenerateRequest([min(setup.eos_token_ids, default=0)], SamplingParams(max_new_tokens=1), run.seed)
    silence_s = rollout.rollout_engine_timeout_s or min(rollout.sample_timeout_s / 2, LONGEST_SILENCE_S)
    limits = Limits.of(chosen.spec, silence_s)
    return EnginePool(make_engine, setup.count, limits, probe=probe)
