"""Samples of a generator of the plugin, from its start to its close.

(made,) = generated(generator_named("agent", agent="./agents.py:solve"), talker, make_pending(prompt="17 + 25?"))
"""

import asyncio
from typing import Any

from talker import Talker

from slime_agent_openai.plugin import slime_generators
from slime_core import Sample
from slime_core.roles import Setup


def generator_named(name: str, **settings: object) -> Any:  # noqa: ANN401
    """One that the plugin offers."""
    (spec,) = (each for each in slime_generators() if each.name == name)
    return spec.factory(spec.model.model_validate(settings), Setup(None, seed=0))


def generated(
    generator: Any,  # noqa: ANN401
    talker: Talker,
    *pending: Sample,
    seconds: float = 60.0,
    **context: object,
) -> list[list[Sample]]:
    """The samples of each, all at once."""

    async def run() -> list[list[Sample]]:
        try:
            await generator.start()
            made = (generator(each, talker.context(**context)) for each in pending)
            return await asyncio.wait_for(asyncio.gather(*made), seconds)
        finally:
            await generator.close()

    return asyncio.run(run())
