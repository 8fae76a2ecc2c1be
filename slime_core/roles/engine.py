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

# Memory: what an engine or a rank can give up while the other works on the same devices, and take back unchanged.


class MemoryTag(enum.Enum):
    """A kind of memory."""

    WEIGHTS = "weights"
    """The model's."""
    KV_CACHE = "kv_cache"
    """Keys and values of texts; what they hold may be lost."""
    CUDA_GRAPH = "cuda_graph"
    """Captured graphs."""
    GRADIENT = "gradient"
    """What a backward pass adds to."""
    OPTIMIZER = "optimizer"
    """Moments and master weights."""


MemoryTags: TypeAlias = frozenset[MemoryTag]
"""Some kinds."""


@runtime_checkable
class ReleasesMemory(Protocol):
    """What an engine has that can give memory up; its spec says which, `EngineSpec.releases`."""

    async def release(self, tags: MemoryTags) -> None:
        """Give this memory up, what is under way having ended; again is not an error."""
        ...

    async def resume(self, tags: MemoryTags) -> None:
        """Take it back: what is generated is what it would have been; again is not an error.

        Weights need not be those that were given up where the next call is `load_weights`.
        """
        ...


@runtime_checkable
class RankReleasesMemory(Protocol):
    """What a trainer's rank has that can give memory up; its spec says which, `TrainerSpec.releases`."""

    def release(self, tags: MemoryTags) -> None:
        """Give this memory up; called on all ranks together, again is not an error."""
        ...

    def resume(self, tags: MemoryTags) -> None:
        """Take it back: the next step is what it would have been; again is not an error."""
        ...


# Engine: generates tokens from the newest published weights.


@dataclass(frozen=True, slots=True)
class EngineSetup(Setup):
    """What an engine's factory is given."""

    hf_checkpoint: Path
    """Model directory in HF format."""
    eos_token_ids: frozenset[int]
    """Ids that end a response."""
    launcher: Launcher
    """Starts the engine's worker processes."""
    scratch: Path
    """A directory for the engine's own small files, inside the run folder; no other engine has the same."""
    name: str = "engine"
    """What its worker groups are called, in logs and errors: "engine", or "engine-3" among several."""
    number: int = 0
    """Which of the run's engines of this model it is, from 0."""
    count: int = 1
    """How many there are."""
    serves: str = ""
    """Which of `served_models` it serves, by name; empty for the policy."""
    max_concurrency: int | None = None
    """Requests that the run has under way at once at most, over all engines of this model; None: nobody knows."""
    beside: str | None = None
    """The worker group whose devices its own share, for `WorkerGroupSpec.beside`: the trainer's, with `colocate`."""
    offloads: bool = False
    """Whether the run releases its memory while ranks train (`colocate`, `offload_rollout`)."""
    float32_matmul_precision: str = "highest"
    """What fp32 matrices may be multiplied in, as the trainer's are."""
    bf16: bool = False
    """Compute in bf16, as the trainer does."""
    want: frozenset[Extra] = frozenset()
    """What requests of the run will want, such as the experts of a mixture: prepared for at the start."""


@runtime_checkable
class Engine(Protocol):
    """Serves one policy. `generate` may be called concurrently without bound; the engine batches.

    A run may have several (`rollout_num_engines`), each built by the same factory. One that raises `WorkerError`, is
    silent for too long or answers what no engine may is closed, and another is built and started in its place.
    """

    async def start(self) -> None:
        """Start workers; returns when they can take requests."""
        ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Switch to a published version: no later token is made by an older one.

        Weights are taken by name, whatever their order. One that is stopped half-way, or fails, serves what it served.

        Raises:
            ModelError: the channel's slots are not the model's; names the first that is missing, unknown or different.
        """
        ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Generate one continuation.

        Raises:
            SlimeError: something is asked for that the engine does not do; it leaves none aside (`besides`, of the
                request and of its sampling, names it).
        """
        ...

    async def abort(self) -> None:
        """End all running requests early; each returns what it has, finish ABORT."""
        ...

    async def close(self) -> None:
        """Stop workers."""
        ...


@runtime_checkable
class ServesCheckpoint(Protocol):
    """What an engine has that can serve `hf_checkpoint` without a trainer: `--debug-rollout-only` needs it."""

    async def load_checkpoint(self) -> None:
        """Serve the weights of `hf_checkpoint` as version 0, those that a trainer would publish first."""
        ...


@runtime_checkable
class NoticesDeath(Protocol):
    """What an engine has that notices when its workers die, though it is asked for nothing; it is then replaced."""

    async def watch(self) -> None:
        """Wait until the engine is closed; called once it has started.

        Raises:
            WorkerError: it can serve no more.
        """
        ...


@runtime_checkable
class StreamsTokens(Protocol):
    """What an engine has that can give a response in parts; one that cannot is an engine all the same."""

    def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        """Generate one continuation, in parts as they are made.

        `GenerateOutput.joined` of all of them is what `generate` answers. Ending it early, by `aclose` or by cancelling
        who waits for it, drops the request.

        Raises:
            SlimeError: as `generate` does.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineUse:
    """What a run asks of its engines, as far as it is known before anything starts."""

    hf_checkpoint: Path
    """Model directory in HF format."""
    model: Mapping[str, object]
    """The model's config.json."""
    engines: int = 1
    """How many engines there are."""
    sampling: SamplingParams = field(default_factory=lambda: SamplingParams(1))
    """How the samples that are trained on are drawn; of a served teacher, how it is asked about them."""
    want: frozenset[Extra] = frozenset()
    """What requests will want of it."""


@dataclass(frozen=True)
class EngineSpec(Spec[Engine]):
    """Offers an engine."""

    role: ClassVar[str] = "engine"
    transports: tuple[str, ...] = ()
    """Names of the transports that it can receive by, best first; `ANY_RECEIVER` for any that brings a receiver."""
    bf16: bool = False
    """Whether it can compute in bf16, as `bf16 = true` asks; one that cannot is refused then."""
    releases: MemoryTags = frozenset()
    """What memory it can give up while ranks train; an engine that can is a `ReleasesMemory`."""
    gives: frozenset[Extra] = frozenset()
    """What it can answer beyond tokens and log-probs, to a request that wants it; other wants it refuses by name."""
    withholds: Callable[[Settings], frozenset[Extra]] = lambda settings: frozenset()
    """Of that, what it does not answer with these settings: a router before it leaves it out, say."""
    restart_s: float = 600.0
    """Seconds in which one that failed serves again: a run without any engine that serves waits so long for one."""
    probe_s: float = 120.0
    """Seconds that the first answer after a start may take, whatever is compiled or captured for it."""
    load_s: float = 600.0
    """Seconds that `load_weights` may take, not counting its wait for what is under way."""
    workers_key: str = ""
    """Setting for the workers of an engine, set by `rollout_num_gpus_per_engine`; "" refuses that key."""
    workers: Callable[[Settings], int] = lambda settings: 1
    """How many worker processes one engine starts with these settings; each may open a receiver of weights."""
    needs: Callable[[Settings], Needs] = lambda settings: Needs()
    """What each of them needs of its machine; the engine asks its launcher for the same."""
    check: Callable[[Settings, EngineUse], None] | None = None
    """Sees, before anything starts, that it can do what the run asks with these settings; raises ConfigError if not."""
    explain: Callable[[Settings, Mapping[str, object]], str] | None = None
    """What `slime plan` says of the engine, given its settings and the model's config.json: one sentence."""
