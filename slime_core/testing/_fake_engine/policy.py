"""What a generation will say: a pure function of prompt, sampling parameters and behaviour.

The policy draws small letters, spaces and, one time in ten, the end; prompt and sampling seed decide, and at
temperature 0 the prompt alone, but what `logit_bias` raises far is drawn for sure. Log-probs depend on the weights'
version besides, so that stale ones can be told.
"""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slime_core.sample import Json
from slime_core.testing._fake_engine.bodies import Sampling
from slime_core.testing._fake_engine.script import AbortMidway, Answer, Behaviour, ToolCall
from slime_core.testing.engine import EOS, CharTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz "
END_RATE = 0.1
LEAST_LOG_PROB = -4.0
SURE_BIAS = 50.0
"""`logit_bias` from which a token is sure; as SGLang does, the log-prob of the changed distribution is told: 0."""

TOKENIZER = CharTokenizer()


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a generation, before its first token is out."""

    tokens: tuple[int, ...]
    """Ids: [n]."""
    log_probs: tuple[float, ...]
    """Of each: [n]."""
    finish: dict[str, Json]
    """`finish_reason` of meta_info."""
    trim: int = 0
    """Characters at the end of the text that a stop string or token takes with it."""

    def text(self, count: int) -> str:
        """Text of the first tokens; that of all of them is trimmed."""
        text = TOKENIZER.decode(self.tokens[:count])
        return text[: len(text) - self.trim] if count == len(self.tokens) else text


def plan(prompt: Sequence[int], sampling: Sampling, behaviour: Behaviour, version: str) -> Plan:
    """What a behaviour answers to a prompt with weights of a version."""
    seed = None if sampling.temperature == 0 else sampling.sampling_seed or 0
    drawn = random.Random(f"{seed} {list(prompt)}")
    log_probs = _log_probs(random.Random(f"{version} {seed} {list(prompt)}"))
    match behaviour:
        case Answer(tokens=tokens, log_probs=given) if tokens is not None:
            planned = _end(tokens, given or log_probs, sampling)
        case ToolCall(name=name, arguments=arguments):
            call = json.dumps({"name": name, "arguments": dict(arguments)})
            planned = _end([*TOKENIZER.encode(f"<tool_call>\n{call}\n</tool_call>"), EOS], log_probs, sampling)
        case AbortMidway(after_tokens=after):
            made = _end(_draws(drawn), log_probs, sampling.model_copy(update={"ignore_eos": True}))
            return replace(made, tokens=made.tokens[:after], log_probs=made.log_probs[:after], finish=aborted(), trim=0)
        case _ if sure := {
            int(token): bias for token, bias in (sampling.logit_bias or {}).items() if bias >= SURE_BIAS
        }:
            planned = _end(_biased(sure, sampling), itertools.repeat(0.0), sampling)
        case _:
            planned = _end(_draws(drawn), log_probs, sampling)
    return planned


def aborted(message: str = "Aborted") -> dict[str, Json]:
    """`finish_reason` of a generation that was ended early."""
    return {"type": "abort", "message": message, "status_code": None, "err_type": None}


def _draws(drawn: random.Random) -> Iterator[int]:
    while True:
        yield EOS if drawn.random() < END_RATE else ord(drawn.choice(LETTERS))


def _biased(biases: dict[int, float], sampling: Sampling) -> Iterator[int]:
    """The token of the highest bias, less the penalties for how often each was made."""
    while True:
        token = max(biases, key=lambda each: biases[each])
        yield token
        biases = {**biases, token: biases[token] - sampling.frequency_penalty}


def _log_probs(drawn: random.Random) -> Iterator[float]:
    while True:
        yield LEAST_LOG_PROB * drawn.random()


def _end(source: Sequence[int] | Iterator[int], log_probs: Sequence[float] | Iterator[float], asked: Sampling) -> Plan:
    """The source up to what ends it: a stop token, a stop string, the budget, or its own end.

    As in SGLang, no stop token is drawn before `min_new_tokens`, and `ignore_eos` goes for every stop token.
    """
    stops = {*(asked.stop_token_ids or ()), EOS}
    strings = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    trimmed = not asked.no_stop_trim
    tokens: list[int] = []
    finish: dict[str, Json] | None = None
    trim = 0
    for token in source:
        if len(tokens) == asked.max_new_tokens:
            break
        if token in stops and len(tokens) < asked.min_new_tokens:
            continue
        tokens.append(token)
        if token in stops and not asked.ignore_eos:
            finish, trim = {"type": "stop", "matched": token}, trimmed * len(TOKENIZER.decode([token]))
            break
        if found := next((each for each in strings if TOKENIZER.decode(tokens).endswith(each)), None):
            finish, trim = {"type": "stop", "matched": found}, trimmed * len(found)
            break
    if finish is None and len(tokens) == asked.max_new_tokens:
        finish = {"type": "length", "length": len(tokens)}
    if finish is None:
        finish = {"type": "stop", "matched": tokens[-1] if tokens else EOS}
    return Plan(tuple(tokens), tuple(itertools.islice(log_probs, len(tokens))), finish, trim)
