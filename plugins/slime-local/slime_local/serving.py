"""An engine that serves a model directory without a run: no trainer, and this machine's launcher.

Example:

    async with serve(Serving.of(model, "local", {"workers": 1}), tokenizer) as engine:
        output = await engine.generate(request)
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
    LauncherSetup,
    LauncherSpec,
    ServesCheckpoint,
    Settings,
    Tokenizer,
)
from slime_core.run.build import with_nested_make
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Serving:
    """A model directory and the engine that serves it."""

    catalog: Catalog
    """Catalog that contains the engine's spec."""
    model: Path
    """The model directory."""
    spec: EngineSpec
    settings: Settings
    seed: int = 0
    bf16: bool = False
    """Compute in bf16."""

    @classmethod
    def of(
        cls, model: Path, engine: str, given: Mapping[str, Json] | None = None, *, seed: int = 0, bf16: bool = False
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
            raise ConfigError(f"engine {engine!r} does not support bf16: leave it out, or choose another engine")
        if spec.check is not None:
            spec.check(settings, EngineUse(model, read_model_config(model)))
        return cls(catalog, model, spec, settings, seed, bf16)


@asynccontextmanager
async def serve(serving: Serving, tokenizer: Tokenizer) -> AsyncIterator[Engine]:
    """Async context manager with a started engine that serves the model.

    Raises:
        ConfigError: it cannot serve a model directory.
        SlimeError: errors of the engine.
    """
    catalog, spec = serving.catalog, serving.spec
    with tempfile.TemporaryDirectory(prefix="slime-serving-") as name:
        scratch, of_launcher = Path(name), catalog.find(LauncherSpec, "local").spec
        launcher_setup = LauncherSetup(_make, serving.seed, scratch=scratch, plugins=catalog.plugin_set)
        launcher = of_launcher.factory(of_launcher.model(), launcher_setup)
        setup = EngineSetup(
            _make,
            serving.seed,
            hf_checkpoint=serving.model,
            eos_token_ids=tokenizer.eos_token_ids,
            launcher=launcher,
            scratch=scratch,
            bf16=serving.bf16,
        )
        try:
            engine = spec.factory(serving.settings, with_nested_make("engine", setup, catalog))
            if not isinstance(engine, ServesCheckpoint):
                raise ConfigError(
                    f"engine {spec.name!r} receives weights only from a trainer (it has no load_checkpoint): choose "
                    "another engine"
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
    raise ConfigError(f"an engine needs {role} {name!r}, which exists only in a run: choose another engine")
