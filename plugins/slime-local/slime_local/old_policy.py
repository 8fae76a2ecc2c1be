"""OldPolicy: the weights that generated a rollout, beside the policy that is trained on it.

Example:

    old.published(4, weights)
    old.model(rollout_id=5)             # None while the policy itself is what generated it
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slime_core.roles import OldActor, RankSetup
from slime_local.frozen import FrozenModel
from slime_local.model import LocalModel
from slime_train import ServedWeights

FILE = "old_actor.safetensors"


class OldPolicy:
    """A model of the policy's architecture, and copies of what was published."""

    def __init__(self, setup: RankSetup, about: OldActor) -> None:
        """Load a model to put them into."""
        self._model = FrozenModel(setup.hf_checkpoint, bf16=setup.bf16).model
        self._served = ServedWeights[torch.Tensor](about)

    def published(self, version: int, weights: torch.Tensor) -> None:
        """The policy's weights [N] are served as a version."""
        self._served.published(version, weights.clone)

    def model(self, rollout_id: int) -> LocalModel | None:
        """The model that generated a rollout, if it is not the policy that training on it begins with."""
        version, weights = self._served.of(rollout_id)
        if version == rollout_id:
            return None
        self._model.flat.copy_(weights)
        return self._model

    def save(self, directory: Path) -> None:
        """Write what is not published again when the run goes on."""
        if (saved := self._served.saved()) is not None:
            version, weights = saved
            save_file({"weights": weights.cpu(), "version": torch.tensor(version)}, directory / FILE)

    def load(self, directory: Path) -> None:
        """The inverse of `save`."""
        if (directory / FILE).is_file():
            tensors = load_file(directory / FILE)
            self._served.restore(int(tensors["version"]), tensors["weights"].to(self._model.flat.device))
