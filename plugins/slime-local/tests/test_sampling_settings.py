"""Every sampling setting against a decoder of one request at a time, written with loops over Hugging Face's logits."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from local_engines import decode
from transformers import AutoModelForCausalLM, PreTrainedModel

from slime_core.roles import FinishReason, GenerateRequest, SamplingParams
from slime_local.batch import DecodeResult, StopConditions
from slime_local.model import LocalModel, load_model
from slime_local.sampling import StopTexts, uniform
from tests.tables import table

EOS = 2
CLOSE = 2e-4
"""How near a draw may come to the border of two tokens before float32 and float64 may differ over it."""


def text_of(tokens: Sequence[int]) -> str:
    """One to three letters a token, so that stop texts begin and end within tokens."""
    return "".join(("abc"[token % 3] * (1 + token % 2) + "de"[token % 2])[: 1 + token % 3] for token in tokens)


ENDS = StopConditions(frozenset({EOS}), text_of)


class TooClose(Exception):
    """A draw that arithmetic of other precision may decide otherwise."""


class Reference:
    """Decodes one request, recomputing the whole text for every token, in float64."""

    def __init__(self, hf: PreTrainedModel) -> None:
        self._hf = hf

    def logits(self, text: Sequence[int]) -> list[float]:
        with torch.no_grad():
            found: torch.Tensor = self._hf(input_ids=torch.tensor([list(text)])).logits
        return [float(each) for each in found[0, -1]]

    def law(self, request: GenerateRequest, new: Sequence[int]) -> tuple[list[float], list[float]]:
        """Weights of the next token's draw, and the log-probs that the engine returns."""
        asked = request.sampling
        logits = self.logits([*request.prompt, *new])
        temperature = asked.temperature or 1.0
        made = [*request.prompt[len(request.prompt) - request.num_generated :], *new]
        shaped = []
        for token, logit in enumerate(logits):
            count = made.count(token)
            value = logit - asked.frequency_penalty * count - (asked.presence_penalty if count else 0.0)
            if count:
                value = value * asked.repetition_penalty if value < 0 else value / asked.repetition_penalty
            value += asked.logit_bias.get(token, 0.0)
            if len(new) < asked.min_new_tokens and token in asked.stop_token_ids | {EOS}:
                value = -math.inf
            shaped.append(value)
        probs = softmax([each / temperature for each in shaped])
        ranked = sorted(range(len(probs)), key=lambda token: -probs[token])
        kept = ranked[: asked.top_k] if asked.top_k > 0 else ranked
        if asked.top_p < 1:
            mass, head = math.fsum(probs[token] for token in kept), list[int]()
            for token in kept:
                so_far = math.fsum(probs[each] for each in head)
                if abs(so_far - asked.top_p * mass) < CLOSE:
                    raise TooClose
                if so_far >= asked.top_p * mass:
                    break
                head.append(token)
            kept = head
        least = asked.min_p * probs[ranked[0]]
        if any(abs(probs[token] - least) < CLOSE * probs[ranked[0]] for token in kept) and asked.min_p > 0:
            raise TooClose
        weights = [probs[token] if token in kept and probs[token] >= least else 0.0 for token in range(len(probs))]
        if asked.temperature == 0:
            if probs[ranked[0]] - probs[ranked[1]] < CLOSE:
                raise TooClose
            weights = [float(token == ranked[0]) for token in range(len(probs))]
        return weights, [math.log(each) for each in softmax([each / temperature for each in logits])]

    def decode(self, request: GenerateRequest) -> DecodeResult:
        asked = request.sampling
        made = list(request.prompt[len(request.prompt) - request.num_generated :])
        new, log_probs = list[int](), list[float]()
        while len(new) < asked.max_new_tokens:
            weights, told = self.law(request, new)
            point = float(uniform(np.array([request.seed], dtype=np.uint64), len(new))[0]) * math.fsum(weights)
            so_far, chosen = 0.0, None
            for token, weight in enumerate(weights):
                so_far += weight
                if weight and abs(so_far - point) < CLOSE and so_far < math.fsum(weights) - CLOSE:
                    raise TooClose
                if chosen is None and so_far > point:
                    chosen = token
            assert chosen is not None
            new.append(chosen)
            log_probs.append(told[chosen])
            if chosen in asked.stop_token_ids | {EOS} and not asked.ignore_eos:
                return DecodeResult(new, log_probs, FinishReason.STOP, chosen)
            for text in asked.stop:
                if text in text_of([*made, *new]):
                    return DecodeResult(new, log_probs, FinishReason.STOP, text)
        return DecodeResult(new, log_probs, FinishReason.LENGTH)


def softmax(values: Sequence[float]) -> list[float]:
    highest = max(values)
    raised = [math.exp(each - highest) for each in values]
    return [each / math.fsum(raised) for each in raised]


@pytest.fixture(scope="module", params=["qwen3", "gpt2"])
def models(request: pytest.FixtureRequest, tiny_hf: Callable[..., Path]) -> tuple[LocalModel, Reference]:
    """On the fast path and on the plain one."""
    torch.set_num_threads(1)
    directory = tiny_hf(request.param, tie_word_embeddings=True)
    return load_model(directory), Reference(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64))


TOKENS = st.integers(0, 60)
SAMPLING = st.builds(
    SamplingParams,
    max_new_tokens=st.integers(1, 9),
    temperature=st.sampled_from([0.0, 0.6, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 1.0, 0.7]),
    top_k=st.sampled_from([-1, -1, 7]),
    min_p=st.sampled_from([0.0, 0.0, 0.2]),
    stop_token_ids=st.frozensets(TOKENS, max_size=4),
    stop=st.lists(st.sampled_from(["abd", "ccd", "daa", "bbeb", "e"]), max_size=2).map(tuple),
    ignore_eos=st.booleans(),
    min_new_tokens=st.sampled_from([0, 0, 4]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.6, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.8, -0.5]),
    logit_bias=st.dictionaries(TOKENS, st.floats(-5, 5), max_size=3),
)
REQUESTS = st.builds(
    GenerateRequest,
    prompt=st.sampled_from([[5, 9, 11], [5, 9, 11, 7, 7, 9], [31]]),
    sampling=SAMPLING,
    seed=st.integers(0, 3),
    num_generated=st.sampled_from([0, 0, 1]),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(REQUESTS, min_size=1, max_size=4))
@example([GenerateRequest([31], SamplingParams(9, repetition_penalty=each), 0) for each in (1.0, 2.0, 1.0, 1.5)])
@example(
    [GenerateRequest([5, 7, 7], SamplingParams(9, frequency_penalty=2.0), 0, num_generated=each) for each in (0, 2, 1)]
)
def test_batched_sampling_matches_a_reference_decoder(
    models: tuple[LocalModel, Reference], requests: list[GenerateRequest]
) -> None:
    model, reference = models
    found = decode(model, requests, ENDS)
    for request, result in zip(requests, found, strict=True):
        try:
            expected = reference.decode(request)
        except TooClose:
            assume(False)
        assert (result.tokens, result.finish, result.matched) == (expected.tokens, expected.finish, expected.matched)
        assert result.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


def test_stop_text_is_found_across_byte_tokens() -> None:
    pieces = [bytes([each]) for each in range(256)]

    def decoded(tokens: Sequence[int]) -> str:
        return b"".join(pieces[token] for token in tokens).decode(errors="replace")

    stops = StopTexts(["né\n", "🌊"], decoded)
    text = "a long beginning, naïve né\nand more"
    tokens = list(text.encode())
    found = [length for length in range(1, len(tokens) + 1) if stops.completed(tokens[:length])]
    assert found[0] == len("a long beginning, naïve né\n".encode())
    assert stops.completed(list("the 🌊".encode())) == "🌊"
    assert stops.completed(list("the 🌊".encode())[:-1]) is None


def test_stop_texts_need_a_tokenizer(models: tuple[LocalModel, Reference]) -> None:
    with pytest.raises(ValueError, match="needs a tokenizer"):
        decode(models[0], [GenerateRequest([5], SamplingParams(4, stop=("x",)), 0)], StopConditions())


@table(
    "change",
    [
        {"max_new_tokens": -1},
        {"temperature": -0.1},
        {"temperature": math.inf},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": 0},
        {"min_p": 1.5},
        {"stop": "text"},
        {"stop": ("a", "")},
        {"min_new_tokens": -1},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 2.5},
        {"presence_penalty": math.nan},
        {"frequency_penalty": -2.1},
        {"logit_bias": {3: math.inf}},
        {"logit_bias": {-1: 1.0}},
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, object]) -> None:
    [name] = change
    with pytest.raises(ValueError, match=f"{name}=.*expected"):
        SamplingParams(**({"max_new_tokens": 4} | change))  # type: ignore[arg-type]
