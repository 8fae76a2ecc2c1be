"""Rows that are forked, moved and dropped on the way go on as if decoded alone."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
from local_engines import decode
from torch import Tensor

from slime_local.model import GroupTokens, LocalModel, load_model
from slime_local.model.base import DecodeState
from slime_local.model.fast import FastModel
from slime_local.model.static_decode import StaticDecode

PROMPTS = [[5, 6, 7], [8] * 70, [9]]


def started(model: LocalModel, static: bool = False) -> DecodeState:
    """A decode state; with `static`, the one used on a GPU."""
    return StaticDecode(cast(FastModel, model)) if static else model.start_decode()


def next_log_probs(model: LocalModel, text: list[int]) -> Tensor:
    """[V], from the training forward."""
    return model.log_probs([GroupTokens(text, [[t] for t in range(model.vocab_size)])]).log_probs_T


KINDS = [("qwen3", False), ("qwen3", True), ("qwen2", True), ("gpt2", False)]


@pytest.mark.parametrize(("family", "static"), KINDS)
def test_rows_follow_select(tiny_hf: Callable[..., Path], family: str, static: bool) -> None:
    model = load_model(tiny_hf(family, tie_word_embeddings=True))
    state = started(model, static)
    state.add(PROMPTS, [0, 1, 2], max_rows=8)
    texts = [list(prompt) for prompt in PROMPTS]
    draw = torch.Generator().manual_seed(0)
    # Fork, move, drop a prompt, shrink to one row, grow again; by then own slots have doubled.
    plan = [[0, 1, 2], [0, 1, 2, 1, 1, 0], [5, 3, 2, 0, 1], [0, 1, 3, 3], [1], [0, 0, 0, 0, 0, 0, 0, 0]]
    for sources in plan + [list(range(8))] * 70:
        state.select(torch.tensor(sources))
        texts = [list(texts[source]) for source in sources]
        tokens = torch.randint(model.vocab_size, (len(sources),), generator=draw)
        state.step(tokens)
        for text, token in zip(texts, tokens.tolist(), strict=True):
            text.append(token)
        assert state.logits.shape == (len(sources), model.vocab_size)
        if len(texts[0]) % 15 == 0 or len(sources) < 8:
            for text, logits in zip(texts, state.logits, strict=True):
                assert (torch.log_softmax(logits, -1) - next_log_probs(model, text)).abs().max() <= 1e-4


@pytest.mark.parametrize(("family", "static"), KINDS)
def test_rows_added_later_decode_as_if_alone(tiny_hf: Callable[..., Path], family: str, static: bool) -> None:
    model = load_model(tiny_hf(family, tie_word_embeddings=True))
    torch.set_num_threads(1)
    together, alone, begins = started(model, static), list[DecodeState](), {0: [0], 3: [1, 2], 40: [0], 45: [2]}
    draw = torch.Generator().manual_seed(0)
    for time in range(80):
        if prompts := [PROMPTS[number] for number in begins.get(time, [])]:
            together.add(prompts, range(len(prompts)), max_rows=5)
            for prompt in prompts:
                alone.append(started(model, static))
                alone[-1].add([prompt], [0], max_rows=1)
        for place, state in enumerate(alone):
            # Products of few rows differ in the last bits on the plain path; on the fast one they are padded.
            apart = (together.logits[place] - state.logits[0]).abs().max()
            assert apart == 0 if (family, static) == ("qwen3", False) else apart < 1e-4
        if time == 50:  # the second one ends
            together.select(torch.tensor([0, 4, 2, 3]))
            del alone[1]
            alone.insert(1, alone.pop())
        tokens = torch.randint(model.vocab_size, (len(alone),), generator=draw)
        together.step(tokens)
        for state, token in zip(alone, tokens, strict=True):
            state.step(token[None])


@pytest.mark.parametrize(("family", "static"), KINDS)
def test_cleared_decode_equals_a_fresh_one(tiny_hf: Callable[..., Path], family: str, static: bool) -> None:
    """Of as many rows, of more, of far more and of far fewer than those before, whose slots are used again or not."""
    model = load_model(tiny_hf(family, tie_word_embeddings=True))
    torch.set_num_threads(1)
    used = started(model, static)
    draw = torch.Generator().manual_seed(0)
    for rows in (6, 6, 5, 9, 40, 4):
        fresh = started(model, static)
        used.clear()
        prompts = [torch.randint(model.vocab_size, (3 + row,), generator=draw).tolist() for row in range(rows)]
        for state in (used, fresh):
            state.add(prompts, range(rows), max_rows=rows)
        for _ in range(70):
            assert torch.equal(used.logits, fresh.logits)
            tokens = torch.randint(model.vocab_size, (rows,), generator=draw)
            for state in (used, fresh):
                state.step(tokens)


def test_equal_texts_are_decoded_once(tiny_hf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from slime_core.roles import GenerateRequest, SamplingParams
    from slime_local.batch import StopConditions
    from slime_local.model.fast_decode import FastDecode

    model = load_model(tiny_hf("qwen3", tie_word_embeddings=True))
    rows, step = list[int](), FastDecode.step

    def counted(state: FastDecode, tokens: Tensor) -> None:
        rows.append(len(tokens))
        step(state, tokens)

    monkeypatch.setattr(FastDecode, "step", counted)
    requests = [GenerateRequest([5, 6], SamplingParams(9), seed) for seed in (0, 0, 0, 1)]
    results = decode(model, requests, StopConditions())
    assert results[0] == results[1] == results[2] == decode(model, requests[:1], StopConditions())[0]
    first = results[0].tokens, results[3].tokens
    apart = next(i for i in range(9) if first[0][i] != first[1][i])
    assert rows[:8] == [1 if i < apart else 2 for i in range(8)]
