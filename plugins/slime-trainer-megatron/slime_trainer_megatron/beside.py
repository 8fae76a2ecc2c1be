"""Beside: the models that a rank holds beside its policy: a reference, a teacher, a critic, in the policy's layout.

Example:

    share = beside.look(share)
    share.ref_log_probs_T                  # [T]
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from slime_core.roles import RankSetup
from slime_core.train import Share
from slime_trainer_megatron.arguments import check_model
from slime_trainer_megatron.config_json import read_directory
from slime_trainer_megatron.critic import MegatronCritic
from slime_trainer_megatron.logprobs import Head
from slime_trainer_megatron.model import Policy, build_policy, load_hf, weights_of
from slime_trainer_megatron.passes import Passes

REFRESHED = "refreshed"


class FrozenModel:
    """A model that is read and not trained."""

    def __init__(self, directory: Path, setup: RankSetup, *, replays: bool = False) -> None:
        """Load this rank's part; it may replay what experts the sampler chose.

        Raises:
            ConfigError: the layout cannot hold it, or there is no converter for its family.
            ModelError: it cannot be loaded.
        """
        self.model = read_directory(directory, bf16=setup.bf16)
        check_model(setup.settings, self.model)
        self.policy = build_policy(self.model, setup.settings, Policy)
        self.policy.requires_grad_(False)
        load_hf(self.policy, directory, self.model)
        given = setup.settings.__dict__
        head = Head(self.model.vocab, setup.rollout_temperature, given["log_probs_chunk_size"])
        tokens = given["max_tokens_per_gpu"]
        self.passes = Passes(self.policy, self.policy, self.model, head, tokens, replays=replays)

    @torch.no_grad()
    def take(self, policy: Policy) -> None:
        """Become a model of these weights."""
        theirs = weights_of(policy)
        for name, mine in weights_of(self.policy).items():
            mine.copy_(theirs[name])


class Beside:
    """The reference, the teacher and the critic of one rank."""

    def __init__(self, setup: RankSetup) -> None:
        """Load what the setup asks for; errors as of `FrozenModel`."""
        teacher = setup.teacher.load if setup.teacher else None
        self._reference = FrozenModel(setup.reference.load, setup) if setup.reference else None
        self._teacher = FrozenModel(teacher, setup) if teacher else None
        self.critic = MegatronCritic(setup) if setup.critic else None
        """The critic, if there is one."""
        self._interval = setup.reference.update_interval if setup.reference else None
        self._refreshed: int | None = 0

    def models(self) -> Iterator[tuple[str, Policy]]:
        """Those that are about to be asked, under slime's names."""
        if self._reference:
            yield "ref", self._reference.policy
        if self._teacher:
            yield "teacher", self._teacher.policy
        if self.critic:
            yield "critic", self.critic.policy

    def begin(self, rollout_id: int, policy: Policy) -> None:
        """Training on a rollout begins: where it is time, the reference becomes the policy as it is now."""
        if self.critic:
            self.critic.optimizer.begin_rollout()
        if self._reference is None or self._interval is None:
            return
        due = rollout_id // self._interval
        if self._refreshed is not None and due > self._refreshed:
            self._reference.take(policy)
        self._refreshed = due

    def look(self, share: Share) -> Share:
        """The share with what the models say of its trained samples."""
        reference, teacher = (
            each.passes.log_probs(share, share.mask_T) if each else None for each in (self._reference, self._teacher)
        )
        values = self.critic.values(share) if self.critic else None
        return replace(share, ref_log_probs_T=reference, teacher_log_probs_T=teacher, values_T=values)

    def refreshed(self) -> Policy | None:
        """What a resume cannot load from where it came from: a reference that is refreshed."""
        return self._reference.policy if self._reference and self._interval is not None else None

    def told(self) -> dict[str, int]:
        """What else a resume needs to know."""
        return {} if self.refreshed() is None else {REFRESHED: self._refreshed or 0}

    def restored(self, told: Mapping[str, object]) -> Policy | None:
        """The inverse of `refreshed`: what is to be filled with the saved one, where one was saved.

        A checkpoint of a run without refreshing leaves the reference as it was loaded.
        """
        if self.refreshed() is None:
            return None
        found = told.get(REFRESHED)
        self._refreshed = found if isinstance(found, int) else None
        return self.refreshed() if isinstance(found, int) else None
