"""Roles: what a plugin can be. One Protocol and one frozen Spec a file.

I/O roles (`async def`, driver): generator, reward, group reward, data source, engine, launcher, tracker.
Decision roles (plain functions, driver): group, sample and buffer filter, buffer, reward shaper, batch transform.
Tensor roles (torch, ranks): trainer, advantage, loss, correction. `slime doctor`: check.
"""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.roles._isolation import (
        LIGHT_FIELDS,
        CallSpec,
        Isolation,
        declared_isolation,
        describe_isolation,
        is_async,
    )
    from slime_core.roles._plugin_set import PluginSet
    from slime_core.roles._spec import Make, Settings, Setup, Spec, Stability
    from slime_core.roles._table import SELECTABLE, SPECS
    from slime_core.roles.advantage import Advantage, AdvantageInput, AdvantageSpec, ValueAdvantage
    from slime_core.roles.batch_transform import LOSS_MASK, BatchTransform, BatchTransformSpec, Grain
    from slime_core.roles.buffer import Buffer, BufferSetup, BufferSpec, Draw, Replay
    from slime_core.roles.buffer_filter import BufferContext, BufferFilter, BufferFilterSpec, Selection
    from slime_core.roles.check import Check, CheckSpec, Finding, Health
    from slime_core.roles.companions import Companion, Critic, KlType, Reference, Teacher
    from slime_core.roles.correction import Correction, CorrectionInput, CorrectionOutput, CorrectionSpec
    from slime_core.roles.data_source import (
        DataSource,
        DataSourceSetup,
        DataSourceSpec,
        DescribesData,
        MediaKeys,
        NamesChoices,
        PromptFile,
        RowFormat,
    )
    from slime_core.roles.engine import (
        Engine,
        EngineSetup,
        EngineSpec,
        FinishReason,
        GenerateChunk,
        GenerateOutput,
        GenerateRequest,
        SamplingParams,
        ServesCheckpoint,
        StreamsTokens,
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
    from slime_core.roles.group_reward import GroupReward, GroupRewardSpec, SyncGroupReward
    from slime_core.roles.launcher import Launcher, LauncherSetup, LauncherSpec, WorkerGroup, WorkerGroupSpec
    from slime_core.roles.loss import Loss, LossInput, LossOutput, LossSpec
    from slime_core.roles.optim import Optim
    from slime_core.roles.reward import Reward, RewardContext, RewardSpec, SyncReward
    from slime_core.roles.reward_shaper import RewardShaper, RewardShaperSpec, ShapeContext
    from slime_core.roles.sample_field import Carried, SampleField
    from slime_core.roles.sample_filter import Removal, SampleFilter, SampleFilterSpec
    from slime_core.roles.tokenizer import Tokenizer
    from slime_core.roles.tracker import Tracker, TrackerSetup, TrackerSpec
    from slime_core.roles.trainer import (
        Choice,
        MeasuresLoss,
        RankSetup,
        StepResult,
        TrainBatch,
        TrainerFactory,
        TrainerRank,
        TrainerSpec,
    )
    from slime_core.roles.weights import Transport, WeightChannel, WeightSlot, agree_transport

__getattr__ = exports(__name__, __file__)

__all__ = [
    "LIGHT_FIELDS",
    "LOSS_MASK",
    "SELECTABLE",
    "SPECS",
    "Advantage",
    "AdvantageInput",
    "AdvantageSpec",
    "BatchTransform",
    "BatchTransformSpec",
    "Buffer",
    "BufferContext",
    "BufferFilter",
    "BufferFilterSpec",
    "BufferSetup",
    "BufferSpec",
    "CallSpec",
    "Carried",
    "Check",
    "CheckSpec",
    "Choice",
    "Companion",
    "Correction",
    "CorrectionInput",
    "CorrectionOutput",
    "CorrectionSpec",
    "Critic",
    "DataSource",
    "DataSourceSetup",
    "DataSourceSpec",
    "Decision",
    "DescribesData",
    "Draw",
    "Drop",
    "Engine",
    "EngineSetup",
    "EngineSpec",
    "FilterContext",
    "Finding",
    "FinishReason",
    "GenerateChunk",
    "GenerateContext",
    "GenerateOutput",
    "GenerateRequest",
    "Generator",
    "GeneratorSpec",
    "Grain",
    "GroupFilter",
    "GroupFilterSpec",
    "GroupReward",
    "GroupRewardSpec",
    "Health",
    "Isolation",
    "Keep",
    "KeepIfShort",
    "KlType",
    "Launcher",
    "LauncherSetup",
    "LauncherSpec",
    "Loss",
    "LossInput",
    "LossOutput",
    "LossSpec",
    "Make",
    "MeasuresLoss",
    "MediaKeys",
    "NamesChoices",
    "Optim",
    "PluginSet",
    "PromptFile",
    "RankSetup",
    "Reference",
    "Removal",
    "Replay",
    "Reward",
    "RewardContext",
    "RewardShaper",
    "RewardShaperSpec",
    "RewardSpec",
    "RowFormat",
    "SampleField",
    "SampleFilter",
    "SampleFilterSpec",
    "SamplingParams",
    "Selection",
    "ServesCheckpoint",
    "Settings",
    "Setup",
    "ShapeContext",
    "Spec",
    "Stability",
    "StepResult",
    "StreamsTokens",
    "SyncGroupReward",
    "SyncReward",
    "Teacher",
    "Tokenizer",
    "Tracker",
    "TrackerSetup",
    "TrackerSpec",
    "TrainBatch",
    "TrainerFactory",
    "TrainerRank",
    "TrainerSpec",
    "Transport",
    "ValueAdvantage",
    "WeightChannel",
    "WeightSlot",
    "WorkerGroup",
    "WorkerGroupSpec",
    "agree_transport",
    "declared_isolation",
    "describe_isolation",
    "is_async",
]
