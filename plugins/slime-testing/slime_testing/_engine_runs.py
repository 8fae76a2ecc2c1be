"""EngineRuns: what an author says about an engine, and how a check gets one that is started and serves version 0."""

import asyncio
import tempfile
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, TypeAlias, TypeVar, cast

from slime_core.roles import Engine, EngineSetup, EngineSpec, SamplingParams, WeightChannel
from slime_testing._play import Play
from slime_testing._served import Kept, Served
from slime_testing.contract import CheckInfo, CheckStatus
from slime_testing.held import SETTLE_S
from slime_testing.role import RoleContract

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
    fresh: ClassVar[bool] = True
    """Whether each check starts an engine of its own. False, where starting one is dear: one serves all checks but
    those that close it. It then loads version 0 again after 1, and `publish` is called again for either."""
    otherwise: ClassVar[Mapping[str, object]] = {}
    """Settings, over `settings`, of an engine that takes what this one refuses by name; it is then started, too."""
    _kept: ClassVar[Kept | None] = None

    def __init_subclass__(cls) -> None:
        """Keep no other class's engine."""
        super().__init_subclass__()
        cls._kept = None

    @classmethod
    def _note(cls, info: CheckInfo, status: CheckStatus, detail: str) -> None:
        super()._note(info, status, detail)
        if status is CheckStatus.FAILED:
            cls.teardown_class()  # who knows what is left of the engine

    @classmethod
    def teardown_class(cls) -> None:
        """Close the engine that the checks shared, if any."""
        kept, cls._kept = cls._kept, None
        if kept is not None:
            kept.end()

    def make_setup(self, scratch: Path) -> EngineSetup:
        """What the factory is given: a model, its end tokens, a launcher. The contract closes the launcher."""
        return self.own("make_setup", cast(EngineSetup | None, None))

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        """Publish a version as a trainer does; other versions give other log-probs. 0 comes first, then 1."""
        return self.own("publish", cast(WeightChannel | None, None))

    def spoilt(self, setup: EngineSetup) -> WeightChannel | None:
        """A publication that the engine cannot load; None if no such publication exists.

        By default it is version 1 with its first tensor under a name that no model has.
        """
        channel = self.publish(setup, 1)
        slots = list(channel.slots)
        return replace(channel, slots=(replace(slots[0], name="no.such.weight"), *slots[1:])) if slots else None

    def running(self, engine: Engine) -> int | None:
        """How many requests the engine's workers or servers are working on; None if that cannot be told.

        Where it is told, checks begin when the first one runs; else they give it ten milliseconds.
        """
        return None

    async def _cancelled(
        self, play: Play, asked: Collection[asyncio.Task[ResultT]], before: Set[asyncio.Task[object]]
    ) -> tuple[int, int, int]:
        """Cancel calls, and count what is left: calls that go on, new tasks, requests that are still worked on."""
        for task in asked:
            task.cancel()
        _, going_on = await asyncio.wait(asked, timeout=SETTLE_S)
        tasks, running = await play.settled(lambda: (len(asyncio.all_tasks() - before), self.running(play.engine) or 0))
        return len(going_on), tasks, running

    def _build(self, setup: EngineSetup, settings: Mapping[str, object] = MappingProxyType({})) -> Engine:
        return self.spec.factory(self.validated(**settings), setup)

    def _run(
        self, use: Callable[[Play], Coroutine[None, None, ResultT]], *, start: bool = True, fresh: bool = False
    ) -> ResultT:
        """Use an engine that serves version 0: a fresh one in a fresh loop, or the one that the class keeps."""
        return self._run_served(lambda served: use(served.play), start=start, fresh=fresh)

    def _run_otherwise(self, use: Callable[[Play], Coroutine[None, None, ResultT]]) -> ResultT:
        """Use a fresh engine with the settings of `otherwise`."""
        return self._run_fresh(lambda served: use(served.play), start=True, settings=self.otherwise)

    def _run_with_weights(self, use: Callable[[Play, Load], Coroutine[None, None, ResultT]]) -> ResultT:
        """The same, with a function that publishes a version and loads it."""
        return self._run_served(lambda served: use(served.play, served.load))

    def _run_served(
        self, use: Callable[[Served], Coroutine[None, None, ResultT]], *, start: bool = True, fresh: bool = False
    ) -> ResultT:
        if self.fresh or fresh or not start:
            return self._run_fresh(use, start=start)
        contract = type(self)
        kept = contract._kept = contract._kept or Kept(self._served_in)
        return kept.run(use)

    def _run_fresh(
        self,
        use: Callable[[Served], Coroutine[None, None, ResultT]],
        *,
        start: bool,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> ResultT:
        async def main(scratch: Path) -> ResultT:
            served = self._served_in(scratch, settings)
            try:
                if start:
                    await served.start()
                return await use(served)
            finally:
                await served.close()

        with tempfile.TemporaryDirectory() as scratch:
            return asyncio.run(main(Path(scratch)))

    def _served_in(self, scratch: Path, settings: Mapping[str, object] = MappingProxyType({})) -> Served:
        setup = self.make_setup(scratch)
        engine = self._build(setup, settings)
        return Served(setup, Play(engine, self.prompts, self.limit_s, lambda: self.running(engine)), self.publish)
