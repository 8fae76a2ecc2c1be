"""Creates the engines of a run, a pool for each served model, and engines that serve a model outside of a run.

The policy's engines form one pool. A served model, such as a judge, has its own pool. `Serving` needs no trainer and
uses this machine's launcher.

Example:

    engine = policy_engines(builder, launcher, tokenizer, folder)
    judge = served_models(builder, launcher, folder)["judge"]
    await judge.start()
    answer = await judge.generate(request)
"""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from slime_core.catalog import Catalog
from slime_core.catalog.catalog import Used
from slime_core.config import TEACHES, Chosen, check_model_dir, read_settings
from slime_core.config.model_dir import read_model_config
from slime_core.errors import ConfigError
from slime_core.roles import (
    Engine,
    EngineSetup,
    EngineSpec,
    EngineUse,
    GenerateOutput,
    GenerateRequest,
    Launcher,
    LauncherSetup,
    LauncherSpec,
    SamplingParams,
    ServesCheckpoint,
    Settings,
    Tokenizer,
    WeightChannel,
)
from slime_core.rollout import EnginePool, Limits
from slime_core.run.build import Builder, with_own_make
from slime_core.run.folder import RunFolder
from slime_core.run.trainer import TRAINER_GROUP
from slime_core.sample import Json

LONGEST_SILENCE_S = 300.0
"""Default for the longest time without a token from an engine, however long a sample may take."""
_NEEDS_TRAINER = "{} gets its weights from a trainer alone (it has no load_checkpoint): choose another engine"


class ServedPool:
    """Implements `slime_core.roles.ServedModel`."""

    def __init__(self, tokenizer: Tokenizer, pool: EnginePool) -> None:
        """Take over a pool that is not started, of engines that serve their model directory."""
        self.tokenizer, self._pool = tokenizer, pool

    async def start(self) -> None:
        """Start the engines and serve their model directory.

        Raises:
            WorkerError: no engine could be started.
        """
        await self._pool.start()
        await self._pool.load_weights(WeightChannel("none", ()), 0)

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Return one continuation; errors as of the engines."""
        return await self._pool.generate(request)

    async def close(self) -> None:
        """Stop the engines."""
        await self._pool.close()


def policy_engines(build: Builder, launcher: Launcher, tokenizer: Tokenizer, folder: RunFolder) -> EnginePool:
    """Return the pool of the run's engines, not started yet.

    Raises:
        ConfigError: the run has no trainer, and this engine needs one.
    """
    config = build.plan.config
    setup = replace(
        _setup(build, launcher, folder, config.run.hf_checkpoint, tokenizer),
        count=config.rollout.rollout_num_engines,
        beside=TRAINER_GROUP if config.cluster.colocate else None,
        offloads=config.cluster.offloads_rollout,
        want=build.plan.want,
    )
    why = "debug_rollout_only" if config.debug.debug_rollout_only else ""
    return _pool(build, build.plan.roles.one(EngineSpec), setup, serves_checkpoint=why)


def _setup(build: Builder, launcher: Launcher, folder: RunFolder, model: Path, tokenizer: Tokenizer) -> EngineSetup:
    run = build.plan.config.run
    return EngineSetup(
        build.make,
        run.seed,
        hf_checkpoint=model,
        eos_token_ids=tokenizer.eos_token_ids,
        launcher=launcher,
        scratch=folder.scratch,
        max_concurrency=build.plan.config.rollout.max_concurrency,
        float32_matmul_precision=run.float32_matmul_precision,
        bf16=run.bf16,
    )


def served_models(build: Builder, launcher: Launcher, folder: RunFolder) -> Mapping[str, ServedPool]:
    """Return the run's served models, not started yet. From now on the builder passes them to factories.

    Raises:
        ConfigError: an engine needs a trainer.
        ModelError: a tokenizer cannot be read.
    """
    found = dict[str, ServedPool]()
    for name, served in build.plan.served.items():
        tokenizer, teaches = build.tokenizer_of(served.model), name == build.plan.config.distillation.opd_teacher_model
        setup = replace(
            _setup(build, launcher, folder, served.model, tokenizer),
            name=f"model-{name}",
            count=served.engines,
            serves=name,
            want=TEACHES if teaches else frozenset(),
        )
        pool = _pool(build, served.engine, setup, serves_checkpoint=f"served_models.{name}")
        found[name] = ServedPool(tokenizer, pool)
    build.models.update(found)
    return found


def _pool(build: Builder, chosen: Chosen[EngineSpec], setup: EngineSetup, *, serves_checkpoint: str) -> EnginePool:
    """Return a pool of one kind of engine. `serves_checkpoint` is why no trainer sends weights; empty if one does."""
    run, rollout = build.plan.config.run, build.plan.config.rollout

    def make_engine(number: int) -> Used[Engine]:
        name = f"{setup.name}-{number}" if setup.count > 1 else setup.name
        scratch = setup.scratch / name
        scratch.mkdir(parents=True, exist_ok=True)
        used = build.own(chosen, replace(setup, scratch=scratch, name=name, number=number))
        if serves_checkpoint and not isinstance(used.part, ServesCheckpoint):
            what = f"{serves_checkpoint}: engine {used.name!r} of plugin {used.plugin}"
            raise ConfigError(_NEEDS_TRAINER.format(what))
        return used

    probe = GenerateRequest([min(setup.eos_token_ids, default=0)], SamplingParams(max_new_tokens=1), run.seed)
    silence_s = rollout.rollout_engine_timeout_s or min(rollout.sample_timeout_s / 2, LONGEST_SILENCE_S)
    limits = Limits.of(chosen.spec, silence_s)
    return EnginePool(make_engine, setup.count, limits, probe=probe, load_checkpoint=bool(serves_checkpoint))


@dataclass(frozen=True, slots=True)
class Serving:
    """A way to serve a model directory outside of a run: no trainer, and this machine's launcher."""

    catalog: Catalog
    """Catalog that contains the engine's spec."""
    hf_checkpoint: Path
    """The model directory."""
    spec: EngineSpec
    settings: Settings
    seed: int = 0
    bf16: bool = False
    """Compute in bf16."""

    @classmethod
    def of(
        cls,
        model: Path,
        engine: str = "local",
        given: Mapping[str, Json] | None = None,
        *,
        seed: int = 0,
        bf16: bool = False,
    ) -> Self:
        """Choose an engine by name, with settings as in the engine's section of a run file.

        Raises:
            ModelError: there is no model in the directory.
            UnknownName: no installed plugin offers the engine.
            ConfigError: its settings are invalid, or it cannot serve the model with them.
        """
        catalog, given = Catalog.discover(), given or {}
        check_model_dir(model, "MODEL")
        spec = catalog.find(EngineSpec, engine).spec
        needed = (key for key, info in spec.model.model_fields.items() if info.is_required())
        if missing := [key for key in needed if key not in given]:
            raise ConfigError(f"engine {engine!r} needs {', '.join(missing)}: pass --set {missing[0]}=VALUE")
        settings = read_settings("engine", engine, spec, given)
        if bf16 and not spec.bf16:
            raise ConfigError(f"bf16 has no effect on engine {engine!r}: leave it out, or choose one that can")
        if spec.check is not None:
            spec.check(settings, EngineUse(model, read_model_config(model)))
        return cls(catalog, model, spec, settings, seed, bf16)

    def engine_setup(self, tokenizer: Tokenizer, scratch: Path) -> EngineSetup:
        """Return the setup of the engine's factory, with this machine's launcher."""
        spec, plugins = self.catalog.find(LauncherSpec, "local").spec, self.catalog.plugin_set
        launcher = spec.factory(spec.model(), LauncherSetup(_make, self.seed, scratch=scratch, plugins=plugins))
        return EngineSetup(
            _make,
            self.seed,
            hf_checkpoint=self.hf_checkpoint,
            eos_token_ids=tokenizer.eos_token_ids,
            launcher=launcher,
            scratch=scratch,
            bf16=self.bf16,
        )


def _make(role: str, name: str, **settings: object) -> object:
    raise ConfigError(f"an engine asks for {role} {name!r}; without a run, the engine is built alone")


@asynccontextmanager
async def started(serving: Serving, tokenizer: Tokenizer) -> AsyncIterator[Engine]:
    """Async context manager with an engine that serves the model.

    Raises:
        ConfigError: it cannot serve a model directory.
        SlimeError: errors of the engine.
    """
    with tempfile.TemporaryDirectory(prefix="slime-serving-") as name:
        setup = serving.engine_setup(tokenizer, Path(name))
        try:
            engine = serving.spec.factory(serving.settings, with_own_make("engine", setup, serving.catalog))
            if not isinstance(engine, ServesCheckpoint):
                raise ConfigError(_NEEDS_TRAINER.format(f"engine {serving.spec.name!r}"))
            try:
                await engine.start()
                await engine.load_checkpoint()
                yield engine
            finally:
                await engine.close()
        finally:
            await setup.launcher.close()
