"""The engine role: generates tokens from the newest published weights.

An engine implements `Engine`; the other protocols here are optional abilities, such as streaming. Engines and ranks
that share devices implement `ReleasesMemory` or `RankReleasesMemory`: one side frees memory while the other works.

Example:

    out = await engine.generate(GenerateRequest(prompt, SamplingParams(max_new_tokens=48), seed))
    await engine.release(frozenset({MemoryTag.KV_CACHE}))        # no request is running
    await engine.resume(frozenset({MemoryTag.KV_CACHE}))         # log-probs are the same as before
"""

import enum
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from slime_core.roles.generation import Extra, GenerateChunk, GenerateOutput, GenerateRequest, SamplingParams
from slime_core.roles.launcher import Launcher, Needs
from slime_core.roles.spec import Settings, Setup, Spec
from slime_core.roles.weights import WeightChannel

# Memory: an engine or a rank can release it while the other uses the same devices, and reacquire it later.


class MemoryTag(enum.Enum):
    """A kind of memory."""

    WEIGHTS = "weights"
    """The model's weights."""
    KV_CACHE = "kv_cache"
    """Attention keys and values; their content may be lost."""
    CUDA_GRAPH = "cuda_graph"
    """Captured CUDA graphs."""
    GRADIENT = "gradient"
    """Gradient buffers."""
    OPTIMIZER = "optimizer"
    """Moments and master weights."""


MemoryTags: TypeAlias = frozenset[MemoryTag]
"""A set of memory kinds."""


@runtime_checkable
class ReleasesMemory(Protocol):
    """Optional: an engine that can release memory; `EngineSpec.releases` lists which kinds."""

    async def release(self, tags: MemoryTags) -> None:
        """Release this memory. No request is running. Idempotent."""

    async def resume(self, tags: MemoryTags) -> None:
        """Reacquire the memory. Output must not depend on having released it. Idempotent.

        Weights need not be restored if the next call is `load_weights`.
        """


@runtime_checkable
class RankReleasesMemory(Protocol):
    """Optional: a trainer rank that can release memory; `TrainerSpec.releases` lists which kinds."""

    def release(self, tags: MemoryTags) -> None:
        """Release this memory; called on all ranks together. Idempotent."""

    def resume(self, tags: MemoryTags) -> None:
        """Reacquire the memory. The next step must not depend on having released it. Idempotent."""


# Engine: generates tokens from the newest published weights.


@dataclass(frozen=True, slots=True)
class EngineSetup(Setup):
    """What an engine's factory receives."""

    hf_checkpoint: Path
    """Model directory in HF format."""
    eos_token_ids: frozenset[int]
    """Ids that end a response."""
    launcher: Launcher
    """Starts the engine's worker processes."""
    scratch: Path
    """A directory inside the run folder for this engine's small files; no other engine uses it."""
    name: str = "engine"
    """Name of its worker groups in logs and errors: "engine", or "engine-3" among several."""
    number: int = 0
    """Number of this engine among the run's engines of this model, from 0."""
    count: int = 1
    """How many engines this model has."""
    serves: str = ""
    """Name of the entry of `served_models` that it serves; empty for the policy."""
    max_concurrency: int | None = None
    """Most concurrent requests of the run, over all engines of this model; None: unknown."""
    colocate_with: str | None = None
    """Worker group whose devices its workers share: the trainer's, with `colocate`. See `WorkerGroupSpec`."""
    offloads: bool = False
    """Whether the run releases its memory while ranks train (`colocate`, `offload_rollout`)."""
    float32_matmul_precision: str = "highest"
    """Precision of fp32 matrix products; equals the trainer's."""
    bf16: bool = False
    """Compute in bf16, as the trainer does."""
    want: frozenset[Extra] = frozenset()
    """Extras that the run's requests will want, such as routed experts, so that the engine can prepare at the start."""


@runtime_checkable
class Engine(Protocol):
    """Serves one policy. `generate` may be called concurrently without bound; the engine batches.

    A run may have several (`rollout_num_engines`), each built by the same factory. An engine that raises
    `WorkerError`, times out or returns an invalid output is closed, and a new one is built and started in its place.
    """

    async def start(self) -> None:
        """Start workers; returns when they can accept requests."""

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch to a published version; every later token uses it.

        Weights arrive by name, in any order. After an error or a cancellation, the engine keeps its previous version.

        Raises:
            ModelError: the channel's slots do not match the model's; names the first one that differs.
        """

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Generate one continuation.

        Raises:
            SlimeError: the engine does not support a part of the request. It must not ignore any (`unsupported` of the
                request and of its sampling lists unsupported parts).
        """

    async def abort(self) -> None:
        """End all running requests early; each returns its tokens so far, with finish ABORT."""

    async def close(self) -> None:
        """Stop workers."""


@runtime_checkable
class ServesCheckpoint(Protocol):
    """Optional: an engine that can serve `hf_checkpoint` without a trainer. `--debug-rollout-only` needs it."""

    async def load_checkpoint(self) -> None:
        """Serve the weights of `hf_checkpoint` as version 0, as if a trainer had published them."""


@runtime_checkable
class WatchesWorkers(Protocol):
    """Optional: an engine that detects the death of its workers while idle. The core then replaces the engine."""

    async def watch(self) -> None:
        """Wait until the engine is closed; called once it has started.

        Raises:
            WorkerError: the engine cannot serve requests any more.
        """


@runtime_checkable
class StreamsTokens(Protocol):
    """Optional: an engine that can stream a response in parts."""

    def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """Generate one continuation, yielded in parts during generation.

        `GenerateOutput.joined` of all parts equals the output of `generate`. Ending the iteration early, by `aclose`
        or by cancelling the consumer, drops the request.

        Raises:
            SlimeError: as `generate` does.
        """


@dataclass(frozen=True, slots=True)
class EngineUse:
    """What is known, before anything starts, of a run's demands on its engines."""

    hf_checkpoint: Path
    """Model directory in HF format."""
    model: Mapping[str, object]
    """The model's config.json."""
    engines: int = 1
    """How many engines there are."""
    sampling: SamplingParams = field(default_factory=lambda: SamplingParams(1))
    """Sampling parameters of training samples; for a served teacher, of the requests to it."""
    want: frozenset[Extra] = frozenset()
    """Extras that requests will want."""


@dataclass(frozen=True)
class EngineSpec(Spec[Engine]):
    """Offers an engine: what generates tokens."""

    role: ClassVar[str] = "engine"
    transports: tuple[str, ...] = ()
    """Names of supported transports, best first; `ANY_RECEIVER` for any that brings a receiver."""
    bf16: bool = False
    """Whether it can compute in bf16."""
    releases: MemoryTags = frozenset()
    """Memory that it can release while ranks train; a non-empty set requires `ReleasesMemory`."""
    gives: frozenset[Extra] = frozenset()
    """Extras that it can return to a request that wants them. It rejects a request for any other, by name."""
    excluded_extras: Callable[[Settings], frozenset[Extra]] = lambda settings: frozenset()
    """Extras among `gives` that these settings exclude, for example because a router in front drops them."""
    restart_s: float = 600.0
    """Seconds that a failed engine may take to serve again. A run without any serving engine waits this long."""
    probe_s: float = 120.0
    """Timeout in seconds of the first response after a start, including compilation and graph capture."""
    load_s: float = 600.0
    """Timeout in seconds of `load_weights`, not counting its wait for running requests."""
    workers_key: str = ""
    """Name of the setting that `rollout_num_gpus_per_engine` sets; "" rejects that key."""
    workers: Callable[[Settings], int] = lambda settings: 1
    """How many worker processes one engine starts with these settings. Each may open a weight receiver."""
    needs: Callable[[Settings], Needs] = lambda settings: Needs()
    """Resources of each worker; the engine requests the same from its launcher."""
    check: Callable[[Settings, EngineUse], None] | None = None
    """Raises ConfigError, before anything starts, if these settings cannot do what the run needs."""
    explain: Callable[[Settings, Mapping[str, object]], str] | None = None
    """One sentence for `slime plan` about the engine, from its settings and the model's config.json."""
