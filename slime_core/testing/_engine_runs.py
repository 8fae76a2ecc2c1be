"""EngineRuns: what an author says about an engine, and how a check gets one that is started and serves version 0."""

import asyncio
import tempfile
from collections.abc import Callable, Collection, Coroutine, Sequence, Set
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar, cast

from slime_core.roles import Engine, EngineSetup, EngineSpec, SamplingParams, WeightChannel
from slime_core.testing._held import SETTLE_S
from slime_core.testing._play import Play
from slime_core.testing.role import RoleContract

ResultT = TypeVar("ResultT")
Load: TypeAlias = Callable[[int], Coroutine[None, None, None]]

SAMPLED = SamplingParams(max_new_tokens=16)
GREEDY = SamplingParams(max_new_tokens=16, temperature=0.0)
ONE = SamplingParams(max_new_tokens=1, temperature=0.0)
SAME_LOG_PROB = 1e-3
"""Two runs of one model differ by less, two versions of it by more."""


class EngineRuns(RoleContract[EngineSpec]):
    """The base of the contract: attributes and methods for the author, engines for the checks."""

    kind = EngineSpec
    choice: ClassVar[str | EngineSpec]
    """The engine: a name for the catalog, or a spec."""
    prompts: ClassVar[tuple[Sequence[int], Sequence[int]]] = ((5, 6, 7), (9, 10))
    """Two prompts that the model takes, after which more than one token is likely."""
    busy_tokens: ClassVar[int] = 200
    """A budget that it takes, and that keeps it busy for some tens of milliseconds."""
    too_long: ClassVar[int | None] = None
    """Tokens of a prompt that its model cannot take; None if there is no limit."""
    deterministic: ClassVar[bool] = True
    """Whether the same request and seed always get the same tokens, whatever is generated beside it."""
    limit_s: ClassVar[float] = 60.0
    """How long any one call may take."""

    def make_setup(self, scratch: Path) -> EngineSetup:
        """What the factory is given: a model, its end tokens, a launcher. The contract closes the launcher."""
        return self.own("make_setup", cast(EngineSetup | None, None))

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        """Publish a version as a trainer does; other versions give other log-probs. 0 comes first, then 1."""
        return self.own("publish", cast(WeightChannel | None, None))

    def running(self, engine: Engine) -> int | None:
        """Requests that the engine's workers or servers are at; None if that cannot be told."""
        return None

    async def _cancelled(
        self, play: Play, asked: Collection[asyncio.Task[ResultT]], before: Set[asyncio.Task[object]]
    ) -> tuple[int, int, int]:
        """Cancel calls; how many go on, tasks that were not there before, and requests that the engine is still at."""
        for task in asked:
            task.cancel()
        _, going_on = await asyncio.wait(asked, timeout=SETTLE_S)
        tasks, running = await play.settled(lambda: (len(asyncio.all_tasks() - before), self.running(play.engine) or 0))
        return len(going_on), tasks, running

    def _build(self, setup: EngineSetup) -> Engine:
        return self.spec.factory(self.validated(), setup)

    def _run(self, use: Callable[[Play], Coroutine[None, None, ResultT]], *, start: bool = True) -> ResultT:
        """Use a fresh engine in a fresh loop."""

        async def using(play: Play, load: Load) -> ResultT:
            return await use(play)

        return self._run_with_weights(using, start=start)

    def _run_with_weights(
        self, use: Callable[[Play, Load], Coroutine[None, None, ResultT]], *, start: bool = True
    ) -> ResultT:
        """Use a fresh engine, with a function that publishes a version and loads it."""

        async def main(scratch: Path) -> ResultT:
            setup = self.make_setup(scratch)
            play = Play(self._build(setup), self.prompts, self.limit_s)

            async def load(version: int) -> None:
                channel = await asyncio.to_thread(self.publish, setup, version)
                await play.limited(play.engine.load_weights(channel, version), "load_weights()")

            try:
                if start:
                    await play.limited(play.engine.start(), "start()")
                    await load(0)
                return await use(play, load)
            finally:
                await play.limited(play.engine.close(), "close()")
                await setup.launcher.close()

        with tempfile.TemporaryDirectory() as scratch:
            return asyncio.run(main(Path(scratch)))
