"""One engine with a launcher of its own: for tests of how servers are started, recognised and ended.

async with an_engine(tmp_path, python=stand_in(tmp_path / "servers")) as engine:
    await engine.start()
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from on_the_fake import setup_at

from slime_core.roles import Extra
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import make_launcher, write_tiny_model


@asynccontextmanager
async def an_engine(
    scratch: Path,
    *,
    model: Path | None = None,
    count: int = 1,
    want: frozenset[Extra] = frozenset(),
    **given: object,
) -> AsyncIterator[SglangEngine]:
    """One with these settings that serves a tiny model; at the end it is closed, with all that it has started."""
    launcher = make_launcher(scratch / "logs")
    more = {"eos_token_ids": frozenset({2}), "launcher": launcher, "count": count, "want": want}
    setup = setup_at(scratch / "engine", model or write_tiny_model(scratch / "model"), **more)
    engine = SglangEngine(SglangSettings.model_validate(given), setup)
    try:
        yield engine
    finally:
        await engine.close()
        await launcher.close()
