"""The forwards of both paths against Hugging Face's own, token by token and weight by weight."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from slime_local.model import GroupTokens, LocalModel, head, load_model
from tests.tables import table

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 64}

FAST = [
    ("llama", {"tie_word_embeddings": False}),
    ("llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3_ROPE}),
    ("llama", {"num_key_value_heads": 4}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen2", {"tie_word_embeddings": False, "rope_parameters": YARN_ROPE}),
    ("qwen3", {"tie_word_embeddings": True}),
    ("qwen3", {"tie_word_embeddings": False}),
    ("mistral", {"sliding_window": None, "tie_word_embeddings": False}),
    ("mistral", {"sliding_window": None, "tie_word_embeddings": True, "num_hidden_layers": 1}),
]
PLAIN = [("gpt2", {"tie_word_embeddings": True}), ("gpt_neox", {}), ("qwen3", {"hidden_act": "gelu"})]


def some_groups(seed: int, vocab: int = 61) -> list[GroupTokens]:
    """Groups of 1 to 5 responses, some of a single token."""
    rng = random.Random(seed)

    def text(low: int, high: int) -> list[int]:
        return [rng.randrange(vocab) for _ in range(rng.randint(low, high))]

    return [GroupTokens(text(1, 40), [text(1, 1 + 9 * g) for _ in range(rng.randint(1, 5))]) for g in range(6)]


def hf_log_probs(hf: PreTrainedModel, groups: list[GroupTokens], temperature: float) -> tuple[Tensor, Tensor]:
    """One unpadded forward a response: nothing to get wrong."""
    log_probs, entropies = [], []
    for group in groups:
        for response in group.responses:
            logits = hf(input_ids=torch.tensor([[*group.prompt, *response]])).logits[0] / temperature
            lp = torch.log_softmax(logits[len(group.prompt) - 1 : -1], -1)
            log_probs.append(lp.gather(1, torch.tensor(response)[:, None])[:, 0])
            entropies.append(-(lp.exp() * lp).sum(-1))
    return torch.cat(log_probs), torch.cat(entropies)


def loss_of(log_probs: Tensor) -> Tensor:
    """Weighs tokens unevenly, so that a gradient sent to the wrong token shows."""
    return (log_probs * torch.linspace(-1, 1, len(log_probs))).sum()


@pytest.mark.parametrize(("family", "changes"), FAST + PLAIN, ids=str)
@table("temperature", [1.0, 0.6])
def test_log_probs_and_gradients_match_hugging_face(
    tiny_hf: Callable[..., Path], family: str, changes: dict[str, object], temperature: float
) -> None:
    directory = tiny_hf(family, **changes)
    model = load_model(directory)
    assert model.path == ("plain" if (family, changes) in PLAIN else "fast"), model.why
    groups = some_groups(1)
    grad = torch.zeros(model.numel)
    out = model.log_probs(groups, temperature=temperature, grad=grad)
    loss_of(out.log_probs_T).backward()

    hf = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).train(False)
    expected, entropy = hf_log_probs(hf, groups, temperature)
    loss_of(expected).backward()
    assert (out.log_probs_T - expected).abs().max() <= 1e-4
    assert (out.entropy_T - entropy).abs().max() <= 1e-4
    for slot in model.layout:
        reference = hf.get_parameter(slot.name).grad
        assert reference is not None
        assert (slot.view(grad) - reference).norm() <= 1e-4 * reference.norm(), slot.name


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("kept", [1 << 26, 100])
@pytest.mark.parametrize(("family", "changes"), [FAST[5], PLAIN[0]], ids=str)
def test_entropy_gradient_matches_hugging_face(
    tiny_hf: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    changes: dict[str, object],
    kept: int,
    share: float,
) -> None:
    monkeypatch.setattr(head, "RECOMPUTE_OVER", kept)
    directory = tiny_hf(family, **changes)
    model = load_model(directory)
    grad = torch.zeros(model.numel)
    out = model.log_probs(some_groups(2), temperature=0.6, grad=grad)
    loss = loss_of(out.entropy_T)
    (loss + share * loss_of(out.log_probs_T) if share else loss).backward()
    hf = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).train(False)
    log_probs, entropy = hf_log_probs(hf, some_groups(2), 0.6)
    (loss_of(entropy) + share * loss_of(log_probs)).backward()
    for slot in model.layout:
        reference = hf.get_parameter(slot.name).grad
        assert reference is not None
        assert (slot.view(grad) - reference).norm() <= 1e-4 * reference.norm(), slot.name


@table("family, changes", [FAST[0], FAST[5], ("gpt2", {}), ("gpt_neox", {})])
def test_recomputed_layers_have_the_same_gradient_bitwise(
    tiny_hf: Callable[..., Path], family: str, changes: dict[str, object]
) -> None:
    def trained(again: bool) -> tuple[Tensor, int]:
        """The gradient, and how many tensors were kept for it."""
        model, kept = load_model(tiny_hf(family, **changes)), list[int]()
        if again:
            model.checkpoint_layers()
        gradient = torch.zeros(model.numel)

        def keep(tensor: Tensor) -> Tensor:
            kept.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = model.log_probs(some_groups(4), grad=gradient)
        (loss_of(out.log_probs_T) + out.entropy_T.sum()).backward()
        return gradient, len(kept)

    kept_all, kept_inputs = trained(again=False), trained(again=True)
    assert torch.equal(kept_all[0], kept_inputs[0])
    assert kept_inputs[1] < kept_all[1]


def test_long_texts_extend_the_rope_table(tiny_hf: Callable[..., Path]) -> None:
    directory = tiny_hf("llama", tie_word_embeddings=False)
    group = GroupTokens([7] * 300, [[5] * 100])
    hf = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).train(False)
    with torch.no_grad():
        expected, _ = hf_log_probs(hf, [group], 1.0)
    assert (load_model(directory).log_probs([group]).log_probs_T - expected).abs().max() <= 1e-4


@pytest.fixture
def model(tiny_hf: Callable[..., Path]) -> LocalModel:
    return load_model(tiny_hf("qwen3", tie_word_embeddings=True))


def test_bad_calls_are_refused(model: LocalModel) -> None:
    with pytest.raises(ValueError, match="without groups"):
        model.log_probs([])
    with pytest.raises(ValueError, match="temperature above 0, got 0"):
        model.log_probs(some_groups(1), temperature=0.0)
    with pytest.raises(ValueError, match=f"float32 vector of {model.numel} elements"):
        model.log_probs(some_groups(1), grad=torch.zeros(3))
    for prompt, responses in (([], [[1]]), ([1], []), ([1], [[1], []])):
        with pytest.raises(ValueError, match=r"group|response"):
            GroupTokens(prompt, responses)
