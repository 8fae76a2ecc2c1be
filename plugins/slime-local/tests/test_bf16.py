"""bf16: products with rounded factors on both paths, fp32 for what is kept and summed, and a training that resumes."""

from collections.abc import Callable
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from test_rank import SFT, batches, flat, group
from torch import Tensor

from slime_core.roles import TrainBatch
from slime_local.model import GroupTokens, LocalModel, load_model
from slime_local.model.ops import add_product, plus_times, project, rounded, times
from slime_local.rank import LocalRank
from tests.ranks import rank_setup
from tests.tables import table

TinyHf = Callable[..., Path]

MODELS = [
    ("llama", {"tie_word_embeddings": False}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"tie_word_embeddings": True}),
    ("gpt2", {"tie_word_embeddings": True}),
    ("gpt_neox", {}),
]
HALF_ULP = 2.0**-8
"""What rounding to the 8 significant bits of bf16 changes at most, as a share of the number."""


def some_groups() -> list[GroupTokens]:
    draw = torch.Generator().manual_seed(3)

    def text(length: int) -> list[int]:
        return torch.randint(0, 61, (length,), generator=draw).tolist()

    return [GroupTokens(text(9 * n), [text(3 + 4 * each) for each in range(3)]) for n in range(1, 5)]


def of(model: LocalModel) -> tuple[Tensor, Tensor]:
    """Log-probs, and the gradient of their weighted sum."""
    gradient = torch.zeros(model.numel)
    out = model.log_probs(some_groups(), grad=gradient)
    (out.log_probs_T * torch.linspace(-1, 1, len(out.log_probs_T))).sum().backward()
    assert out.log_probs_T.dtype == torch.float32
    return out.log_probs_T.detach(), gradient


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 5), st.integers(0, 1000))
def test_bf16_products_match_a_loop(n: int, k: int, m: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    a, b = torch.randn(n, k, generator=draw), torch.randn(k, m, generator=draw)
    base = torch.randn(n, m, generator=draw)
    x, y = a.bfloat16().tolist(), b.bfloat16().tolist()
    exact = torch.tensor([[sum(x[i][s] * y[s][j] for s in range(k)) for j in range(m)] for i in range(n)])
    size = torch.tensor([[sum(abs(x[i][s] * y[s][j]) for s in range(k)) for j in range(m)] for i in range(n)])
    total, room, added = base.clone(), torch.empty(n, m), torch.empty(n, m)
    add_product(total, a, b, True)
    times(a, rounded(b, True), out=room)
    plus_times(base, a, rounded(b, True), out=added)
    bias = project(a, rounded(b, True).t().contiguous(), base[0])
    for found, expected in (
        (times(a, rounded(b, True)), exact),
        (room, exact),
        (plus_times(base, a, rounded(b, True)), base + exact),
        (added, base + exact),
        (total, base + exact),
        (bias, base[0] + exact),
    ):
        assert found.dtype == torch.float32
        assert ((found - expected).abs() <= HALF_ULP * size + 1e-5).all()


@table("family, changes", MODELS)
def test_bf16_results_are_near_fp32(tiny_hf: TinyHf, family: str, changes: dict[str, object]) -> None:
    exact, near = load_model(tiny_hf(family, **changes)), load_model(tiny_hf(family, **changes), bf16=True)
    assert torch.equal(exact.flat, near.flat)
    (log_probs, gradient), (rounded_log_probs, rounded_gradient) = of(exact), of(near)
    difference = (log_probs - rounded_log_probs).abs()
    assert 0 < difference.mean() < 0.02
    assert difference.max() < 0.1
    for slot in exact.layout:
        expected, found = slot.view(gradient), slot.view(rounded_gradient)
        if expected.norm() > 1e-3 * gradient.norm():
            assert (found - expected).norm() < 0.05 * expected.norm(), slot.name
    values = [model.values(some_groups(), torch.ones(model.hidden_size)) for model in (exact, near)]
    assert 0 < (values[0] - values[1]).norm() < 0.05 * values[0].norm()


@table("family, changes", MODELS)
def test_bf16_engine_and_trainer_agree(tiny_hf: TinyHf, family: str, changes: dict[str, object]) -> None:
    model, exact = load_model(tiny_hf(family, **changes), bf16=True), load_model(tiny_hf(family, **changes))

    def decoded() -> Tensor:
        found, responses = [], some_groups()[3].responses
        length = min(map(len, responses))
        state = model.start_decode()
        state.add([some_groups()[3].prompt], [0] * len(responses), len(responses))
        for place in range(length):
            tokens = torch.tensor([each[place] for each in responses])
            found.append(torch.log_softmax(state.logits, -1).gather(1, tokens[:, None])[:, 0])
            state.step(tokens)
        return torch.stack(found, 1)

    def trained(by: LocalModel) -> Tensor:
        group = some_groups()[3]
        length = min(map(len, group.responses))
        cut = GroupTokens(group.prompt, [each[:length] for each in group.responses])
        return by.log_probs([cut]).log_probs_T.view(-1, length)

    for _ in range(2):
        assert (decoded() - trained(model)).abs().mean() < (trained(exact) - trained(model)).abs().mean()
        other = model.flat * 1.25  # a decode after a bind computes with the new weights
        model.bind(other)
        exact.bind(other)


def batch() -> TrainBatch:
    """Two prompts with four responses each, to be finetuned on."""
    return batches(1, [group(number, [0.0, 1.0, 2.0, 3.0], number, vocab=61) for number in range(2)])[0]


def test_master_weights_keep_small_steps(tiny_hf: TinyHf, tmp_path: Path) -> None:
    model = tiny_hf("qwen3", tie_word_embeddings=True)
    rank = LocalRank(0, 1, rank_setup(model, tmp_path, lr=1e-6, loss=SFT, bf16=True))
    before = flat(rank)
    rank.train_step(batch())
    moved = flat(rank) != before
    assert moved.float().mean() > 0.9
    assert (flat(rank).bfloat16() == before.bfloat16()).float().mean() > 0.99
