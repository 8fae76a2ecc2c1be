"""Memory: engine and trainer take turns on devices that they share: who is not at work gives up what it can.

Example:

    memory = Memory(engine, trainer, Offload(frozenset({MemoryTag.KV_CACHE}), frozenset({MemoryTag.GRADIENT})))
    await memory.go_to(Phase.TRAIN)               # the engine releases, then the ranks resume
    await memory.go_to(Phase.PUBLISH)             # the engine takes back what weights are written to
    await memory.go_to(Phase.GENERATE)            # the ranks release, then the engine resumes the rest
"""

import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from slime_core.config import Plan
from slime_core.roles import EngineSpec, MemoryTag, MemoryTags, ReleasesMemory, TrainerSpec

NONE: MemoryTags = frozenset()


class Phase(enum.Enum):
    """The part of a step that a run is in, and so whose memory is needed."""

    GENERATE = "generate"
    TRAIN = "train"
    PUBLISH = "publish"


class Ranks(Protocol):
    """The trainer, as far as its memory goes."""

    async def release(self, tags: MemoryTags) -> None:
        """Have all ranks give this up."""
        ...

    async def resume(self, tags: MemoryTags) -> None:
        """Have all ranks take this back."""
        ...


@dataclass(frozen=True, slots=True)
class Offload:
    """What each side gives up while the other works; nothing where that is not asked for."""

    engine: MemoryTags = NONE
    """Of the engine, while ranks train."""
    trainer: MemoryTags = NONE
    """Of the ranks, while engines generate."""

    @classmethod
    def of(cls, plan: Plan) -> "Offload":
        """What a plan asks for."""
        engine, trainer = plan.roles.one(EngineSpec).spec.releases, plan.roles.one(TrainerSpec).spec.releases
        cluster = plan.config.cluster
        return cls(engine if cluster.offloads_rollout else NONE, trainer if cluster.offloads_train else NONE)


class Memory:
    """Has engine and ranks give memory up and take it back, by turns; at first nothing is given up."""

    def __init__(self, engine: ReleasesMemory, trainer: Ranks, offload: Offload) -> None:
        """Of an engine and a trainer that are both started."""
        self._engine, self._trainer, self._offload = engine, trainer, offload
        self._phase = Phase.PUBLISH
        self._out_of_engine = self._out_of_trainer = NONE

    async def go_to(self, phase: Phase) -> None:
        """Release what the phase has no use for, then resume what it needs: never are both sides whole at once."""
        engine = {
            Phase.GENERATE: NONE,
            Phase.PUBLISH: self._offload.engine - {MemoryTag.WEIGHTS},
            Phase.TRAIN: self._offload.engine,
        }[phase]
        trainer = self._offload.trainer if phase is Phase.GENERATE else NONE
        if more := engine - self._out_of_engine:
            await self._engine.release(more)
        if more := trainer - self._out_of_trainer:
            await self._trainer.release(more)
        if back := self._out_of_trainer - trainer:
            await self._trainer.resume(back)
        if back := self._out_of_engine - engine:
            await self._engine.resume(back)
        self._phase, self._out_of_engine, self._out_of_trainer = phase, engine, trainer

    @asynccontextmanager
    async def during(self, phase: Phase) -> AsyncIterator[None]:
        """Be in another phase for a while."""
        before = self._phase
        await self.go_to(phase)
        yield
        await self.go_to(before)
