"""A causal LM whose parameters are views into one flat fp32 vector, with a fast path for Llama-like decoders.

    model = load_model(Path("checkpoints/tiny"))        # its own fresh vector
    model.bind(shared)                                   # now views into `shared`, no copy
    out = model.log_probs(groups, grad=flat_gradient)    # backward() adds into `flat_gradient`

Names are resolved on first use, so that `model.support`, which needs no torch, can be imported where torch must not be.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime_local.model.base import DecodeState, LocalModel
    from slime_local.model.load import load_model
    from slime_local.model.support import ModelPath, explain_path
    from slime_local.model.tokens import GroupTokens, TokenLogProbs
    from slime_local.model.weights import Slot

__all__ = [
    "DecodeState",
    "GroupTokens",
    "LocalModel",
    "ModelPath",
    "Slot",
    "TokenLogProbs",
    "explain_path",
    "load_model",
]

_HOME = {
    "DecodeState": "base",
    "GroupTokens": "tokens",
    "LocalModel": "base",
    "ModelPath": "support",
    "Slot": "weights",
    "TokenLogProbs": "tokens",
    "explain_path": "support",
    "load_model": "load",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
