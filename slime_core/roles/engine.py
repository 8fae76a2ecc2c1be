"""Engine: generates tokens from the newest published weights.

Example:

    out = await engine.generate(GenerateRequest(prompt, SamplingParams(max_new_tokens=48), seed))
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Setup, Spec, Stability
from slime_core.roles.launcher import Launcher
from slime_core.roles.weights import Transport, WeightChannel
from slime_core.sample import GroupId


class FinishReason(enum.Enum):
    """Why generation ended."""

    STOP = "stop"
    """A stop token was sampled; it is the last token."""
    LENGTH = "length"
    """The token budget was used up."""
    ABORT = "abort"
    """Interrupted; the tokens so far are valid."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample."""

    max_new_tokens: int
    """Token budget of the call."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus mass; 1 is off."""
    top_k: int = -1
    """Candidates kept; -1 is off."""
    stop_token_ids: frozenset[int] = frozenset()
    """Ids that end the response, besides the model's own."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One call of an engine."""

    prompt: Sequence[int]
    """Token ids."""
    sampling: SamplingParams
    """How to sample."""
    seed: int
    """Makes the draw a function of the sample's identity, not of its companions."""
    group: GroupId | None = None
    """Whose samples share a beginning with this prompt: several engines keep a group together. Changes no answer."""


@dataclass(frozen=True, slots=True)
class GenerateOutput:
    """What came back."""

    tokens: Sequence[int]
    """New ids, the stop token included: [n]."""
    log_probs: Sequence[float]
    """Log-prob of each under the tempered distribution: [n]."""
    finish: FinishReason
    """Why it ended."""
    weight_version: int
    """Version of the weights that made it."""


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
    float32_matmul_precision: str = "highest"
    """What fp32 matrices may be multiplied in, as the trainer's are."""


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
        """Switch to a published version: no later token is made by an older one."""
        ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Generate one continuation."""
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


@dataclass(frozen=True)
class EngineSpec(Spec[Engine]):
    """Offers an engine."""

    role: ClassVar[str] = "engine"
    stability: ClassVar[Stability] = Stability.PROVISIONAL
    transports: tuple[Transport, ...] = ()
    """Ways of receiving weights that it accepts, best first."""
