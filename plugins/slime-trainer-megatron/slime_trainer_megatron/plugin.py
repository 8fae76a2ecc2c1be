"""Entry point of this package: the trainer `megatron`. Importing it loads neither torch nor megatron-core."""

from collections.abc import Iterable, Mapping, Sequence

from slime_core.hookspecs import hookimpl
from slime_core.roles import Companion, Needs, RankSetup, SampleField, Settings, TrainerRank, TrainerSpec, TrainerUse
from slime_trainer_megatron.arguments import (
    ARGUMENTS,
    check_effect,
    check_model,
    layout_of,
    patterns_of,
    settings_model,
)
from slime_trainer_megatron.config_json import read_model, with_mtp
from slime_trainer_megatron.dimensions import check_name
from slime_trainer_megatron.freezing import frozen_names
from slime_trainer_megatron.offloading import check_offload

SLIME_API = "1"


@hookimpl
def slime_trainers() -> Iterable[TrainerSpec]:
    """The trainer `megatron`: any number of ranks, in Megatron's layout."""
    yield TrainerSpec(
        "megatron",
        _rank,
        settings_model,
        "megatron-core: tensor, sequence, pipeline, context, expert and data parallel",
        world_size=_world_size,
        shares=_shares,
        needs=_needs,
        check=_check,
        check_model=_check_model,
        check_companion=_check_companion,
        reads=_reads,
        companions=frozenset(Companion),
        bf16=True,
        loads_without_hf=True,
        resets_optimizer=True,
        keeps_train_data=True,
        workers_key="num_gpus",
        flat_keys=(
            *ARGUMENTS,
            "model_type",
            "log_probs_chunk_size",
            "use_rollout_routing_replay",
            "only_train_params_name_list",
            "freeze_params_name_list",
        ),
        preload=("slime_trainer_megatron.rank",),  # torch and megatron-core take seconds
    )


def _rank(rank: int, world_size: int, setup: RankSetup) -> TrainerRank:
    from slime_trainer_megatron.rank import MegatronRank

    return MegatronRank(rank, world_size, setup)


def _world_size(settings: Settings) -> int:
    return layout_of(settings).ranks


def _shares(settings: Settings) -> Sequence[int]:
    return layout_of(settings).shares


def _needs(settings: Settings) -> Needs:
    return Needs(gpus=float(settings.__dict__["device"] == "cuda"))


def _check(settings: Settings, use: TrainerUse) -> None:
    check_offload(settings, bf16=use.bf16)
    if use.nodes > 1:
        layout_of(settings).check_node(layout_of(settings).ranks // use.nodes)


def _check_model(settings: Settings, model_config: Mapping[str, object]) -> None:
    if name := settings.__dict__["model_type"]:
        check_name(name, model_config)
    model = with_mtp(model_config, settings.__dict__["mtp_num_layers"] or 0)
    check_model(settings, model)
    check_effect(settings, model)
    frozen_names(model, patterns_of(settings))


def _check_companion(settings: Settings, model_config: Mapping[str, object]) -> None:
    check_model(settings, read_model(model_config))


def _reads(settings: Settings) -> frozenset[SampleField]:
    replays = settings.__dict__["use_rollout_routing_replay"]
    return frozenset({SampleField.ROLLOUT_ROUTED_EXPERTS}) if replays else frozenset()
