"""Engine: generates tokens from the newest published weights.

Example:

    out = await engine.generate(GenerateRequest(prompt, SamplingParams(max_new_tokens=48), seed))
"""

import enum
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Protocol, Self, cast, runtime_checkable

from slime_core.roles._spec import Setup, Spec, Stability
from slime_core.roles.launcher import Launcher
from slime_core.roles.weights import Transport, WeightChannel
from slime_core.sample import GroupId


class FinishReason(enum.Enum):
    """Why generation ended."""

    STOP = "stop"
    """A stop token was sampled, or a stop text completed; it is the last token, or ends within it."""
    LENGTH = "length"
    """The token budget was used up."""
    ABORT = "abort"
    """Interrupted; the tokens so far are valid."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample, by SGLang's names and in SGLang's ranges.

    A token's logits become, in this order: less `frequency_penalty` times how often the token was made so far, and less
    `presence_penalty` if it was; then divided by `repetition_penalty` where positive and multiplied by it where
    negative, for tokens made so far; then plus `logit_bias`; and divided by `temperature`. Of that distribution the
    draw keeps what `top_k`, `top_p` and `min_p` all keep. The log-probs that come back are those of the logits divided
    by `temperature` and nothing else: what a trainer computes, too.

    Raises:
        ValueError: a setting is out of its range.
    """

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
    min_p: float = 0.0
    """Candidates are kept whose probability is at least this share of the likeliest one's; 0 is off."""
    stop: tuple[str, ...] = ()
    """Texts that end the response with the token that completes one; the tokens of it are kept."""
    ignore_eos: bool = False
    """No token ends the response, neither the model's own nor one of `stop_token_ids`; texts of `stop` do."""
    min_new_tokens: int = 0
    """Tokens before which no stop token is drawn; a text of `stop` ends the response all the same."""
    repetition_penalty: float = 1.0
    """Divides the positive and multiplies the negative logits of tokens made so far (Keskar et al. 2019, CTRL,
    section 4.1, which takes the prompt's tokens, too); 1 is off."""
    presence_penalty: float = 0.0
    """Taken off the logits of tokens made so far (OpenAI API reference, chat completions)."""
    frequency_penalty: float = 0.0
    """Taken off the logits of tokens made so far, as often as each was made (same source)."""
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    """Added to the logits of these ids."""
    skip_special_tokens: bool = True
    """Whether a generator leaves special tokens out of the response's text; engines return tokens."""
    no_stop_trim: bool = True
    """Whether a generator leaves the text of `stop` that ended the response in its text; engines return tokens."""

    def __post_init__(self) -> None:
        """Refuse what SGLang refuses."""
        checks = (
            (self.max_new_tokens >= 0, "max_new_tokens", "0 or more"),
            (0 <= self.temperature < math.inf, "temperature", "0 or more"),
            (0 < self.top_p <= 1, "top_p", "over 0 and at most 1"),
            (self.top_k == -1 or self.top_k >= 1, "top_k", "at least 1, or -1 for off"),
            (0 <= self.min_p <= 1, "min_p", "0 to 1"),
            (isinstance(cast(object, self.stop), tuple) and all(self.stop), "stop", "a tuple of texts, none empty"),
            (self.min_new_tokens >= 0, "min_new_tokens", "0 or more"),
            (0 < self.repetition_penalty <= 2, "repetition_penalty", "over 0 and at most 2"),
            (-2 <= self.presence_penalty <= 2, "presence_penalty", "-2 to 2"),
            (-2 <= self.frequency_penalty <= 2, "frequency_penalty", "-2 to 2"),
            (all(map(math.isfinite, self.logit_bias.values())), "logit_bias", "finite numbers"),
            (min(self.logit_bias, default=0) >= 0, "logit_bias", "ids from 0 up"),
        )
        for good, name, expected in checks:
            if not good:
                raise ValueError(f"sampling with {name}={getattr(self, name)!r}; expected {expected}")

    def besides(self, *heeded: str) -> list[str]:
        """Names of what is asked for and not among what an engine heeds: it refuses them rather than leave them aside.

        What is said of the text, which is a generator's to make, is no engine's to heed.
        """
        defaults = SamplingParams(self.max_new_tokens)
        free = {*heeded, "skip_special_tokens", "no_stop_trim"}
        names = [each.name for each in fields(self) if each.name not in free]
        return [name for name in names if getattr(self, name) != getattr(defaults, name)]

    @property
    def shapes_logits(self) -> bool:
        """Whether the draw's law is another than the model's tempered one, cut off at its tail or not."""
        penalties = (self.repetition_penalty - 1.0, self.presence_penalty, self.frequency_penalty)
        return any(penalties) or bool(self.logit_bias) or self.min_new_tokens > 0


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
    made: int = 0
    """Tokens at the prompt's end that an interrupted call made: penalties and texts of `stop` see them as made."""


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
    matched: int | str | None = None
    """The stop token, or the text of `stop`, that ended it, where the engine says so."""

    @classmethod
    def joined(cls, chunks: "Sequence[GenerateChunk]") -> Self:
        """What `generate` answers for a request whose response came in these parts.

        Raises:
            ValueError: the last of them does not end the response.
        """
        if not chunks or chunks[-1].finish is None:
            raise ValueError(f"{len(chunks)} chunks without an end; expected all of a response, up to its finish")
        tokens = [token for chunk in chunks for token in chunk.tokens]
        log_probs = [each for chunk in chunks for each in chunk.log_probs]
        return cls(tokens, log_probs, chunks[-1].finish, chunks[-1].weight_version, chunks[-1].matched)


@dataclass(frozen=True, slots=True)
class GenerateChunk:
    """A part of a response, as it is made."""

    tokens: Sequence[int]
    """Ids that no part before it had: [n], at least one but in the last part."""
    log_probs: Sequence[float]
    """Log-prob of each, as in the whole: [n]."""
    weight_version: int
    """Version of the weights that made it."""
    finish: FinishReason | None = None
    """Why the response ended; None in all parts but the last."""
    matched: int | str | None = None
    """In the last part: the stop token or text that ended it, where the engine says so."""


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
    bf16: bool = False
    """Compute in bf16, as the trainer does."""


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
        """Generate one continuation.

        Raises:
            SlimeError: something is asked for that the engine does not do; it leaves none aside (`besides` names it).
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


@dataclass(frozen=True)
class EngineSpec(Spec[Engine]):
    """Offers an engine."""

    role: ClassVar[str] = "engine"
    stability: ClassVar[Stability] = Stability.PROVISIONAL
    transports: tuple[Transport, ...] = ()
    """Ways of receiving weights that it accepts, best first."""
    bf16: bool = False
    """Whether it can compute in bf16, as `bf16 = true` asks; one that cannot is refused then."""
