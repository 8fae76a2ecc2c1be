"""Roles: what a plugin can be. One Protocol and one frozen Spec a file.

I/O roles (`async def`, driver): generator, reward, group reward, data source, engine, transport, launcher, tracker.
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
    from slime_core.roles._spec import InstalledSettings, Make, PrefixedTable, Settings, Setup, Spec, Stability
    from slime_core.roles._table import SELECTABLE, SPECS
    from slime_core.roles.advantage import Advantage, AdvantageInput, AdvantageSpec, ValueAdvantage
    from slime_core.roles.arguments import (
        Argument,
        ArgumentKind,
        arguments_model,
        command_line,
    )
    from slime_core.roles.batch_transform import LOSS_MASK, BatchTransform, BatchTransformSpec, Grain
    from slime_core.roles.bounds import (
        Coefficient,
        MinNewTokens,
        MinP,
        Number,
        Penalty,
        Positive,
        RepetitionPenalty,
        Temperature,
        TokenId,
        TopK,
        TopP,
        Weight,
        Workers,
    )
    from slime_core.roles.buffer import Buffer, BufferSetup, BufferSpec, Draw, Replay
    from slime_core.roles.buffer_filter import BufferContext, BufferFilter, BufferFilterSpec, Selection
    from slime_core.roles.check import Check, CheckSpec, Finding, Health
    from slime_core.roles.companions import Companion, Critic, KlType, OldActor, Reference, Teacher
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
        EngineRole,
        EngineSetup,
        EngineSpec,
        EngineUse,
        NoticesDeath,
        ServesCheckpoint,
        StreamsTokens,
    )
    from slime_core.roles.extras import EngineExtras, Extra, VersionSpan
    from slime_core.roles.foreign_name import ForeignName
    from slime_core.roles.generation import FinishReason, GenerateChunk, GenerateOutput, GenerateRequest
    from slime_core.roles.generator import Generate, GenerateContext, Generator, GeneratorSpec, StartsAndStops
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
    from slime_core.roles.launcher import (
        GroupUse,
        Launcher,
        LauncherSetup,
        LauncherSpec,
        Needs,
        Pack,
        PerNode,
        Place,
        Rendezvous,
        WorkerGroup,
        WorkerGroupSpec,
    )
    from slime_core.roles.loss import Loss, LossInput, LossOutput, LossSpec
    from slime_core.roles.memory import MemoryTag, MemoryTags, RankReleasesMemory, ReleasesMemory
    from slime_core.roles.optim import Optim
    from slime_core.roles.reward import ChecksLabels, Reward, RewardContext, RewardGrain, RewardSpec, SyncReward
    from slime_core.roles.reward_shaper import RewardShaper, RewardShaperSpec, ShapeContext
    from slime_core.roles.sample_field import Carried, SampleField
    from slime_core.roles.sample_filter import Removal, SampleFilter, SampleFilterSpec
    from slime_core.roles.sampling import RANGES, Range, SamplingParams
    from slime_core.roles.served_model import ServedModel
    from slime_core.roles.tokenizer import Tokenizer
    from slime_core.roles.tracker import Tracker, TrackerSetup, TrackerSpec
    from slime_core.roles.trainer import (
        Choice,
        ClosesRank,
        MeasuresLoss,
        RankSetup,
        SavesLater,
        SeesPublication,
        SeesRollout,
        StepResult,
        TrainBatch,
        TrainerFactory,
        TrainerRank,
        TrainerSpec,
        TrainerUse,
    )
    from slime_core.roles.transport import (
        ANY_RECEIVER,
        Transport,
        TransportSetup,
        TransportSpec,
        agree_transport,
    )
    from slime_core.roles.weights import (
        GivesFiles,
        WeightChannel,
        WeightDtype,
        WeightReceiver,
        WeightSender,
        WeightSlot,
    )

_HOMES = {
    "slime_core.roles._isolation": "LIGHT_FIELDS CallSpec Isolation declared_isolation describe_isolation is_async",
    "slime_core.roles._plugin_set": "PluginSet",
    "slime_core.roles._spec": "InstalledSettings Make PrefixedTable Settings Setup Spec Stability",
    "slime_core.roles._table": "SELECTABLE SPECS",
    "slime_core.roles.advantage": "Advantage AdvantageInput AdvantageSpec ValueAdvantage",
    "slime_core.roles.arguments": "Argument ArgumentKind arguments_model command_line",
    "slime_core.roles.batch_transform": "LOSS_MASK BatchTransform BatchTransformSpec Grain",
    "slime_core.roles.bounds": (
        "Coefficient MinNewTokens MinP Number Penalty Positive RepetitionPenalty Temperature TokenId TopK TopP Weight "
        "Workers"
    ),
    "slime_core.roles.buffer": "Buffer BufferSetup BufferSpec Draw Replay",
    "slime_core.roles.buffer_filter": "BufferContext BufferFilter BufferFilterSpec Selection",
    "slime_core.roles.check": "Check CheckSpec Finding Health",
    "slime_core.roles.companions": "Companion Critic KlType OldActor Reference Teacher",
    "slime_core.roles.correction": "Correction CorrectionInput CorrectionOutput CorrectionSpec",
    "slime_core.roles.data_source": (
        "DataSource DataSourceSetup DataSourceSpec DescribesData MediaKeys NamesChoices PromptFile RowFormat"
    ),
    "slime_core.roles.engine": (
        "Engine EngineRole EngineSetup EngineSpec EngineUse NoticesDeath ServesCheckpoint StreamsTokens"
    ),
    "slime_core.roles.extras": "EngineExtras Extra VersionSpan",
    "slime_core.roles.foreign_name": "ForeignName",
    "slime_core.roles.generation": "FinishReason GenerateChunk GenerateOutput GenerateRequest",
    "slime_core.roles.generator": "Generate GenerateContext Generator GeneratorSpec StartsAndStops",
    "slime_core.roles.group_filter": "Decision Drop FilterContext GroupFilter GroupFilterSpec Keep KeepIfShort",
    "slime_core.roles.group_reward": "GroupReward GroupRewardSpec SyncGroupReward",
    "slime_core.roles.launcher": (
        "GroupUse Launcher LauncherSetup LauncherSpec Needs Pack PerNode Place Rendezvous WorkerGroup WorkerGroupSpec"
    ),
    "slime_core.roles.loss": "Loss LossInput LossOutput LossSpec",
    "slime_core.roles.memory": "MemoryTag MemoryTags RankReleasesMemory ReleasesMemory",
    "slime_core.roles.optim": "Optim",
    "slime_core.roles.reward": "ChecksLabels Reward RewardContext RewardGrain RewardSpec SyncReward",
    "slime_core.roles.reward_shaper": "RewardShaper RewardShaperSpec ShapeContext",
    "slime_core.roles.sample_field": "Carried SampleField",
    "slime_core.roles.sample_filter": "Removal SampleFilter SampleFilterSpec",
    "slime_core.roles.sampling": "RANGES Range SamplingParams",
    "slime_core.roles.served_model": "ServedModel",
    "slime_core.roles.tokenizer": "Tokenizer",
    "slime_core.roles.tracker": "Tracker TrackerSetup TrackerSpec",
    "slime_core.roles.trainer": (
        "Choice ClosesRank MeasuresLoss RankSetup SavesLater SeesPublication SeesRollout StepResult TrainBatch "
        "TrainerFactory TrainerRank TrainerSpec TrainerUse"
    ),
    "slime_core.roles.transport": "ANY_RECEIVER Transport TransportSetup TransportSpec agree_transport",
    "slime_core.roles.weights": "GivesFiles WeightChannel WeightDtype WeightReceiver WeightSender WeightSlot",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = [
    "ANY_RECEIVER",
    "LIGHT_FIELDS",
    "LOSS_MASK",
    "RANGES",
    "SELECTABLE",
    "SPECS",
    "Advantage",
    "AdvantageInput",
    "AdvantageSpec",
    "Argument",
    "ArgumentKind",
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
    "ChecksLabels",
    "Choice",
    "ClosesRank",
    "Coefficient",
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
    "EngineExtras",
    "EngineRole",
    "EngineSetup",
    "EngineSpec",
    "EngineUse",
    "Extra",
    "FilterContext",
    "Finding",
    "FinishReason",
    "ForeignName",
    "Generate",
    "GenerateChunk",
    "GenerateContext",
    "GenerateOutput",
    "GenerateRequest",
    "Generator",
    "GeneratorSpec",
    "GivesFiles",
    "Grain",
    "GroupFilter",
    "GroupFilterSpec",
    "GroupReward",
    "GroupRewardSpec",
    "GroupUse",
    "Health",
    "InstalledSettings",
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
    "MemoryTag",
    "MemoryTags",
    "MinNewTokens",
    "MinP",
    "NamesChoices",
    "Needs",
    "NoticesDeath",
    "Number",
    "OldActor",
    "Optim",
    "Pack",
    "Penalty",
    "PerNode",
    "Place",
    "PluginSet",
    "Positive",
    "PrefixedTable",
    "PromptFile",
    "Range",
    "RankReleasesMemory",
    "RankSetup",
    "Reference",
    "ReleasesMemory",
    "Removal",
    "Rendezvous",
    "RepetitionPenalty",
    "Replay",
    "Reward",
    "RewardContext",
    "RewardGrain",
    "RewardShaper",
    "RewardShaperSpec",
    "RewardSpec",
    "RowFormat",
    "SampleField",
    "SampleFilter",
    "SampleFilterSpec",
    "SamplingParams",
    "SavesLater",
    "SeesPublication",
    "SeesRollout",
    "Selection",
    "ServedModel",
    "ServesCheckpoint",
    "Settings",
    "Setup",
    "ShapeContext",
    "Spec",
    "Stability",
    "StartsAndStops",
    "StepResult",
    "StreamsTokens",
    "SyncGroupReward",
    "SyncReward",
    "Teacher",
    "Temperature",
    "TokenId",
    "Tokenizer",
    "TopK",
    "TopP",
    "Tracker",
    "TrackerSetup",
    "TrackerSpec",
    "TrainBatch",
    "TrainerFactory",
    "TrainerRank",
    "TrainerSpec",
    "TrainerUse",
    "Transport",
    "TransportSetup",
    "TransportSpec",
    "ValueAdvantage",
    "VersionSpan",
    "Weight",
    "WeightChannel",
    "WeightDtype",
    "WeightReceiver",
    "WeightSender",
    "WeightSlot",
    "WorkerGroup",
    "WorkerGroupSpec",
    "Workers",
    "agree_transport",
    "arguments_model",
    "command_line",
    "declared_isolation",
    "describe_isolation",
    "is_async",
]
