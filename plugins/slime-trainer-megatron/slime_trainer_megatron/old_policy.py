"""OldPolicy: this rank's part of the weights that generated a rollout, beside the policy that is trained on it.

Example:

    old.published(4, policy)
    old.passes(rollout_id=5)            # None while the policy itself is what generated it
"""

from collections.abc import Mapping

import torch

from slime_core.roles import OldActor, RankSetup
from slime_train import ServedWeights
from slime_trainer_megatron.beside import FrozenModel
from slime_trainer_megatron.model import Policy, copy_weights, weights_of
from slime_trainer_megatron.passes import Passes

VERSION = "old_actor"
"""What a checkpoint calls the version that it keeps."""


class OldPolicy:
    """A model of the policy's layout, and copies of what was published."""

    def __init__(self, setup: RankSetup, about: OldActor) -> None:
        """Load a model to put them into."""
        self._frozen = FrozenModel(
            setup.hf_checkpoint, setup, replays=setup.settings.__dict__["use_rollout_routing_replay"]
        )
        self._served = ServedWeights[Mapping[str, torch.Tensor]](about)

    def published(self, version: int, policy: Policy) -> None:
        """The policy's weights are served as a version."""
        self._served.published(version, lambda: {name: each.clone() for name, each in weights_of(policy).items()})

    def passes(self, rollout_id: int) -> Passes | None:
        """Of the model that generated a rollout, if it is not the policy that training on it begins with."""
        version, weights = self._served.of(rollout_id)
        if version == rollout_id:
            return None
        copy_weights(self._frozen.policy, weights)
        return self._frozen.passes

    def saved(self) -> tuple[int, Policy] | None:
        """What is not published again when the run goes on: a version, and the model that has its weights now."""
        if (saved := self._served.saved()) is None:
            return None
        version, weights = saved
        copy_weights(self._frozen.policy, weights)
        return version, self._frozen.policy

    @property
    def restored(self) -> Policy:
        """The model to fill with the saved weights; call `restore` afterwards."""
        return self._frozen.policy

    def restore(self, version: int) -> None:
        """The model has a saved version's weights now."""
        weights = weights_of(self._frozen.policy)
        self._served.restore(version, {name: each.clone() for name, each in weights.items()})
