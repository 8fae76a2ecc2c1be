"""The engine on the kit's fake server, for single calls and for the engine contract.

async with engine_on_fake_server(tmp_path, Slow(0.1), new_weights="wait") as (engine, server):
    await engine.generate(request)
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from slime_core.roles import Engine, EngineSetup, Extra, WeightChannel
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import EngineContract, make_launcher, publish_model, write_tiny_model
from slime_testing.fake_engine import Behaviour, FakeEngine


def no_choice(role: str, name: str, **settings: object) -> object:
    """A setup's `make` without other choices."""
    raise LookupError(name)


def setup_at(scratch: Path, model: Path | None = None, **more: Any) -> EngineSetup:  # noqa: ANN401
    """A setup of one engine with its files in a folder; `more` sets other fields."""
    given = {"eos_token_ids": frozenset({0}), "scratch": scratch, **more}
    given.setdefault("launcher", make_launcher(scratch))
    return EngineSetup(no_choice, 0, hf_checkpoint=model or scratch / "model", **given)


@asynccontextmanager
async def engine_on_fake_server(
    scratch: Path, *script: Behaviour, **given: object
) -> AsyncIterator[tuple[SglangEngine, FakeEngine]]:
    """An engine that serves version 0, and the server behind it."""
    async with FakeEngine(*script) as server:
        write_tiny_model(scratch / "model")
        engine = engine_at(server.url, scratch, **given)
        try:
            await engine.start()
            await load(engine, scratch, 0)
            yield engine, server
        finally:
            await engine.close()


@asynccontextmanager
async def engine_of(
    scratch: Path, *, model: Path | None = None, count: int = 1, want: frozenset[Extra] = frozenset(), **given: object
) -> AsyncIterator[SglangEngine]:
    """An engine with these settings that serves a tiny model; at the end its processes are stopped."""
    launcher = make_launcher(scratch / "logs")
    more = {"eos_token_ids": frozenset({2}), "launcher": launcher, "count": count, "want": want}
    setup = setup_at(scratch / "engine", model or write_tiny_model(scratch / "model"), **more)
    engine = SglangEngine(SglangSettings.model_validate(given), setup)
    try:
        yield engine
    finally:
        await engine.close()
        await launcher.close()


def engine_at(url: str, scratch: Path, **given: object) -> SglangEngine:
    """An engine of the model in `scratch` on the server at this address."""
    return SglangEngine(SglangSettings.model_validate({"urls": [url], **given}), setup_at(scratch))


async def load(engine: SglangEngine, scratch: Path, version: int) -> None:
    """Publish a version of the model in `scratch` and load it."""
    channel = await asyncio.to_thread(publish_model, scratch / "model", scratch, version)
    await engine.load_weights(channel, version)


class FakeServerContract(EngineContract):
    """The engine contract. A fixture of each subclass starts `server` and sets its address in `settings`."""

    __test__ = False
    choice = "slime-engine-sglang/sglang"
    too_long = 5000
    server: ClassVar[FakeEngine]
    settings: ClassVar[Mapping[str, object]]

    def make_setup(self, scratch: Path) -> EngineSetup:
        model, launcher = write_tiny_model(scratch / "model"), make_launcher(scratch)
        config = model / "config.json"  # the fake server generates ids of letters
        config.write_text(config.read_text("utf-8").replace('"vocab_size": 64', '"vocab_size": 128'), "utf-8")
        return EngineSetup(
            self.make, 1, hf_checkpoint=model, eos_token_ids=frozenset({0}), launcher=launcher, scratch=scratch
        )

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        return publish_model(setup.hf_checkpoint, setup.scratch, version)

    def running(self, engine: Engine) -> int:
        return len(self.server.running)
