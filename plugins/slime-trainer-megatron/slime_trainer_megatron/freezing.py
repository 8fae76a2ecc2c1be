"""Freezing: selects the trained weights by patterns of their names. Imports no torch.

Frozen weights have no gradient; their moments exist only in checkpoints, as zeros.

Names are Megatron's, as in checkpoints: `decoder.layers.3.self_attention.linear_qkv.weight`,
`embedding.word_embeddings.weight`. All experts of a layer share `decoder.layers.3.mlp.experts.linear_fc1.weight`.

Example:

    frozen = frozen_names(model, Patterns(freeze=("embedding", "router")))
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from slime_core.errors import ConfigError, did_you_mean
from slime_trainer_megatron.families import Model, Weight

BIAS = "expert_bias"
"""Name suffix of weights that are never trained."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Regular expressions, searched in a weight's name."""

    only: Sequence[str] = ()
    """Only weights that match one of these are trained."""
    freeze: Sequence[str] = ()
    """Weights that match one of these are frozen."""

    def frozen(self, name: str) -> bool:
        """Whether a weight of this name is frozen."""
        if self.only:
            return not any(re.search(each, name) for each in self.only)
        return any(re.search(each, name) for each in self.freeze)


def name_of(weight: Weight) -> str:
    """Name in the whole model; all experts of a layer share one."""
    name = weight.name.replace("local_experts.{}.", "")
    return name if weight.layer is None else f"decoder.layers.{weight.layer}.{name}"


def frozen_names(model: Model, patterns: Patterns) -> frozenset[str]:
    """The names, `name_of`, that are not trained.

    Raises:
        ConfigError: a pattern matches no name, or all weights are frozen.
    """
    names = list(dict.fromkeys(name_of(weight) for weight in model.weights() if not weight.name.endswith(BIAS)))
    for key, given in (("only_train_params_name_list", patterns.only), ("freeze_params_name_list", patterns.freeze)):
        for pattern in given:
            if not any(re.search(pattern, name) for name in names):
                parts = list(dict.fromkeys(part for name in names for part in name.split(".") if not part.isdigit()))
                raise ConfigError(
                    f"[trainer.megatron] {key}: no weight of the model ({model.family}) matches {pattern!r}. "
                    f"Names are Megatron's: {', '.join(_without_numbers(names))}.{did_you_mean(pattern, parts)}"
                )
    frozen = frozenset(name for name in names if patterns.frozen(name))
    if len(frozen) == len(names):
        raise ConfigError(
            f"[trainer.megatron] freeze_params_name_list = {list(patterns.freeze)} freezes all weights of the model "
            f"({model.family}); remove a pattern"
        )
    return frozen


def _without_numbers(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(re.sub(r"layers\.\d+\.", "layers.N.", name) for name in names))
