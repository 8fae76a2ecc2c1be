"""SamplingParams: how an engine draws tokens, by SGLang's names and in SGLang's ranges.

Example:

    SamplingParams(max_new_tokens=48, temperature=0.8, stop=("END",))
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import cast


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
