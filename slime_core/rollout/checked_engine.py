"""CheckedEngine: a run's engine, its answers checked and its errors named.

Example:

    engine = CheckedEngine(Used("local", "slime-core", LocalEngine(settings, setup)))
"""

from collections.abc import Awaitable
from typing import cast

from slime_core.catalog.checks import blaming, check_output
from slime_core.catalog.used import Used
from slime_core.roles import Engine, GenerateOutput, GenerateRequest, ServesCheckpoint, WeightChannel


class CheckedEngine:
    """Implements `slime_core.roles.Engine`."""

    def __init__(self, use: Used[Engine]) -> None:
        """Wrap an engine."""
        self._use = use

    async def start(self) -> None:
        """Start it."""
        await self._named("start", self._use.part.start())

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch to a version."""
        await self._named("load_weights", self._use.part.load_weights(channel, version))

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """One continuation; what it raises costs one sample, under its own name.

        Raises:
            ContractError: the answer breaks the contract.
        """
        return check_output(await self._use.part.generate(request), plugin=self._use.plugin, request=request)

    async def abort(self) -> None:
        """Interrupt what runs."""
        await self._named("abort", self._use.part.abort())

    async def close(self) -> None:
        """Stop it."""
        await self._named("close", self._use.part.close())

    async def _named(self, method: str, call: Awaitable[None]) -> None:
        with blaming(f"engine ({method})", self._use.plugin):
            await call


class CheckpointEngine(CheckedEngine):
    """The same without a trainer: an engine that is a `ServesCheckpoint`, and whatever is published, it serves that."""

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Serve the weights of the model directory."""
        await self._named("load_checkpoint", cast(ServesCheckpoint, self._use.part).load_checkpoint())
