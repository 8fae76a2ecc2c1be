"""Parts of a run in one project file, a choice per role that runs in other processes, all with settings of the file.

A test copies it into a project. Each part writes down which settings it was built with, in its own process.
"""

import enum
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from slime_core import Score
from slime_core.roles import CorrectionOutput, LossOutput, Settings, WorkerGroupSpec
from slime_local.engine import LocalEngine
from slime_local.plugin import slime_engines, slime_trainers
from slime_local.settings import LocalEngineSettings, LocalTrainerSettings
from slime_train.plugin import slime_transports

Given = Any
"""What a role's page types more narrowly."""
BUILT = Path(__file__).with_name("built.txt")


class Mark(enum.Enum):
    NONE = "none"
    SET = "set"


class Marked(Settings):
    mark: Mark = Mark.NONE


class MarkedTrainer(LocalTrainerSettings):
    mark: Mark = Mark.NONE


class MarkedEngine(LocalEngineSettings):
    mark: Mark = Mark.NONE


def note(role: str, settings: Given) -> None:
    with BUILT.open("a") as file:
        file.write(f"{role} {settings.mark.value} {os.getpid()}\n")


class Scored:
    def __init__(self, settings: Marked, setup: object) -> None:
        note("reward", settings)

    def __call__(self, sample: Given, ctx: object) -> Score:
        return Score(len(sample.response) / 10)


class Centered:
    def __init__(self, settings: Marked, setup: object) -> None:
        note("advantage", settings)

    def __call__(self, batch: Given) -> Given:
        return (batch.rewards_S - batch.rewards_S.mean())[batch.sample_index_T]


class Reinforce:
    def __init__(self, settings: Marked, setup: object) -> None:
        note("loss", settings)

    def __call__(self, batch: Given) -> LossOutput:
        return LossOutput(-batch.advantages_T * batch.log_probs_T, {})


class AsItIs:
    def __init__(self, settings: Marked, setup: object) -> None:
        note("correction", settings)

    def __call__(self, batch: Given) -> CorrectionOutput:
        return CorrectionOutput(batch.loss_mask_T, batch.loss_mask_T)


class Helper:
    """A worker of the project's own group."""

    def __init__(self, rank: int, size: int, *, settings: Marked) -> None:
        note("engine worker", settings)


class Engine(LocalEngine):
    def __init__(self, settings: MarkedEngine, setup: Given) -> None:
        super().__init__(settings, setup)
        self._own, self._launcher = settings, setup.launcher

    async def start(self) -> None:
        await super().start()
        group = WorkerGroupSpec("helpers", 2, f"{__name__}:Helper", {"settings": Marked(mark=self._own.mark)})
        self._helpers = await self._launcher.start(group)

    async def close(self) -> None:
        await self._helpers.close()
        await super().close()


def _rank(rank: int, size: int, setup: Given) -> Given:
    from slime_local.rank import LocalRank

    note("trainer", setup.settings)
    return LocalRank(rank, size, setup)


def _noting(factory: Callable[..., Any]) -> Callable[..., Any]:
    def made(settings: Given, setup: Given) -> Given:
        note("transport", settings)
        return factory(settings, setup)

    return made


(_trainer,) = slime_trainers()
(_engine,) = slime_engines()
(_shared, _) = slime_transports()
trainer = replace(_trainer, name="trainer", factory=_rank, settings=MarkedTrainer)
engine = replace(_engine, name="engine", factory=Engine, settings=MarkedEngine)
transport = replace(_shared, name="transport", factory=_noting(_shared.factory), settings=Marked)
