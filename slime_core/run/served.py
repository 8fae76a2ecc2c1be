"""ServedPool: a model that is served beside the policy, on a pool of engines of its own, and never trained.

Example:

    judge = ServedPool(HfTokenizer.load(model), pool)
    await judge.start()
    answer = await judge.generate(request)
"""

from slime_core.roles import GenerateOutput, GenerateRequest, Tokenizer, WeightChannel
from slime_core.rollout import EnginePool


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
