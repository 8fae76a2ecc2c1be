"""Sampling: draws do not depend on the batch, log-probs match training's, and each setting has its effect."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_engines import decode

from slime_core.roles import FinishReason, GenerateRequest, SamplingParams
from slime_local.batch import DecodeResult, StopConditions
from slime_local.decode import Decoder
from slime_local.model import GroupTokens, LocalModel, load_model
from slime_local.sampling import uniform
from tests.tables import table

BASE = GenerateRequest([5, 9, 11], SamplingParams(12, stop_token_ids=frozenset({3, 4})), seed=0)
ENDS = StopConditions(frozenset({2}))


def but(request: GenerateRequest, **changes: object) -> GenerateRequest:
    """The request with changed fields; also fields of its sampling settings."""
    own = {name: changes.pop(name) for name in ("prompt", "seed", "num_generated") if name in changes}
    return replace(request, sampling=replace(request.sampling, **changes), **own)  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def qwen3(tiny_hf: Callable[..., Path]) -> LocalModel:
    return load_model(tiny_hf("qwen3", tie_word_embeddings=True))


@pytest.fixture(scope="module")
def gpt2(tiny_hf: Callable[..., Path]) -> LocalModel:
    return load_model(tiny_hf("gpt2", tie_word_embeddings=True))


def mixed_requests() -> list[GenerateRequest]:
    """Prompts short and long, repeated and single, with every kind of setting."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(5, 61, size=n).tolist() for n in (1, 3, 17, 64, 65, 130, 210, 3)]
    requests = [but(BASE, prompt=p, seed=10 * i + j) for i, p in enumerate(prompts) for j in range(1 + i % 3)]
    odd = [
        but(BASE, prompt=prompts[2], temperature=0.0),
        but(BASE, prompt=prompts[2], temperature=0.7, top_p=0.8, seed=4),
        but(BASE, prompt=prompts[5], temperature=1.3, top_k=5, max_new_tokens=100, stop_token_ids=frozenset()),
        but(BASE, prompt=prompts[0], max_new_tokens=1),
        but(BASE, prompt=prompts[3], max_new_tokens=70, stop_token_ids=frozenset({2}), seed=2**63 + 5),
    ]
    return requests + odd


@pytest.fixture(scope="module", params=["qwen3", "llama", "wide", "demo", "no_groups", "bf16"])
def compared(request: pytest.FixtureRequest, tiny_hf: Callable[..., Path]) -> tuple[LocalModel, list[DecodeResult]]:
    """A model and what it samples for all of `mixed_requests` in one batch."""
    directory = {
        "qwen3": lambda: tiny_hf("qwen3", tie_word_embeddings=True),
        "llama": lambda: tiny_hf("llama", tie_word_embeddings=False),
        "wide": lambda: tiny_hf("qwen2", hidden_size=256, intermediate_size=704, head_dim=64, vocab_size=300),
        "demo": lambda: tiny_hf("qwen3", hidden_size=128, intermediate_size=320, head_dim=32, vocab_size=384),
        "no_groups": lambda: tiny_hf("llama", num_key_value_heads=4),
        "bf16": lambda: tiny_hf("qwen3", tie_word_embeddings=True),
    }[request.param]()
    model = load_model(directory, bf16=request.param == "bf16")
    return model, decode(model, mixed_requests(), ENDS)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_decoding_is_bitwise_independent_of_the_batch(
    compared: tuple[LocalModel, list[DecodeResult]], data: st.DataObject
) -> None:
    model, whole = compared
    requests = mixed_requests()
    indices = data.draw(st.lists(st.sampled_from(range(len(requests))), min_size=1, max_size=64))
    part = decode(model, [requests[i] for i in indices], ENDS)
    for index, result in zip(indices, part, strict=True):
        assert result == whole[index], f"request {index} among {indices}"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_decoding_is_bitwise_independent_of_admission_time(
    compared: tuple[LocalModel, list[DecodeResult]], data: st.DataObject
) -> None:
    model, whole = compared
    requests = mixed_requests()
    chosen = data.draw(st.lists(st.sampled_from(range(len(requests))), min_size=1, max_size=20, unique=True))
    begins = {index: data.draw(st.integers(0, 30)) for index in chosen}
    dropped = {index: begins[index] + data.draw(st.integers(1, 20)) for index in chosen[::3]}
    decoder, found, time = Decoder(model, ENDS), dict[int, DecodeResult](), 0
    while decoder.busy or time <= max(begins.values()):
        decoder.admit({index: requests[index] for index in chosen if begins[index] == time})
        gone = {index for index, end in dropped.items() if end == time}
        for index, cut in decoder.partial_results(gone).items():
            drawn = time - begins[index]
            assert cut.tokens == whole[index].tokens[:drawn]
            assert cut.finish is FinishReason.ABORT
        decoder.drop(gone)
        if decoder.busy:
            found |= decoder.step()
        time += 1
    assert found.keys() >= set(chosen) - dropped.keys()
    for index, result in found.items():
        assert result == whole[index], f"request {index}, admitted at {begins}"


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_decode_log_probs_match_the_training_forward(name: str, request: pytest.FixtureRequest) -> None:
    model: LocalModel = request.getfixturevalue(name)
    for temperature in (1.0, 0.6):
        asked = [but(r, temperature=temperature) for r in mixed_requests()]
        results = decode(model, asked, ENDS)
        groups = [GroupTokens(a.prompt, [r.tokens]) for a, r in zip(asked, results, strict=True)]
        trained = model.log_probs(groups, temperature=temperature).log_probs_T
        sampled = torch.tensor([x for r in results for x in r.log_probs])
        assert (trained - sampled).abs().max() <= 1e-4
        assert (trained - sampled).mean().abs() <= 1e-6


def test_draws_are_uniform_and_depend_on_seed_and_index() -> None:
    seeds = np.arange(2000, dtype=np.uint64)
    draws = np.stack([uniform(seeds, i) for i in range(20)])
    assert np.array_equal(draws[7, 100:200], uniform(seeds[100:200], 7))
    assert 0 <= draws.min() < draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.01
    for other in (draws[1:], draws[:, 1:]):  # neither neighbouring tokens nor neighbouring seeds resemble each other
        same = draws[: other.shape[0], : other.shape[1]]
        assert abs(np.corrcoef(same.ravel(), other.ravel())[0, 1]) < 0.02


@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_queued_requests_decode_the_same(qwen3: LocalModel, data: st.DataObject) -> None:
    """For any cache size, requests start in order, only as many as fit (at least one), with unchanged results."""
    requests = mixed_requests()
    chosen = data.draw(st.lists(st.sampled_from(range(len(requests))), min_size=1, max_size=20, unique=True))
    room = data.draw(st.integers(1, 1500))
    decoder, found = Decoder(qwen3, ENDS, room), dict[int, DecodeResult]()
    decoder.admit({index: requests[index] for index in chosen})
    begun = list[int]()
    while decoder.busy:
        found |= decoder.step()
        active = decoder.active
        begun += [index for index in [*found, *active] if index not in begun]
        longest = max((len(requests[i].prompt) for i in active), default=0)
        budget = max((requests[i].sampling.max_new_tokens for i in active), default=0)
        assert len(active) <= 1 or len(active) * (longest + budget) <= room
    assert found == dict(zip(chosen, decode(qwen3, [requests[i] for i in chosen], ENDS), strict=True))
    assert sorted(begun, key=chosen.index) == chosen


def test_full_decoder_admits_again_when_a_quarter_is_free(qwen3: LocalModel) -> None:
    decoder = Decoder(qwen3, ENDS, room=8 * 20)
    lengths = [4, 8, 12, *[17] * 9]
    decoder.admit({n: but(BASE, max_new_tokens=m, stop_token_ids=frozenset(), seed=n) for n, m in enumerate(lengths)})
    taken = []
    while decoder.busy:
        decoder.step()
        taken.append(len(decoder.active))
    # 8 of 3 + 17 tokens fit; 6 is three quarters of that: the second to end makes room for two.
    assert taken[:9] == [8, 8, 8, 7, 7, 7, 7, 6, 8]


@table("change, message", [({"prompt": []}, "empty prompt"), ({"max_new_tokens": 0}, "max_new_tokens = 0")])
def test_requests_without_a_token_are_refused(qwen3: LocalModel, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(qwen3, [but(BASE, **change)], ENDS)
