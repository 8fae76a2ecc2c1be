"""What a generation will say: a pure function of prompt, sampling parameters and behaviour.

The policy draws small letters, spaces and, one time in ten, the end; prompt and sampling seed decide, and at
temperature 0 the prompt alone, but what `logit_bias` raises far is drawn for sure. A token's log-prob depends on the
tokens before it and on the weights' version, so that stale ones can be told, and a text scored as it was made.
"""

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slime_core.sample import Json
from slime_testing._fake_engine.bodies import Sampling
from slime_testing._fake_engine.script import AbortMidway, Answer, Behaviour, ToolCall
from slime_testing.engine import EOS, CharTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz "
END_RATE = 0.1
LEAST_LOG_PROB = -4.0
MOST_CRC = 0xFFFFFFFF
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
    given: Sequence[float] | None = None
    match behaviour:
        case Answer(tokens=tokens, log_probs=told) if tokens is not None:
            planned, given = _end(tokens, sampling), told
        case ToolCall(name=name, arguments=arguments):
            call = json.dumps({"name": name, "arguments": dict(arguments)})
            planned = _end([*TOKENIZER.encode(f"<tool_call>\n{call}\n</tool_call>"), EOS], sampling)
        case AbortMidway(after_tokens=after):
            made = _end(_draws(drawn), sampling.model_copy(update={"ignore_eos": True}))
            planned = replace(made, tokens=made.tokens[:after], finish=aborted(), trim=0)
        case _ if sure := {
            int(token): bias for token, bias in (sampling.logit_bias or {}).items() if bias >= SURE_BIAS
        }:
            planned = _end(_biased(sure, sampling), sampling)
            given = [0.0] * len(planned.tokens)
        case _:
            planned = _end(_draws(drawn), sampling)
    own = text_log_probs([*prompt, *planned.tokens], version)[len(prompt) :]
    return replace(planned, log_probs=tuple(given or own)[: len(planned.tokens)])


def text_log_probs(tokens: Sequence[int], version: str) -> list[float]:
    """Log-prob of each token given those before it, under one version's weights; the same for drawn and given text."""
    seen, log_probs = zlib.crc32(version.encode()), list[float]()
    for token in tokens:
        seen = zlib.crc32(token.to_bytes(8, "little", signed=True), seen)
        log_probs.append(LEAST_LOG_PROB * seen / MOST_CRC)
    return log_probs


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


def _end(source: Sequence[int] | Iterator[int], asked: Sampling) -> Plan:
    """The source up to what ends it: a stop token, a stop string, the budget, or its own end; without log-probs.

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
    return Plan(tuple(tokens), (), finish, trim)
