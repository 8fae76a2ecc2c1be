"""A stranger's engine: a Hugging Face model in a worker, one token a call, with the tokens that top-p kept."""

import itertools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import slime_core
from slime_core.errors import ModelError, WorkerError
from slime_core.roles import (
    ANY_RECEIVER,
    EngineExtras,
    EngineSetup,
    EngineSpec,
    Extra,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Settings,
    WeightChannel,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_core.sample import PrefixCacheInfo

SLIME_API = "1"
PRELOAD = ("torch", "transformers.models.llama.modeling_llama", "transformers.models.auto.modeling_auto")
GIVES = frozenset({Extra.TOP_P_TOKENS})


@dataclass(frozen=True)
class Drawn:
    """One token from a worker."""

    token: int
    log_prob: float
    kept: Sequence[int]
    version: int


class Naive:
    """The driver's side."""

    def __init__(self, settings: Settings, setup: EngineSetup) -> None:
        self._setup = setup
        self._group: WorkerGroup | None = None
        self._version = -1
        self._aborts = 0

    async def start(self) -> None:
        arguments: dict[str, object] = {"model": self._setup.hf_checkpoint, "number": self._setup.number}
        worker = "slime_engine_naive_worker:Worker"
        spec = WorkerGroupSpec(self._setup.name, 1, worker, arguments, preload=PRELOAD)
        self._group = await self._setup.launcher.start(spec, timeout_s=300)

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        await self._ask("load", (channel, version))
        self._version = version

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        sampling = request.sampling
        others = sampling.unsupported("temperature", "top_p", "top_k", "stop_token_ids") + request.unsupported(*GIVES)
        if others:
            raise ModelError(f"the naive engine does not do {', '.join(others)}")
        aborts, finish = self._aborts, FinishReason.LENGTH
        stops = self._setup.eos_token_ids | sampling.stop_token_ids
        made: list[Drawn] = []
        while len(made) < sampling.max_new_tokens and finish is FinishReason.LENGTH:
            context = [*request.prompt, *(each.token for each in made)]
            seed = (request.seed + len(made) * 1_000_003) % 2**63
            drawn = await self._ask("next", (context, sampling.temperature, sampling.top_p, sampling.top_k, seed))
            if self._aborts > aborts:
                finish = FinishReason.ABORT
                break
            made.append(cast(Drawn, drawn))
            if made[-1].token in stops:
                finish = FinishReason.STOP
        return GenerateOutput(
            [each.token for each in made],
            [each.log_prob for each in made],
            finish,
            min((each.version for each in made), default=self._version),
            extras=_extras(request, made),
        )

    async def abort(self) -> None:
        self._aborts += 1

    async def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            await group.close()

    async def _ask(self, method: str, argument: object) -> object:
        if self._group is None:
            raise WorkerError("the naive engine is closed")
        return await self._group.call_one(0, method, argument, timeout_s=60)


def _extras(request: GenerateRequest, made: Sequence[Drawn]) -> EngineExtras:
    spans = [(len(list(run)), version) for version, run in itertools.groupby(made, lambda each: each.version)]
    ids = offsets = None
    if Extra.TOP_P_TOKENS in request.want:
        ids = array("i", itertools.chain.from_iterable(each.kept for each in made))
        offsets = array("i", itertools.accumulate((len(each.kept) for each in made), initial=0))
    return EngineExtras(
        versions=tuple(spans) if len(spans) > 1 else (),
        prefix_cache_info=PrefixCacheInfo(0, len(request.prompt)),
        top_p_token_ids=ids,
        top_p_token_offsets=offsets,
    )


@slime_core.hookimpl
def slime_engines() -> list[EngineSpec]:
    return [EngineSpec("naive", Naive, summary="One token after the other", transports=(ANY_RECEIVER,), gives=GIVES)]
