"""A rank's models in addition to its policy: reference, teacher, critic, and the policy that generated a rollout.

Example:

    share = companions.add_log_probs(share, packs)
    share.ref_log_probs_T                  # [T]
    old.model(rollout_id=5)                # None if the current policy generated it
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slime_core.errors import ModelError
from slime_core.roles import RankSetup
from slime_local.critic import LocalCritic, Pack
from slime_local.model import GroupTokens, LocalModel, load_model
from slime_train import ServedWeights, Share


class FrozenModel:
    """A frozen model with separate weights, computed on the same path as the policy."""

    def __init__(self, directory: Path, *, bf16: bool = False) -> None:
        """Load a model directory.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._directory = directory
        self.model = load_model(directory, bf16=bf16)
        """The loaded model."""

    def log_probs(self, groups: Sequence[GroupTokens], temperature: float) -> torch.Tensor:
        """Log-prob of every response token [T]."""
        return self.model.log_probs(groups, temperature=temperature).log_probs_T

    @property
    def weights(self) -> torch.Tensor:
        """Its weights [N]."""
        return self.model.flat

    def take(self, weights: torch.Tensor) -> None:
        """Replace the weights by these [N].

        Raises:
            ModelError: they are of another architecture.
        """
        if weights.shape != self.model.flat.shape:
            raise ModelError(
                f"the reference model in {self._directory} has {self.model.numel} weights and the policy "
                f"{len(weights)}: leave ref_update_interval out, or give a ref_load of the policy's architecture"
            )
        self.model.flat.copy_(weights)


CRITIC_FOLDER = "critic"
REFERENCE_FILE = "reference.safetensors"


class CompanionModels:
    """The reference, the teacher and the critic of one rank."""

    def __init__(self, setup: RankSetup, sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Load the models that the setup needs.

        Raises:
            ModelError: a model cannot be loaded.
        """
        self._temperature = setup.rollout_temperature
        self._about = setup.reference
        self._reference = FrozenModel(setup.reference.load, bf16=setup.bf16) if setup.reference else None
        self._teacher = (
            FrozenModel(setup.teacher.load, bf16=setup.bf16) if setup.teacher and setup.teacher.load else None
        )
        self.critic = LocalCritic(setup.critic, sum_over_ranks, bf16=setup.bf16) if setup.critic else None
        """The critic, if there is one."""
        self._refreshes = setup.reference is not None and setup.reference.update_interval is not None
        self._refreshed: int | None = 0

    def models(self) -> Iterator[tuple[str, LocalModel]]:
        """The models that the next forward passes use, by slime's names."""
        if self._reference:
            yield "ref", self._reference.model
        if self._teacher:
            yield "teacher", self._teacher.model
        if self.critic:
            yield "critic", self.critic.model

    def begin(self, rollout_id: int, weights: torch.Tensor) -> None:
        """Begin training on a rollout: if due, copy the policy's current weights [N] into the reference.

        `ref_update_interval` K, as in slime: after K rollouts, which is before the first step of rollout K.
        """
        if self.critic:
            self.critic.begin_rollout()
        if self._reference is None or self._about is None or self._about.update_interval is None:
            return
        due = rollout_id // self._about.update_interval
        if self._refreshed is not None and due > self._refreshed:
            self._reference.take(weights)
        self._refreshed = due

    def add_log_probs(self, share: Share, packs: Sequence[Pack]) -> Share:
        """The share with log-probs and values from these models for its trained samples, which are in `packs`."""
        return replace(
            share,
            ref_log_probs_T=self._read(self._reference, packs, share),
            teacher_log_probs_T=self._read(self._teacher, packs, share),
            values_T=self.critic.values(packs, len(share.mask_T)) if self.critic else None,
        )

    def _read(self, model: FrozenModel | None, packs: Sequence[Pack], share: Share) -> torch.Tensor | None:
        if model is None:
            return None
        found_T = torch.zeros_like(share.mask_T)
        for pack in packs:
            found_T[pack.tokens] = model.log_probs(pack.groups, self._temperature)
        return found_T

    def save(self, directory: Path) -> None:
        """Write the models that changed during the run: a refreshed reference, and the critic."""
        if self.critic:
            self.critic.save(directory / CRITIC_FOLDER)
        if self._refreshes:
            assert self._reference is not None
            tensors = {"weights": self._reference.weights, "refreshed": torch.tensor(self._refreshed or 0)}
            save_file({name: each.cpu() for name, each in tensors.items()}, directory / REFERENCE_FILE)

    def load(self, directory: Path) -> None:
        """The inverse of `save`; a checkpoint of a run without refreshing leaves the reference as it was loaded.

        Raises:
            ModelError: it is of another model.
            CheckpointError: the critic is missing, or of another model.
        """
        if self.critic:
            self.critic.load(directory / CRITIC_FOLDER)
        if self._refreshes and self._reference is not None:
            self._refreshed = None
            if (directory / REFERENCE_FILE).is_file():
                tensors = load_file(directory / REFERENCE_FILE)
                self._reference.take(tensors["weights"])
                self._refreshed = int(tensors["refreshed"])


FILE = "old_actor.safetensors"


class OldPolicy:
    """A model of the policy's architecture, and copies of published weights."""

    def __init__(self, setup: RankSetup, lag: int) -> None:
        """Load a model to hold the copies."""
        self._model = FrozenModel(setup.hf_checkpoint, bf16=setup.bf16).model
        self._served = ServedWeights[torch.Tensor](lag)

    def published(self, version: int, weights: torch.Tensor) -> None:
        """Record the policy's weights [N], published as a version."""
        self._served.published(version, weights.clone)

    def model(self, rollout_id: int) -> LocalModel | None:
        """The model that generated a rollout; None if it is the policy at the start of training on it."""
        version, weights = self._served.of(rollout_id)
        if version == rollout_id:
            return None
        self._model.flat.copy_(weights)
        return self._model

    def save(self, directory: Path) -> None:
        """Write the weights that a resumed run does not publish again."""
        if (saved := self._served.saved()) is not None:
            version, weights = saved
            save_file({"weights": weights.cpu(), "version": torch.tensor(version)}, directory / FILE)

    def load(self, directory: Path) -> None:
        """The inverse of `save`."""
        if (directory / FILE).is_file():
            tensors = load_file(directory / FILE)
            self._served.restore(int(tensors["version"]), tensors["weights"].to(self._model.flat.device))
