"""Probe: whether a model that Hugging Face computes is causal, and decodes to what it is trained on, seen at load.

Example:

    probe(model)        # ModelError: bidirectional, or its layers cannot be decoded in padded rows

Eight tokens are enough: a model that looks ahead, or whose layers keep a state that rows cannot share, shows it there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from slime_core.errors import ModelError
from slime_local.model.plain import PlainModel

LENGTHS = (8, 5)
"""Tokens of two texts, so that one row is padded."""
NEAR, NEAR_BF16 = 1e-3, 5e-2
"""Differences that are rounding, as parts of the largest logit: of rows of another shape, and of any in bf16."""
SAME = 1e-5
"""And of rows of the same shape: a random model looks ahead only a little."""


@torch.no_grad()
def probe(model: PlainModel) -> None:
    """Compare forwards of two short texts.

    Raises:
        ModelError: a token's logits depend on later ones, or decoding gives other logits than the forward.
    """
    kind = type(model.hf).__name__
    vocab = model.vocab_size
    texts = [[(7 * row + 3 * place + 1) % vocab for place in range(length)] for row, length in enumerate(LENGTHS)]
    try:
        first, second = (_logits(model, text) for text in texts)
    except Exception as error:  # of whatever its code and its configuration do with each other
        raise ModelError(
            f"{kind} in {model.source} cannot compute a text of {LENGTHS[0]} tokens: {type(error).__name__}: "
            f"{str(error)[:300]}; expected a model that Hugging Face's own code runs with this config.json"
        ) from error
    changed = [*texts[0][:-1], (texts[0][-1] + 1) % vocab]
    if not _is_near(_logits(model, changed)[:-1], first[:-1], NEAR_BF16 if model.bf16 else SAME):
        raise ModelError(
            f"{kind} in {model.source} is not causal: what it predicts after a token changes with later ones; expected "
            "a decoder, which can generate"
        )
    try:
        decode = model.start_decode()
        decode.add([text[:-2] for text in texts], [0, 1], 2)
        found = [decode.logits]
        for back in (2, 1):
            decode.select(torch.tensor([1, 0]))
            decode.step(torch.tensor([texts[1 if back == 2 else 0][-back], texts[0 if back == 2 else 1][-back]]))
            found.append(decode.logits[[1, 0]] if back == 2 else decode.logits)
    except Exception as error:  # of whatever its layers do with a cache
        raise ModelError(_cannot_decode(model, f"{type(error).__name__}: {error}")) from error
    for step, logits in enumerate(found):
        expected = torch.stack([first[len(texts[0]) - 3 + step], second[len(texts[1]) - 3 + step]])
        if not _is_near(logits, expected, NEAR_BF16 if model.bf16 else NEAR):
            raise ModelError(_cannot_decode(model, "it gives other logits in padded rows with a cache than alone"))


def _cannot_decode(model: PlainModel, problem: str) -> str:
    kinds = sorted(set(getattr(model.hf.config, "layer_types", None) or ()))
    layers = f" (layers: {', '.join(kinds)})" if kinds else ""
    return (
        f"{type(model.hf).__name__} in {model.source} cannot be decoded by the local engine{layers}: {problem}. Layers "
        "that keep a state of their own, as linear attention does, are not served here; choose a model with attention "
        "in all layers"
    )


def _logits(model: PlainModel, text: Sequence[int]) -> Tensor:
    with model.serving():
        logits: Tensor = model.hf(input_ids=torch.tensor([text]), use_cache=False).logits[0].float()
    return logits


def _is_near(found: Tensor, expected: Tensor, near: float) -> bool:
    return bool((found - expected).abs().max() <= near * expected.abs().max())
