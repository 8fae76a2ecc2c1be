"""Entry point: the engine `sglang` and two transports for it. Their modules are imported only when a run uses them."""

from collections.abc import Iterable, Mapping
from typing import cast

from slime_core.hookspecs import hookimpl
from slime_core.roles import (
    Engine,
    EngineSetup,
    EngineSpec,
    EngineUse,
    Extra,
    InstalledSettings,
    MemoryTag,
    Needs,
    Settings,
    TransportSpec,
)
from slime_core.sample import Json
from slime_engine_sglang.collective.transports import Distributed, DistributedSettings, Tensor, TensorSettings
from slime_engine_sglang.settings import DROPPED_EXTRAS, SglangSettings

SLIME_API = "1"


@hookimpl
def slime_engines() -> Iterable[EngineSpec]:
    """The engine `sglang`: one server for each engine of the run."""
    yield EngineSpec(
        "sglang",
        _engine,
        SglangSettings,
        "SGLang servers, started by the run or already running",
        transports=("shared-buffer", "disk", "distributed", "tensor"),
        bf16=True,
        gives=frozenset(Extra),
        excluded_extras=_excluded_extras,
        releases=frozenset({MemoryTag.WEIGHTS, MemoryTag.KV_CACHE, MemoryTag.CUDA_GRAPH}),
        workers_key="gpus",
        workers=_workers,
        needs=_needs,
        flat_prefix="sglang_",
        check=_check,
        explain=_explain,
        installed=InstalledSettings("server", _server_model),
        prefixed={"router_": "router"},
    )


@hookimpl
def slime_transports() -> Iterable[TransportSpec]:
    """The transports by which the trainer's first rank sends weights to the servers."""
    yield TransportSpec(
        "distributed",
        Distributed,
        DistributedSettings,
        "Broadcasts weights to SGLang servers with gloo or NCCL",
        rendezvous=True,
        brings_receiver=False,
    )
    yield TransportSpec(
        "tensor",
        Tensor,
        TensorSettings,
        "Sends SGLang servers on the same machine handles of the weights' memory, on CPU or GPU",
        one_machine=True,
        rendezvous=True,
        brings_receiver=False,
    )


def _engine(settings: SglangSettings, setup: EngineSetup) -> Engine:
    from slime_engine_sglang.engine import SglangEngine

    return SglangEngine(settings, setup)


def _server_model(section: Mapping[str, Json]) -> type[Settings]:
    from slime_engine_sglang.arguments import server_model

    return server_model(section)


def _check(settings: Settings, use: EngineUse) -> None:
    from slime_engine_sglang.server_command import check_use

    check_use(cast(SglangSettings, settings), use)


def _explain(settings: Settings, model_config: Mapping[str, object]) -> str:
    from slime_engine_sglang.server_command import explain

    return explain(cast(SglangSettings, settings))


def _needs(settings: Settings) -> Needs:
    return cast(SglangSettings, settings).needs


def _excluded_extras(settings: Settings) -> frozenset[Extra]:
    router = cast(SglangSettings, settings).router
    return DROPPED_EXTRAS[router.use] if router else frozenset()


def _workers(settings: Settings) -> int:
    return 0 if cast(SglangSettings, settings).urls else 1
