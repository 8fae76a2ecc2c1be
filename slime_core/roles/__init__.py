"""Roles: what a plugin can be. One Protocol and one frozen Spec a file.

I/O roles (`async def`, driver): generator, reward, data source, engine, launcher, tracker.
Decision roles (plain functions, driver): group filter, buffer filter, buffer.
Tensor roles (torch, ranks): trainer, advantage, loss.
"""

from slime_core.roles._spec import Make, Settings, Setup, Spec
from slime_core.roles.advantage import Advantage, AdvantageInput, AdvantageSpec
from slime_core.roles.buffer import Buffer, BufferSetup, BufferSpec, Draw
from slime_core.roles.buffer_filter import BufferContext, BufferFilter, BufferFilterSpec, Selection
from slime_core.roles.data_source import DataSource, DataSourceSetup, DataSourceSpec, PromptFile
from slime_core.roles.engine import (
    Engine,
    EngineSetup,
    EngineSpec,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
)
from slime_core.roles.generator import GenerateContext, Generator, GeneratorSpec
from slime_core.roles.group_filter import (
    Decision,
    Drop,
    FilterContext,
    GroupFilter,
    GroupFilterSpec,
    Keep,
    KeepIfShort,
)
from slime_core.roles.launcher import Launcher, LauncherSetup, LauncherSpec, WorkerGroup, WorkerGroupSpec
from slime_core.roles.loss import Loss, LossInput, LossOutput, LossSpec
from slime_core.roles.reward import Reward, RewardContext, RewardSpec
from slime_core.roles.tokenizer import Tokenizer
from slime_core.roles.tracker import Tracker, TrackerSetup, TrackerSpec
from slime_core.roles.trainer import (
    Choice,
    Optim,
    RankSetup,
    StepResult,
    TrainBatch,
    TrainerFactory,
    TrainerRank,
    TrainerSpec,
)
from slime_core.roles.weights import Transport, WeightChannel, WeightSlot, agree_transport

SPECS: dict[str, type[Spec[object]]] = {
    spec.role: spec
    for spec in (
        DataSourceSpec,
        GeneratorSpec,
        RewardSpec,
        GroupFilterSpec,
        BufferSpec,
        BufferFilterSpec,
        AdvantageSpec,
        LossSpec,
        EngineSpec,
        TrainerSpec,
        LauncherSpec,
        TrackerSpec,
    )
}
"""Every role by name, in the order in which a sample meets them."""

__all__ = [
    "SPECS",
    "Advantage",
    "AdvantageInput",
    "AdvantageSpec",
    "Buffer",
    "BufferContext",
    "BufferFilter",
    "BufferFilterSpec",
    "BufferSetup",
    "BufferSpec",
    "Choice",
    "DataSource",
    "DataSourceSetup",
    "DataSourceSpec",
    "Decision",
    "Draw",
    "Drop",
    "Engine",
    "EngineSetup",
    "EngineSpec",
    "FilterContext",
    "FinishReason",
    "GenerateContext",
    "GenerateOutput",
    "GenerateRequest",
    "Generator",
    "GeneratorSpec",
    "GroupFilter",
    "GroupFilterSpec",
    "Keep",
    "KeepIfShort",
    "Launcher",
    "LauncherSetup",
    "LauncherSpec",
    "Loss",
    "LossInput",
    "LossOutput",
    "LossSpec",
    "Make",
    "Optim",
    "PromptFile",
    "RankSetup",
    "Reward",
    "RewardContext",
    "RewardSpec",
    "SamplingParams",
    "Selection",
    "Settings",
    "Setup",
    "Spec",
    "StepResult",
    "Tokenizer",
    "Tracker",
    "TrackerSetup",
    "TrackerSpec",
    "TrainBatch",
    "TrainerFactory",
    "TrainerRank",
    "TrainerSpec",
    "Transport",
    "WeightChannel",
    "WeightSlot",
    "WorkerGroup",
    "WorkerGroupSpec",
    "agree_transport",
]
