"""SamplingParams: how an engine draws tokens, by SGLang's names and in SGLang's ranges.

Example:

    SamplingParams(max_new_tokens=48, temperature=0.8, stop=("END",))
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import cast


@dataclass(frozen=True, slots=True)
class Range:
    """What a number may be."""

    least: float
    most: float
    is_open: bool = False
    """Whether `least` itself is left out."""
    off: float | None = None
    """One more value, which turns the setting off."""

    def __contains__(self, value: float) -> bool:
        return value == self.off or (
            (self.least < value if self.is_open else self.least <= value) and value <= self.most
        )

    def __str__(self) -> str:
        least = f"over {self.least:g}" if self.is_open else f"{self.least:g} or more"
        off = "" if self.off is None else f", or {self.off:g} for off"
        return f"{least}, at most {self.most:g}{off}"


RANGES: Mapping[str, Range] = {
    "max_new_tokens": Range(0, 10**9),
    "temperature": Range(0, 10),
    "top_p": Range(0, 1, is_open=True),
    "top_k": Range(1, 10**9, off=-1),
    "min_p": Range(0, 1),
    "min_new_tokens": Range(0, 10**9),
    "repetition_penalty": Range(0, 2, is_open=True),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
}
"""What settings of sampling may be, by their names here; keys, flags and requests take the same."""


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
        for name, allowed in RANGES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"sampling with {name}={getattr(self, name)!r}; expected {allowed}")
        checks = (
            (isinstance(cast(object, self.stop), tuple) and all(self.stop), "stop", "a tuple of texts, none empty"),
            (all(map(_is_id, self.stop_token_ids)), "stop_token_ids", "ids from 0 up"),
            (all(map(math.isfinite, self.logit_bias.values())), "logit_bias", "finite numbers"),
            (all(map(_is_id, self.logit_bias)), "logit_bias", "ids from 0 up"),
        )
        for good, name, expected in checks:
            if not good:
                raise ValueError(f"sampling with {name}={getattr(self, name)!r}; expected {expected}")

    def besides(self, *heeded: str) -> list[str]:
        """Names of parameters that are set and are not `heeded`: an engine refuses them rather than ignore them.

        What is said of the text, which is a generator's to make, is not an engine's to heed.
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


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
