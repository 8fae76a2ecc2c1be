"""One engine with a launcher of its own: for tests of how servers are started, recognised and ended.

with_engine(tmp_path, use, python=stand_in(tmp_path / "servers"))       # `await use(engine)`, which is not started
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from on_the_fake import setup_at

from slime_core.roles import Extra
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import make_launcher, write_tiny_model


def with_engine(
    scratch: Path,
    use: Callable[[SglangEngine], Awaitable[None]],
    *,
    model: Path | None = None,
    count: int = 1,
    want: frozenset[Extra] = frozenset(),
    **given: object,
) -> None:
    """Make it with these settings, use it, and end it and all that it has started; it serves a tiny model."""

    async def main() -> None:
        launcher = make_launcher(scratch / "logs")
        more = {"eos_token_ids": frozenset({2}), "launcher": launcher, "count": count, "want": want}
        setup = setup_at(scratch / "engine", model or write_tiny_model(scratch / "model"), **more)
        engine = SglangEngine(SglangSettings.model_validate(given), setup)
        try:
            await use(engine)
        finally:
            await engine.close()
            await launcher.close()

    asyncio.run(main())
