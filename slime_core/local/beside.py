"""Beside: the models that a rank holds beside its policy, and what they say of a step's tokens.

Example:

    seen = beside.look(packs, log_probs_T, mask_T, columns_T)
    seen.kl_penalty_T                      # [T], for the advantage estimator
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slime_core.config import TEACHER_COLUMN
from slime_core.local.critic import LocalCritic, Pack
from slime_core.local.frozen import FrozenModel
from slime_core.local.model import LocalModel
from slime_core.roles import RankSetup
from slime_core.train.kl import approximate_kl, kl_loss

CRITIC_FOLDER = "critic"
REFERENCE_FILE = "reference.safetensors"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found of a batch's T response tokens; None where nobody asked."""

    ref_log_probs_T: torch.Tensor | None = None
    """The reference's log-probs; 0 in samples without a trained token."""
    kl_penalty_T: torch.Tensor | None = None
    """What the KL to the reference takes off the rewards; 0 where the mask is 0."""
    reverse_kl_T: torch.Tensor | None = None
    """The reverse KL to the teacher in nats, estimated by k1; 0 where the mask is 0."""
    values_T: torch.Tensor | None = None
    """The critic's values; 0 in samples without a trained token."""


NOTHING = Seen()


class Beside:
    """The reference, the teacher and the critic of one rank."""

    def __init__(self, setup: RankSetup, sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Load what the setup asks for.

        Raises:
            ModelError: a model cannot be loaded.
        """
        self._temperature = setup.rollout_temperature
        self._about, self._teaching = setup.reference, setup.teacher
        self._reference = FrozenModel(setup.reference.load, bf16=setup.bf16) if setup.reference else None
        self._teacher = (
            FrozenModel(setup.teacher.load, bf16=setup.bf16) if setup.teacher and setup.teacher.load else None
        )
        self.critic = LocalCritic(setup.critic, sum_over_ranks, bf16=setup.bf16) if setup.critic else None
        """The critic, if there is one."""
        self._refreshes = setup.reference is not None and setup.reference.update_interval is not None
        self._refreshed: int | None = 0

    def models(self) -> Iterator[tuple[str, LocalModel]]:
        """Those that a step is about to ask, under slime's names."""
        if self._reference:
            yield "ref", self._reference.model
        if self._teacher:
            yield "teacher", self._teacher.model
        if self.critic:
            yield "critic", self.critic.model

    def begin(self, rollout_id: int, weights: torch.Tensor) -> None:
        """A step on a rollout begins: where it is time, the reference becomes the policy [N] as it is now.

        `ref_update_interval` K, as slime has it: after K rollouts, which is before the first step of rollout K.
        """
        if self.critic:
            self.critic.begin(rollout_id)
        if self._reference is None or self._about is None or self._about.update_interval is None:
            return
        due = rollout_id // self._about.update_interval
        if self._refreshed is not None and due > self._refreshed:
            self._reference.take(weights)
        self._refreshed = due

    def look(
        self,
        packs: Sequence[Pack],
        log_probs_T: torch.Tensor,
        mask_T: torch.Tensor,
        columns_T: Mapping[str, torch.Tensor],
    ) -> Seen:
        """What the models say of a batch's trained samples, which are in `packs`.

        Args:
            packs: the samples, in micro-batches.
            log_probs_T: the sampler's.
            mask_T: 1 where trained on.
            columns_T: the batch's token columns.
        """
        ref_T = penalty_T = reverse_T = None
        if self._reference is not None and self._about is not None:
            ref_T = self._read(self._reference, packs, mask_T)
            if self._about.kl_coef:
                kl_T = approximate_kl(log_probs_T, ref_T, self._about.kl_loss_type)
                penalty_T = torch.where(mask_T > 0, self._about.kl_coef * kl_T, 0.0)
        if self._teaching is not None:
            teacher_T = columns_T[TEACHER_COLUMN] if self._teacher is None else self._read(self._teacher, packs, mask_T)
            reverse_T = torch.where(mask_T > 0, log_probs_T - teacher_T, 0.0)
        values_T = self.critic.values(packs, len(mask_T)) if self.critic else None
        return Seen(ref_T, penalty_T, reverse_T, values_T)

    def _read(self, model: FrozenModel, packs: Sequence[Pack], mask_T: torch.Tensor) -> torch.Tensor:
        found_T = torch.zeros_like(mask_T)
        for pack in packs:
            found_T[pack.tokens] = model.log_probs(pack.groups, self._temperature)
        return found_T

    def kl_loss(
        self, ref_T: torch.Tensor | None, log_probs_T: torch.Tensor, rollout_T: torch.Tensor, mask_T: torch.Tensor
    ) -> tuple[torch.Tensor | None, dict[str, torch.Tensor]]:
        """What a micro-batch's tokens add to their losses [T], if anything, and metrics [T]: kl_loss, ref_log_probs."""
        if ref_T is None or self._about is None:
            return None, {}
        metrics = {"ref_log_probs": ref_T}
        if not self._about.use_kl_loss:
            return None, metrics
        # Of what is not trained on, the difference may be so large that its exponential, times 0, is no number.
        near_T = torch.where(mask_T > 0, ref_T, log_probs_T.detach())
        kl_T = kl_loss(log_probs_T, near_T, rollout_T, self._about)
        added_T = self._about.kl_loss_coef * kl_T if self._about.kl_loss_coef else None
        return added_T, {**metrics, "kl_loss": kl_T}

    def distilled(self, advantage_T: torch.Tensor, seen: Seen) -> torch.Tensor:
        """Advantages [T] less `opd_kl_coef` times the reverse KL to the teacher (on-policy distillation).

        Per token, as slime has it: the policy gradient of it descends KL(policy || teacher) over the policy's own
        samples (Agarwal et al. 2024, arXiv:2306.13649, reverse KL).
        """
        if self._teaching is None or seen.reverse_kl_T is None:
            return advantage_T
        return advantage_T - self._teaching.kl_coef * seen.reverse_kl_T

    def save(self, directory: Path) -> None:
        """Write what a resume cannot load from where it came from: a refreshed reference, and the critic."""
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
