"""Rows that are forked, moved and dropped on the way go on as if decoded alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from slime_core.local.model import GroupTokens, LocalModel, load_model

PROMPTS = [[5, 6, 7], [8] * 70, [9]]


def next_log_probs(model: LocalModel, text: list[int]) -> Tensor:
    """[V], from the training forward."""
    return model.log_probs([GroupTokens(text, [[t] for t in range(model.vocab_size)])]).log_probs_T


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_rows_follow_their_sources(tiny_hf: Callable[..., Path], family: str) -> None:
    model = load_model(tiny_hf(family, tie_word_embeddings=True))
    state = model.start_decode(PROMPTS, [0, 1, 2], max_rows=8)
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


def test_equal_texts_are_decoded_once(tiny_hf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from slime_core.local.decode import DecodeRequest, decode
    from slime_core.local.model.fast_decode import FastDecode

    model = load_model(tiny_hf("qwen3", tie_word_embeddings=True))
    rows, step = list[int](), FastDecode.step

    def counted(state: FastDecode, tokens: Tensor) -> None:
        rows.append(len(tokens))
        step(state, tokens)

    monkeypatch.setattr(FastDecode, "step", counted)
    request = DecodeRequest([5, 6], 9, 1.0, 1.0, -1, frozenset(), 0)
    requests = [DecodeRequest([5, 6], 9, 1.0, 1.0, -1, frozenset(), seed) for seed in (0, 0, 0, 1)]
    results = decode(model, requests)
    assert results[0] == results[1] == results[2] == decode(model, [request])[0]
    first = results[0].tokens, results[3].tokens
    apart = next(i for i in range(9) if first[0][i] != first[1][i])
    assert rows[:8] == [1 if i < apart else 2 for i in range(8)]
