"""Serving: an engine that serves a model directory without a run: no trainer, no launcher but this machine's.

Example:

    serving = Serving.of(Path("models/tiny"), "local", {"workers": 1})
    async with started(serving, HfTokenizer.load(serving.hf_checkpoint)) as engine:
        output = await engine.generate(GenerateRequest(prompt, SamplingParams(max_new_tokens=48), seed))
"""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from slime_core.catalog import Catalog
from slime_core.config import check_model_dir, read_settings
from slime_core.config.model_dir import read_model_config
from slime_core.errors import ConfigError
from slime_core.roles import (
    Engine,
    EngineSetup,
    EngineSpec,
    EngineUse,
    Launcher,
    LauncherSetup,
    LauncherSpec,
    ServesCheckpoint,
    Settings,
    Setup,
    Tokenizer,
)
from slime_core.run.own_make import with_own_make
from slime_core.sample import Json

__all__ = ["Serving", "started"]


@dataclass(frozen=True, slots=True)
class Serving:
    """Which engine, and what it serves."""

    catalog: Catalog
    """Where its spec is found."""
    setup: Setup
    """What its factory is given, and more."""
    hf_checkpoint: Path
    """The model directory."""
    spec: EngineSpec
    """Of the engine."""
    settings: Settings
    """Validated."""
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
        """An engine by name, with settings as a run file has them in the engine's section.

        Raises:
            ModelError: there is no model in the directory.
            UnknownName: nobody offers the engine.
            ConfigError: its settings are refused, or it cannot do what is asked with them.
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
        return cls(catalog, Setup(_make, seed), model, spec, settings, bf16)

    def engine_setup(self, tokenizer: Tokenizer, launcher: Launcher, scratch: Path) -> EngineSetup:
        """What its factory is given."""
        return EngineSetup(
            self.setup.make,
            self.setup.seed,
            hf_checkpoint=self.hf_checkpoint,
            eos_token_ids=tokenizer.eos_token_ids,
            launcher=launcher,
            scratch=scratch,
            bf16=self.bf16,
        )

    def launcher(self, scratch: Path) -> Launcher:
        """The launcher of this machine."""
        spec, plugins = self.catalog.find(LauncherSpec, "local").spec, self.catalog.plugin_set
        setup = LauncherSetup(self.setup.make, self.setup.seed, scratch=scratch, plugins=plugins)
        return spec.factory(spec.model(), setup)


@asynccontextmanager
async def started(serving: Serving, tokenizer: Tokenizer) -> AsyncIterator[Engine]:
    """An engine that serves the model, for the time of a `with`.

    Raises:
        ConfigError: it cannot serve a model directory.
        SlimeError: the engine's.
    """
    with tempfile.TemporaryDirectory(prefix="slime-serving-") as name:
        launcher = serving.launcher(Path(name))
        try:
            setup = serving.engine_setup(tokenizer, launcher, Path(name))
            engine = serving.spec.factory(serving.settings, with_own_make("engine", setup, serving.catalog))
            if not isinstance(engine, ServesCheckpoint):
                raise ConfigError(
                    f"engine {serving.spec.name!r} gets its weights from a trainer alone (it has no load_checkpoint): "
                    "choose another one"
                )
            try:
                await engine.start()
                await engine.load_checkpoint()
                yield engine
            finally:
                await engine.close()
        finally:
            await launcher.close()


def _make(role: str, name: str, **settings: object) -> object:
    raise ConfigError(f"an engine asks for {role} {name!r}; without a run, the engine is built alone")
