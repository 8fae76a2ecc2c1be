"""What this package offers: the engine and the trainer `local`.

Factories import what they build when they are called, so that listing plugins loads no torch.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from slime_core.hookspecs import hookimpl
from slime_core.roles import (
    ANY_RECEIVER,
    Companion,
    Engine,
    EngineSetup,
    EngineSpec,
    EngineUse,
    Extra,
    MemoryTag,
    Needs,
    RankSetup,
    Settings,
    TrainerRank,
    TrainerSpec,
)
from slime_local.model.support import explain_path
from slime_local.settings import LocalEngineSettings, LocalTrainerSettings

SLIME_API = "1"


@hookimpl
def slime_engines() -> Iterable[EngineSpec]:
    """In worker processes of this machine."""
    yield EngineSpec(
        "local",
        _engine,
        LocalEngineSettings,
        "Plain torch on CPU, static KV cache, one prefill per group",
        transports=("shared-buffer", "disk", ANY_RECEIVER),
        bf16=True,
        workers_key="workers",
        gives=frozenset({Extra.PROMPT_LOG_PROBS}),
        releases=frozenset({MemoryTag.KV_CACHE}),
        check=_check,
        explain=_explain,
        restart_s=40.0,
        probe_s=30.0,
        workers=_workers,
        needs=_needs,
    )


def _engine(settings: LocalEngineSettings, setup: EngineSetup) -> Engine:
    from slime_local.engine import LocalEngine

    return LocalEngine(settings, setup)


def _check(settings: Settings, use: EngineUse) -> None:
    from slime_core.config.model_dir import refuse_quantized

    refuse_quantized(use.hf_checkpoint)


def _workers(settings: Settings) -> int:
    return cast(LocalEngineSettings, settings).workers


def _needs(settings: Settings) -> Needs:
    return cast(LocalEngineSettings | LocalTrainerSettings, settings).needs


def _explain(settings: Settings, model_config: Mapping[str, object]) -> str:
    path, why = explain_path(model_config)
    return f"{path} path: {why}"


@hookimpl
def slime_trainers() -> Iterable[TrainerSpec]:
    """In worker processes of this machine."""
    yield TrainerSpec(
        "local",
        _rank,
        LocalTrainerSettings,
        "Plain torch on CPU, data-parallel AdamW",
        world_size=_world_size,
        needs=_needs,
        companions=frozenset(Companion),
        bf16=True,
        loads_without_hf=True,
        resets_optimizer=True,
        keeps_train_data=True,
        releases=frozenset({MemoryTag.GRADIENT}),
        workers_key="ranks",
        flat_keys=(
            "lora_rank",
            "lora_alpha",
            "lora_target_modules",
            "only_train_params_name_list",
            "freeze_params_name_list",
            "gradient_checkpointing",
        ),
        preload=("slime_local._preload",),
    )


def _rank(rank: int, world_size: int, setup: RankSetup) -> TrainerRank:
    from slime_local.rank import LocalRank

    return LocalRank(rank, world_size, setup)


def _world_size(settings: Settings) -> int:
    return cast(LocalTrainerSettings, settings).ranks
