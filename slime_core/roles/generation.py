"""What an engine is asked and what it answers: a request, the whole answer, or its parts as they are made.

Example:

    request = GenerateRequest(prompt, SamplingParams(max_new_tokens=48), seed, want=frozenset({Extra.ROUTED_EXPERTS}))
    output = GenerateOutput.joined([chunk async for chunk in engine.stream(request)])
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from slime_core.roles.extras import EngineExtras, Extra, VersionSpan, merged, spans_of
from slime_core.roles.sampling import SamplingParams
from slime_core.sample import GroupId, Json


class FinishReason(enum.Enum):
    """Why generation ended."""

    STOP = "stop"
    """A stop token was sampled, or a stop text completed; it is the last token, or ends within it."""
    LENGTH = "length"
    """The token budget was used up."""
    ABORT = "abort"
    """Interrupted; the tokens so far are valid."""


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
    session: str | None = None
    """The conversation that the call is a turn of: several engines keep it with one. Changes no answer."""
    media: Mapping[str, Json] | None = None
    """Images, videos or audio that the prompt's placeholders stand for, as `Sample.multimodal_inputs` has them."""
    lora: str | None = None
    """Name of the adapter that is to answer, instead of the policy alone."""
    priority: int = 0
    """Of requests that wait, those with more go first. Changes no answer."""
    want: frozenset[Extra] = frozenset()
    """What is to come back beyond tokens and log-probs."""
    top_log_probs: int = 0
    """How many of the likeliest tokens are wanted for each new one, with `Extra.TOP_LOG_PROBS`."""

    def besides(self, *heeded: str | Extra) -> list[str]:
        """Names of what is asked for and not `heeded` ("media", "lora", extras): an engine refuses them.

        `SamplingParams.besides` says the same of the settings of sampling.
        """
        asked = [name for name in ("media", "lora") if getattr(self, name) and name not in heeded]
        return asked + sorted(extra.value for extra in self.want if extra not in heeded)


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
    """Version of the weights that made it; of several, the oldest."""
    matched: int | str | None = None
    """The stop token, or the text of `stop`, that ended it, where the engine says so."""
    extras: EngineExtras | None = None
    """What else there is to know of it."""

    @property
    def versions(self) -> tuple[VersionSpan, ...]:
        """How many neighbouring tokens each version of the weights made, oldest first."""
        return spans_of(self.extras, len(self.tokens), self.weight_version)

    @property
    def as_chunk(self) -> "GenerateChunk":
        """The whole as one part."""
        return GenerateChunk(
            self.tokens, self.log_probs, self.weight_version, self.finish, self.matched, extras=self.extras
        )

    @classmethod
    def joined(cls, chunks: "Sequence[GenerateChunk]") -> Self:
        """What `generate` answers for a request whose response came in these parts.

        Raises:
            ValueError: the last of them does not end the response.
        """
        if not chunks or chunks[-1].finish is None:
            raise ValueError(f"{len(chunks)} chunks without an end; expected all of a response, up to its finish")
        last = chunks[-1]
        tokens = [token for chunk in chunks for token in chunk.tokens]
        log_probs = [each for chunk in chunks for each in chunk.log_probs]
        extras = last.extras
        spans = merged([(len(chunk.tokens), chunk.weight_version) for chunk in chunks if chunk.tokens])
        if extras is not None and extras.versions:
            spans = extras.versions
        elif len(spans) > 1:
            extras = replace(extras or EngineExtras(), versions=spans)
        oldest = min((version for _, version in spans), default=last.weight_version)
        return cls(tokens, log_probs, chunks[-1].finish, oldest, last.matched, extras)


@dataclass(frozen=True, slots=True)
class GenerateChunk:
    """A part of a response, as it is made."""

    tokens: Sequence[int]
    """Ids that no part before it had: [n], at least one but in the last part."""
    log_probs: Sequence[float]
    """Log-prob of each, as in the whole: [n]."""
    weight_version: int
    """Version of the weights that made it; of several, the oldest."""
    finish: FinishReason | None = None
    """Why the response ended; None in all parts but the last."""
    matched: int | str | None = None
    """In the last part: the stop token or text that ended it, where the engine says so."""
    extras: EngineExtras | None = None
    """In the last part: what else there is to know of the whole response."""
